//! The record's file and its predecessor: appends lines and rotates. Both together stay within
//! the bound. After a failed write the file is opened again by its name, so that a disk with room
//! again, or a restored file, is used at once.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_record::{Head, LinkKind, short_form};

use super::rotation::{CollectorBehind, RotationGate};

pub const FILE_NAME: &str = "history.jsonl";
pub const ROTATED_NAME: &str = "history.jsonl.1";

/// Most bytes of a file's end that are searched for its last line: one line with two long bodies.
const LAST_LINES: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct Log {
    dir: PathBuf,
    /// `None`: rotation waits for nothing.
    gate: Option<Arc<RotationGate>>,
    /// `None` after a failure.
    file: Option<File>,
    size: u64,
    half: u64,
    /// Number of files that were begun.
    files: u64,
}

impl Log {
    pub fn open(dir: &Path, max_bytes: u64, gate: Option<Arc<RotationGate>>) -> io::Result<Log> {
        std::fs::create_dir_all(dir)?;
        let mut log = Log {
            dir: dir.to_path_buf(),
            gate,
            file: None,
            size: 0,
            half: (max_bytes / 2).max(1),
            files: 0,
        };
        log.reopen()?;
        Ok(log)
    }

    /// The last line of a chain on disk, as far as the end of the files has one.
    pub fn last_head(&self) -> Option<Head> {
        [FILE_NAME, ROTATED_NAME]
            .iter()
            .find_map(|name| last_head(&self.dir.join(name)))
    }

    /// True if a line of this length, with its line break, fits into the file.
    pub fn fits(&self, line: &[&[u8]]) -> bool {
        length(line) < self.half
    }

    /// Fails if rotation waits for the collector and a line of this length needs it.
    pub fn admits(&self, line: &[&[u8]]) -> io::Result<()> {
        self.rotates(length(line) + 1).map(drop)
    }

    /// Fails if rotation waits for the collector and the file has only the room for running requests.
    pub fn admits_requests(&self) -> io::Result<()> {
        self.rotates(self.half / 8).map(drop)
    }

    /// True if a line of this length needs a rotation; fails if the rotation has to wait.
    fn rotates(&self, length: u64) -> io::Result<bool> {
        let rotates = self.size > 0 && self.size + length > self.half;
        if let (true, Some(gate), Some(file)) = (rotates, &self.gate, &self.file)
            && !gate.permits(&self.dir.join(ROTATED_NAME), file.metadata()?.ino())
        {
            return Err(io::Error::other(CollectorBehind));
        }
        Ok(rotates)
    }

    /// Appends the whole line, given in pieces, or none of it.
    pub fn append(&mut self, line: &[&[u8]]) -> io::Result<()> {
        if !self.fits(line) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "a line is larger than the record may be",
            ));
        }
        let length = length(line) + 1;
        if self.file.is_none() {
            self.reopen()?;
        }
        if self.rotates(length)? {
            self.rotate()?;
        }
        let Some(mut file) = self.file.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if let Err(error) = write_line(&mut file, line) {
            // Half a line would spoil the next one. If it cannot be removed, it is terminated
            // when the file is opened again.
            if let Err(error) = file.set_len(self.size) {
                tracing::debug!(
                    error = error.to_string(),
                    "partial record line not truncated"
                );
            }
            return Err(error);
        }
        self.file = Some(file);
        self.size += length;
        Ok(())
    }

    /// Begins a new file now if a line of this length, with its line break, would begin one.
    pub fn make_room(&mut self, length: u64) -> io::Result<()> {
        match self.file.is_some() && self.rotates(length)? {
            true => self.rotate(),
            false => Ok(()),
        }
    }

    /// Counts the files that were begun, each of which is empty at first.
    pub fn files(&self) -> u64 {
        self.files
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(self.dir.join(FILE_NAME), self.dir.join(ROTATED_NAME))?;
        self.file = None;
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(self.dir.join(FILE_NAME))?;
        self.size = end_torn_line(&mut file)?;
        self.files += u64::from(self.size == 0);
        self.file = Some(file);
        Ok(())
    }
}

/// The last line of a chain in a file.
fn last_head(path: &Path) -> Option<Head> {
    let mut file = File::open(path).ok()?;
    // Only a regular file has an end to read.
    let size = file.metadata().ok().filter(|it| it.is_file())?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LAST_LINES)))
        .ok()?;
    let mut end = Vec::new();
    file.take(LAST_LINES).read_to_end(&mut end).ok()?;
    let mut last_aside = None;
    for link in end.rsplit(|byte| *byte == b'\n').filter_map(short_form) {
        match link.kind {
            LinkKind::Aside { .. } => {
                last_aside.get_or_insert(link.digest);
            }
            LinkKind::Chained { seq, aside: _ } => {
                return Some(Head {
                    chain: link.chain.into_owned(),
                    seq,
                    hash: link.digest,
                    aside: last_aside,
                });
            }
        }
    }
    None
}

fn length(line: &[&[u8]]) -> u64 {
    line.iter().map(|piece| piece.len() as u64).sum()
}

/// Writes the line, with one system call if it is taken whole, as by a file.
fn write_line(file: &mut File, line: &[&[u8]]) -> io::Result<()> {
    let end: &[u8] = b"\n";
    let mut pieces: Vec<IoSlice> = line
        .iter()
        .copied()
        .chain([end])
        .map(IoSlice::new)
        .collect();
    let mut left = pieces.as_mut_slice();
    while !left.is_empty() {
        match file.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Terminates half a line that a kill left at the end; the next one must start on its own.
fn end_torn_line(file: &mut File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    if size == 0 {
        return Ok(0);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(size);
    }
    file.write_all(b"\n")?;
    Ok(size + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_are_kept_rotated_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 40, None).unwrap();
        for line in ["0123456789", "abcdefghij", "second-file"] {
            let (begin, end) = line.as_bytes().split_at(4);
            log.append(&[begin, b"", end]).unwrap();
        }
        assert!(log.append(&[&[b'x'; 10], &[b'y'; 20]]).is_err());
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read(ROTATED_NAME), "abcdefghij\n");
        assert_eq!(read(FILE_NAME), "second-file\n");
        for name in [FILE_NAME, ROTATED_NAME] {
            let metadata = std::fs::metadata(dir.path().join(name)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn the_bound_holds_for_both_files_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), 1000, None).unwrap();
        for length in (0..400).map(|it| it % 90) {
            log.append(&[&vec![b'x'; length]]).unwrap();
            let size = |name| std::fs::metadata(dir.path().join(name)).map_or(0, |it| it.len());
            assert!(size(FILE_NAME) + size(ROTATED_NAME) <= 1000);
        }
    }

    #[test]
    fn half_a_line_of_a_killed_process_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), "{\"torn").unwrap();
        let mut log = Log::open(dir.path(), 1000, None).unwrap();
        log.append(&[b"{}"]).unwrap();
        let text = std::fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(text, "{\"torn\n{}\n");
    }

    #[test]
    fn a_full_disk_is_an_error_and_used_again_once_it_has_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let mut log = Log::open(dir.path(), 1000, None).unwrap();
        for _ in 0..2 {
            let error = log.append(&[b"lost"]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        std::fs::remove_file(&path).unwrap();
        log.append(&[b"kept"]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
    }
}
