//! What a person sees while something takes time.

use std::time::Instant;

/// One line per stage on standard error, with the time since the start.
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

    /// For callers that print nothing.
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
