//! Cargo, as a program that Cargo itself has started runs it.

use std::process::Command;

/// Prefixes of the variables that Cargo sets for the package of a program that it runs.
const PACKAGE_PREFIXES: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Returns a command of Cargo without the variables of this package: build scripts that read them would
/// run again, and nearly everything would be compiled again.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if PACKAGE_PREFIXES
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            cargo.env_remove(&name);
        }
    }
    cargo
}
