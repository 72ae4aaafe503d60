//! Locks between processes, by file.
//!
//! Invariant: the kernel releases a lock when its holder ends, so a killed holder leaves none.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::process::poll;

/// Longest wait for another process that builds: a cold build takes minutes.
pub const BUILD_DEADLINE: Duration = Duration::from_secs(45 * 60);

/// A lock that is held until this value is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "dropping it is its use")] File);

impl Lock {
    /// Takes the lock, and waits for another holder up to the deadline. Calls `waiting` once with
    /// the holder's pid if there is one.
    pub fn take(path: &Path, deadline: Duration, waiting: impl Fn(&str)) -> Result<Lock> {
        let parent = path.parent().context("a lock has a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("open {}", path.display()))?;
        let mut told = false;
        poll(
            deadline,
            || format!("another process holds {}", path.display()),
            || match file.try_lock() {
                Ok(()) => Ok(Some(())),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        let mut holder = String::new();
                        (&file).read_to_string(&mut holder)?;
                        waiting(holder.trim());
                    }
                    Ok(None)
                }
                Err(TryLockError::Error(error)) => {
                    Err(anyhow!(error).context(format!("lock {}", path.display())))
                }
            },
        )?;
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", std::process::id())?;
        Ok(Lock(file))
    }
}
