//! One file of the record, read line by line from a place in it.
//!
//! Only whole lines are given: the end of the file can be half a line, which its writer may still
//! remove. Memory is bounded by the longest line that is read; a longer one is skipped.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use memchr::memchr;
use sha2::{Digest, Sha256};

use super::cursor::FileIdentity;

/// Limits the bytes of one line. The mediator's longest line has two bodies of 1 MiB, escaped.
pub const MOST_LINE: usize = 16 * 1024 * 1024;
/// Bytes that are read at once, and that stay allocated.
const CHUNK: usize = 64 * 1024;
/// Limits the bytes of the first line that its digest covers.
const MOST_FIRST_LINE: usize = 16 * 1024;

/// The next line of a file, if it has one.
#[derive(Debug, PartialEq, Eq)]
pub enum NextLine {
    Line(Vec<u8>),
    /// A line over [`MOST_LINE`].
    TooLong,
    /// There is no further whole line now.
    End,
}

#[derive(Debug)]
pub struct RecordFile {
    file: File,
    pub identity: FileIdentity,
    /// Offset of the next line.
    pub offset: u64,
    /// True if all lines were read and the file gets no others.
    pub is_done: bool,
    /// Bytes from `offset` on that were read already.
    ahead: Vec<u8>,
    /// Length of the part of `ahead` that precedes `offset`.
    used: usize,
}

impl RecordFile {
    /// Opens a file; `None` if there is none, or it has no whole line yet.
    pub fn open(path: &Path) -> io::Result<Option<RecordFile>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        // Only a regular file has lines to read.
        if !metadata.is_file() {
            return Ok(None);
        }
        let mut first = vec![0; MOST_FIRST_LINE];
        let length = read_at(&file, &mut first, 0)?;
        let line = match memchr(b'\n', &first[..length]) {
            Some(end) => &first[..end],
            None if length == MOST_FIRST_LINE => &first[..],
            None => return Ok(None),
        };
        let first_line = hex::encode(Sha256::digest(line));
        Ok(Some(RecordFile {
            file,
            identity: FileIdentity {
                inode: metadata.ino(),
                first_line,
            },
            offset: 0,
            is_done: false,
            ahead: Vec::new(),
            used: 0,
        }))
    }

    /// Continues at an offset. False if no line begins there.
    pub fn seek(&mut self, offset: u64) -> io::Result<bool> {
        if offset > self.file.metadata()?.len() {
            return Ok(false);
        }
        let mut before = [0];
        let is_begin = match offset.checked_sub(1) {
            None => true,
            Some(at) => read_at(&self.file, &mut before, at)? == 1 && before == *b"\n",
        };
        if is_begin {
            self.offset = offset;
            self.forget();
        }
        Ok(is_begin)
    }

    /// Number of bytes after the offset.
    pub fn left(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.offset))
    }

    pub fn next_line(&mut self) -> io::Result<NextLine> {
        if memchr(b'\n', &self.ahead[self.used..]).is_none() {
            // Half a line is read again, since its writer may have replaced it.
            self.forget();
        }
        let mut searched = self.used;
        let (mut is_skipping, mut skipped) = (false, 0);
        loop {
            if let Some(at) = memchr(b'\n', &self.ahead[searched..]) {
                let end = searched + at;
                let line = match is_skipping {
                    true => NextLine::TooLong,
                    false => NextLine::Line(self.ahead[self.used..end].to_vec()),
                };
                self.offset += skipped + (end + 1 - self.used) as u64;
                self.used = end + 1;
                if self.used == self.ahead.len() {
                    self.forget();
                }
                return Ok(line);
            }
            if is_skipping || self.ahead.len() - self.used > MOST_LINE {
                is_skipping = true;
                skipped += (self.ahead.len() - self.used) as u64;
                self.forget();
            }
            self.ahead.drain(..self.used);
            self.used = 0;
            searched = self.ahead.len();
            let from = self.offset + skipped + searched as u64;
            self.ahead.resize(searched + CHUNK, 0);
            let length = read_at(&self.file, &mut self.ahead[searched..], from)?;
            self.ahead.truncate(searched + length);
            if length == 0 {
                self.forget();
                return Ok(NextLine::End);
            }
        }
    }

    fn forget(&mut self) {
        self.ahead.clear();
        self.ahead.shrink_to(CHUNK);
        self.used = 0;
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::*;

    fn lines(file: &mut RecordFile) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match file.next_line().unwrap() {
                NextLine::Line(line) => lines.push(String::from_utf8(line).unwrap()),
                NextLine::TooLong => lines.push("too long".to_owned()),
                NextLine::End => return lines,
            }
        }
    }

    #[test]
    fn whole_lines_are_given_and_half_a_line_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        assert!(RecordFile::open(&path).unwrap().is_none());
        std::fs::write(&path, "ha").unwrap();
        assert!(RecordFile::open(&path).unwrap().is_none());
        let long = "x".repeat(3 * CHUNK);
        std::fs::write(&path, format!("one\n\n{long}\nha")).unwrap();
        let mut file = RecordFile::open(&path).unwrap().unwrap();
        assert_eq!(lines(&mut file), ["one", "", &long]);
        assert_eq!(
            (file.offset, file.left().unwrap()),
            (5 + long.len() as u64 + 1, 2)
        );
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        // As the writer removes half a line.
        writer.set_len(file.offset).unwrap();
        (&writer).write_all(b"two\n").unwrap();
        assert_eq!(lines(&mut file), ["two"]);
        assert!(file.seek(4).unwrap() && !file.seek(3).unwrap() && !file.seek(1 << 40).unwrap());
        assert_eq!(lines(&mut file), ["", &long, "two"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let long = "x".repeat(MOST_LINE + 2 * CHUNK);
        std::fs::write(&path, format!("one\n{long}\ntwo\n{long}")).unwrap();
        let mut file = RecordFile::open(&path).unwrap().unwrap();
        assert_eq!(lines(&mut file), ["one", "too long", "two"]);
        assert!(file.ahead.capacity() <= 2 * CHUNK);
        assert_eq!(file.offset, 4 + long.len() as u64 + 1 + 4);
    }
}
