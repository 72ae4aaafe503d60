//! What the user sees.

mod diagnostics;
mod objects;
mod table;

pub use diagnostics::findings;
pub use objects::objects;
pub use table::table;

use std::io::Write as _;

/// All of `text`; a reader that went away (`| head`) is no error.
pub fn to_stdout(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
