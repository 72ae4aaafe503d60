//! The place up to which the collector has taken the record, in a file beside the record.
//!
//! The file is written whole and synced to disk after each answer of the collector. A missing, torn or
//! foreign file counts as none: then the record is sent from its oldest line again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub const FILE_NAME: &str = "exported.json";
/// Limits the bytes of the file that are read; a cursor has about 250.
const MOST_BYTES: u64 = 4096;

/// Identity of a file of the record. A name changes with rotation, and an inode number is used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub inode: u64,
    /// SHA-256 of the file's first line, in hexadecimal.
    pub first_line: String,
}

/// A line of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPlace {
    pub chain: String,
    pub seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    pub file: FileIdentity,
    /// Offset of the first line that the collector has not taken.
    pub offset: u64,
    /// The last line of a chain before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<ChainPlace>,
}

/// The file of the cursor.
#[derive(Clone, Debug)]
pub struct CursorFile(PathBuf);

impl CursorFile {
    pub fn of(dir: &Path) -> Self {
        Self(dir.join(FILE_NAME))
    }

    pub fn read(&self) -> Option<Cursor> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return unusable(&error.to_string()),
        };
        let mut text = Vec::new();
        match file.take(MOST_BYTES).read_to_end(&mut text) {
            Ok(_) => {}
            Err(error) => return unusable(&error.to_string()),
        }
        match serde_json::from_slice(&text) {
            Ok(cursor) => Some(cursor),
            Err(error) => unusable(&error.to_string()),
        }
    }

    /// Replaces the file in one step, and returns once that is on disk.
    pub fn write(&self, cursor: &Cursor) -> io::Result<()> {
        let replacement = self.0.with_added_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&replacement)?;
        let mut text = serde_json::to_vec(cursor).expect("texts and numbers always serialize");
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&replacement, &self.0)?;
        let dir = self.0.parent().unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }
}

fn unusable(error: &str) -> Option<Cursor> {
    tracing::warn!(
        error,
        "export cursor not read, record sent again from its oldest line"
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = CursorFile::of(dir.path());
        assert_eq!(file.read(), None);
        for offset in [7, 70] {
            let cursor = Cursor {
                file: FileIdentity {
                    inode: 5,
                    first_line: "ab".into(),
                },
                offset,
                last: Some(ChainPlace {
                    chain: "c".into(),
                    seq: 3,
                }),
            };
            file.write(&cursor).unwrap();
            assert_eq!(file.read(), Some(cursor));
        }
        let path = dir.path().join(FILE_NAME);
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 1, whole.len() / 2] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(file.read(), None, "{length}");
        }
        std::fs::write(&path, r#"{"foreign":1}"#).unwrap();
        assert_eq!(file.read(), None);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(file.read(), None);
    }
}
