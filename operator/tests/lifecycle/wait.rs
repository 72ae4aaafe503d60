//! Waits for conditions that no event announces, always with a deadline.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Twice the longest promise, on a machine that builds meanwhile.
pub const DEADLINE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Polls until `look` returns something.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begun.elapsed() > deadline {
            bail!("not within {deadline:?}: {what}");
        }
        tokio::time::sleep(LOOK).await;
    }
}
