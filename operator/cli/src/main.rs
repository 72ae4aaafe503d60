//! The program `kubectl-toolcrib`, which calls the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_toolcrib::main()
}
