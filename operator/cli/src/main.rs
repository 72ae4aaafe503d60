//! The program `kubectl-toolcrib`. Its code is the library's.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_toolcrib::main()
}
