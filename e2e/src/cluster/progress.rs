//! Progress messages for a person.

use std::time::Instant;

/// Prints one line per stage to standard error, with the time since the start.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Stderr,
    Nowhere,
}

impl Progress {
    pub fn stderr() -> Progress {
        Progress {
            start: Instant::now(),
            shown: Shown::Stderr,
        }
    }

    /// A progress that prints nothing.
    pub fn silent() -> Progress {
        Progress {
            start: Instant::now(),
            shown: Shown::Nowhere,
        }
    }

    pub fn stage(&self, text: impl AsRef<str>) {
        match self.shown {
            Shown::Stderr => {
                eprintln!(
                    "[{:>6.1} s] {}",
                    self.start.elapsed().as_secs_f64(),
                    text.as_ref()
                );
            }
            Shown::Nowhere => {}
        }
    }
}
