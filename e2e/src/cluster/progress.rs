//! Progress messages for a person.

use std::time::Instant;

/// Prints one line per stage to standard error, with the time since the start.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    shown: Output,
}

#[derive(Debug)]
enum Output {
    Stderr,
    Nowhere,
}

impl Progress {
    pub fn stderr() -> Progress {
        Progress {
            start: Instant::now(),
            shown: Output::Stderr,
        }
    }

    /// A progress that prints nothing.
    pub fn silent() -> Progress {
        Progress {
            start: Instant::now(),
            shown: Output::Nowhere,
        }
    }

    pub fn stage(&self, text: impl AsRef<str>) {
        match self.shown {
            Output::Stderr => {
                eprintln!(
                    "[{:>6.1} s] {}",
                    self.start.elapsed().as_secs_f64(),
                    text.as_ref()
                );
            }
            Output::Nowhere => {}
        }
    }
}
