//! Rotation that waits until the collector has taken the older file, which rotation removes.
//!
//! The export says up to where the collector has taken the record; the writer asks before it rotates.
//! Without a [`RotationGate`] nothing waits. Not here: reading and sending the record
//! ([`crate::export`]).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::Mutex;
use thiserror::Error;

/// The reason why the record does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record is full, and the collector has not taken its older file yet")]
pub struct CollectorBehind;

/// A place in one of the record's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    pub inode: u64,
    /// Offset of the first line that the collector has not taken.
    pub offset: u64,
}

/// The place up to which the collector has taken the record.
#[derive(Debug, Default)]
pub struct RotationGate(Mutex<Option<FilePlace>>);

impl RotationGate {
    pub fn taken(&self, place: FilePlace) {
        // The value is written whole: a panic under the lock leaves nothing in between.
        *self.0.lock() = Some(place);
    }

    /// True if `older` may be removed: it does not exist, or the collector has taken all of it.
    /// `newer`: the inode of the file that is written.
    pub fn permits(&self, older: &Path, newer: u64) -> bool {
        let older = match std::fs::metadata(older) {
            Ok(older) => older,
            // Another error is the rename's to report.
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
        };
        self.0.lock().is_some_and(|taken| {
            taken.inode == newer || (taken.inode == older.ino() && taken.offset >= older.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_taken_whole_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let older = dir.path().join("older");
        let gate = RotationGate::default();
        assert!(gate.permits(&older, 1));
        std::fs::write(&older, "0123456789").unwrap();
        let inode = std::fs::metadata(&older).unwrap().ino();
        let newer = inode + 1;
        assert!(!gate.permits(&older, newer));
        for (inode, offset, permitted) in [
            (inode, 9, false),
            (inode, 10, true),
            (newer, 0, true),
            (inode + 2, 99, false),
        ] {
            gate.taken(FilePlace { inode, offset });
            assert_eq!(gate.permits(&older, newer), permitted, "{inode} {offset}");
        }
    }
}
