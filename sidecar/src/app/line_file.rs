//! A small file of lines that outlives the process, rewritten in one step when it is full.
//!
//! The owner keeps the entries in memory and says which lines they are. The file is as confidential as
//! the record, so it has the same mode. The file and its replacement have at most the limit each.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    /// `None`: it cannot be written, or has not been yet.
    file: Option<File>,
    written: u64,
    limit: u64,
    /// True if the last line is incomplete: the next one must not become part of it.
    torn: bool,
}

impl LineFile {
    /// `limit`: most bytes of the file. Nothing is read or written yet.
    pub fn new(path: PathBuf, limit: u64) -> Self {
        Self {
            path,
            file: None,
            written: 0,
            limit,
            torn: false,
        }
    }

    /// Reads at most `most` bytes of the lines of an earlier process, of which a kill can leave half a
    /// line. A file that does not exist has none.
    pub fn read(&self, most: u64, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file.take(most)).split(b'\n') {
            each(&line?);
        }
        Ok(())
    }

    /// Appends a line, or writes the file anew if it is full or was not written. `all` gives the lines of
    /// all entries, this one included.
    pub fn append<L: Iterator<Item = Vec<u8>>>(
        &mut self,
        line: Vec<u8>,
        all: impl FnOnce() -> L,
    ) -> io::Result<()> {
        let mut bytes = line;
        if self.torn {
            bytes.insert(0, b'\n');
        }
        bytes.push(b'\n');
        let fits = self.written + bytes.len() as u64 <= self.limit;
        let Some(file) = self.file.as_mut().filter(|_| fits) else {
            return self.rewrite(all());
        };
        let written = file.write_all(&bytes);
        self.written += bytes.len() as u64;
        self.torn = written.is_err();
        written
    }

    /// Replaces the file by one with these lines. Those that do not fit are left out, which is an error.
    pub fn rewrite(&mut self, lines: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
        self.torn = false;
        (self.file, self.written) = (None, 0);
        let replacement = self.path.with_added_extension("new");
        let (file, written, left_out) = write_new(&replacement, self.limit, lines)?;
        std::fs::rename(&replacement, &self.path)?;
        (self.file, self.written) = (Some(file), written);
        match left_out {
            0 => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{left_out} lines do not fit into the file"),
            )),
        }
    }
}

fn write_new(
    path: &Path,
    limit: u64,
    lines: impl Iterator<Item = Vec<u8>>,
) -> io::Result<(File, u64, usize)> {
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).truncate(true).mode(0o600);
    let mut file = options.open(path)?;
    let (mut written, mut left_out) = (0, 0);
    for mut line in lines {
        line.push(b'\n');
        if written + line.len() as u64 > limit {
            left_out += 1;
            continue;
        }
        file.write_all(&line)?;
        written += line.len() as u64;
    }
    Ok((file, written, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    /// A disk that was full in the middle of a line.
    #[test]
    fn half_a_line_of_a_full_disk_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let mut lines = LineFile::new(path.clone(), 1000);
        let all = || [b"one".to_vec()].into_iter();
        lines.append(b"one".to_vec(), all).unwrap();
        lines.file.as_mut().unwrap().write_all(b"to").unwrap();
        lines.torn = true;
        let none = std::iter::empty;
        lines.append(b"two".to_vec(), none).unwrap();
        lines.append(b"three".to_vec(), none).unwrap();
        assert_eq!(text(&path), "one\nto\ntwo\nthree\n");
        let mut read = Vec::new();
        lines.read(1000, |line| read.push(line.to_vec())).unwrap();
        assert_eq!(read, [&b"one"[..], b"to", b"two", b"three"]);
    }

    #[test]
    fn a_full_file_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let mut lines = LineFile::new(path.clone(), 20);
        let all = |lines: [&str; 2]| lines.map(|it| it.as_bytes().to_vec()).into_iter();
        lines
            .append(b"first".to_vec(), || all(["a", "first"]))
            .unwrap();
        lines.append(b"second".to_vec(), || all(["", ""])).unwrap();
        assert_eq!(text(&path), "a\nfirst\nsecond\n");
        lines
            .append(b"third".to_vec(), || all(["b", "third"]))
            .unwrap();
        assert_eq!(text(&path), "b\nthird\n");
        let long = "x".repeat(30);
        let error = lines.rewrite(all([&long, "c"])).unwrap_err();
        assert_eq!(error.to_string(), "1 lines do not fit into the file");
        assert_eq!(text(&path), "c\n");
    }

    #[test]
    fn a_file_that_could_not_be_written_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/lines");
        let mut lines = LineFile::new(path.clone(), 100);
        lines.read(100, |line| panic!("{line:?}")).unwrap();
        let all = || [b"one".to_vec()].into_iter();
        assert!(lines.append(b"one".to_vec(), all).is_err());
        std::fs::create_dir(dir.path().join("later")).unwrap();
        lines.append(b"one".to_vec(), all).unwrap();
        assert_eq!(text(&path), "one\n");
    }
}
