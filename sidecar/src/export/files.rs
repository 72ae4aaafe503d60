//! The record's two files as one sequence of lines, over rotations.
//!
//! The files are known by their content and inode, not by their names, so a rotation moves nothing. A
//! file that rotation removed is dropped, and its lines that were not read are counted: an open file
//! without a name would take room on the disk beyond the record's bound.
//!
//! Invariant: each line is given once, or counted as lost, in the order of the record.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toolcrib_record::{LinkKind, short_form};

use super::cursor::{ChainPlace, Cursor};
use super::file::{NextLine, RecordFile};
use crate::history::{FILE_NAME, FilePlace, ROTATED_NAME};

/// Most attempts to see both names between two rotations.
const LOOKS: usize = 4;

#[derive(Debug)]
pub struct RecordFiles {
    dir: PathBuf,
    /// The files that have names, the older first.
    open: Vec<RecordFile>,
    /// The last line of a chain that was read.
    last: Option<ChainPlace>,
    /// Lines that were lost since the last [`Self::take_lost`].
    lost: u64,
}

impl RecordFiles {
    /// Opens the record in a folder, which need not exist yet, at the cursor of an earlier process.
    pub fn open(dir: &Path, cursor: Option<Cursor>) -> io::Result<RecordFiles> {
        let mut files = RecordFiles {
            dir: dir.to_owned(),
            open: Vec::new(),
            last: None,
            lost: 0,
        };
        files.look()?;
        let Some(cursor) = cursor else {
            return Ok(files);
        };
        let found = files.open.iter().position(|it| it.identity == cursor.file);
        let is_found = match found {
            Some(at) => files.open[at].seek(cursor.offset)?,
            None => false,
        };
        match found.filter(|_| is_found) {
            Some(at) => files.open[..at].iter_mut().for_each(|it| it.is_done = true),
            None => tracing::warn!(
                "place of the export cursor not found, record sent from its oldest line"
            ),
        }
        files.last = cursor.last;
        Ok(files)
    }

    /// Looks which files there are, and drops those that rotation removed.
    pub fn look(&mut self) -> io::Result<()> {
        for _ in 0..LOOKS {
            // The newer one first: a rotation in between makes it the older one, not an unknown one.
            let newer = inode(&self.dir.join(FILE_NAME))?;
            let older = inode(&self.dir.join(ROTATED_NAME))?;
            if inode(&self.dir.join(FILE_NAME))? == newer {
                return self.keep(older, newer);
            }
        }
        Ok(())
    }

    fn keep(&mut self, older: Option<u64>, newer: Option<u64>) -> io::Result<()> {
        let names = [(ROTATED_NAME, older), (FILE_NAME, newer)];
        let named = || {
            names
                .into_iter()
                .filter_map(|(name, inode)| Some((name, inode?)))
        };
        // What can fail comes first, so that an error leaves the open files as they are.
        for (name, inode) in named() {
            if self.open.iter().all(|it| it.identity.inode != inode) {
                let file = RecordFile::open(&self.dir.join(name))?;
                // A name can lead to another file by now, which the next look sees.
                self.open
                    .extend(file.filter(|it| it.identity.inode == inode));
            }
        }
        let mut before = std::mem::take(&mut self.open);
        for (_, inode) in named() {
            let known = before.iter().position(|it| it.identity.inode == inode);
            self.open.extend(known.map(|at| before.remove(at)));
        }
        for mut removed in before.into_iter().filter(|it| !it.is_done) {
            if let Err(error) = self.count_rest(&mut removed) {
                tracing::error!(
                    error = error.to_string(),
                    "lines of a removed file of the record not counted"
                );
            }
        }
        Ok(())
    }

    /// Counts the lines of a removed file that were not read.
    fn count_rest(&mut self, removed: &mut RecordFile) -> io::Result<()> {
        let mut is_first = removed.offset == 0;
        loop {
            match removed.next_line()? {
                NextLine::Line(line) => {
                    self.note(&line, is_first);
                    self.lost += 1;
                }
                NextLine::TooLong => self.lost += 1,
                NextLine::End => return Ok(()),
            }
            is_first = false;
        }
    }

    /// Returns the next whole line, or `None` if all were read.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let count = self.open.len();
        for at in 0..count {
            let file = &mut self.open[at];
            if file.is_done {
                continue;
            }
            loop {
                let is_first = file.offset == 0;
                match file.next_line()? {
                    NextLine::Line(line) => {
                        self.note(&line, is_first);
                        return Ok(Some(line));
                    }
                    NextLine::TooLong => self.lost += 1,
                    NextLine::End => break,
                }
            }
            // Only the last file is written. It was not the last one at the look before this read, so
            // its end is final.
            self.open[at].is_done = at + 1 < count;
        }
        Ok(None)
    }

    /// Remembers the place of a line in its chain. Counts the lines before it as lost if it is the first
    /// of its file and the chain has others that were not read: files came and went between two looks.
    fn note(&mut self, line: &[u8], is_first: bool) {
        let Some(link) = short_form(line) else { return };
        let LinkKind::Chained { seq, aside: _ } = link.kind else {
            return;
        };
        if is_first
            && let Some(last) = &self.last
            && last.chain == *link.chain
        {
            self.lost += seq.saturating_sub(last.seq.saturating_add(1));
        }
        self.last = Some(ChainPlace {
            chain: link.chain.into_owned(),
            seq,
        });
    }

    /// Counts a line that was read, and that the collector cannot get.
    pub fn lose(&mut self) {
        self.lost += 1;
    }

    /// The number of lines that were lost since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The place of the next line. `None`: there is no file with a line.
    pub fn cursor(&self) -> Option<Cursor> {
        let file = self.reading()?;
        Some(Cursor {
            file: file.identity.clone(),
            offset: file.offset,
            last: self.last.clone(),
        })
    }

    /// The same place for rotation.
    pub fn place(&self) -> Option<FilePlace> {
        self.reading().map(|file| FilePlace {
            inode: file.identity.inode,
            offset: file.offset,
        })
    }

    fn reading(&self) -> Option<&RecordFile> {
        let unread = self.open.iter().find(|file| !file.is_done);
        unread.or(self.open.last())
    }

    /// Bytes of the record that were not read.
    pub fn left(&self) -> io::Result<u64> {
        let unread = self.open.iter().filter(|file| !file.is_done);
        unread.map(RecordFile::left).sum()
    }
}

fn inode(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use toolcrib_record::Chain;

    use super::*;

    struct Record {
        dir: tempfile::TempDir,
        chain: Chain,
    }

    impl Record {
        fn new() -> Self {
            Self {
                dir: tempfile::tempdir().unwrap(),
                chain: Chain::new("c1".into()),
            }
        }

        fn append(&mut self, count: usize) {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.dir.path().join(FILE_NAME))
                .unwrap();
            for _ in 0..count {
                let mut line = br#"{"kind":"turn"}"#.to_vec();
                let sealed = self.chain.seal(&mut line);
                self.chain.advance(sealed);
                line.push(b'\n');
                file.write_all(&line).unwrap();
            }
        }

        fn rotate(&self) {
            let dir = self.dir.path();
            std::fs::rename(dir.join(FILE_NAME), dir.join(ROTATED_NAME)).unwrap();
        }

        fn open(&self, cursor: Option<Cursor>) -> RecordFiles {
            RecordFiles::open(self.dir.path(), cursor).unwrap()
        }
    }

    /// The numbers of the next lines, at most `most`.
    fn read(files: &mut RecordFiles, most: usize) -> Vec<u64> {
        let mut seqs = Vec::new();
        while seqs.len() < most {
            let Some(line) = files.next_line().unwrap() else {
                break;
            };
            let LinkKind::Chained { seq, .. } = short_form(&line).unwrap().kind else {
                panic!("{line:?}");
            };
            seqs.push(seq);
        }
        seqs
    }

    fn range(from: u64, to: u64) -> Vec<u64> {
        (from..to).collect()
    }

    #[test]
    fn lines_are_given_once_over_rotations() {
        let mut record = Record::new();
        let mut files = record.open(None);
        assert_eq!((files.cursor(), read(&mut files, 9)), (None, vec![]));
        record.append(3);
        files.look().unwrap();
        assert_eq!(read(&mut files, 2), [0, 1]);
        record.rotate();
        record.append(2);
        files.look().unwrap();
        assert_eq!(read(&mut files, 9), [2, 3, 4]);
        assert_eq!(files.left().unwrap(), 0);
        record.rotate();
        record.append(1);
        files.look().unwrap();
        assert_eq!(read(&mut files, 9), [5]);
        assert_eq!(files.take_lost(), 0);
    }

    #[test]
    fn lines_of_a_removed_file_are_counted() {
        let mut record = Record::new();
        record.append(10);
        let mut files = record.open(None);
        assert_eq!(read(&mut files, 4), range(0, 4));
        record.rotate();
        record.append(5);
        record.rotate();
        record.append(2);
        files.look().unwrap();
        assert_eq!(files.take_lost(), 6);
        assert_eq!(read(&mut files, 99), range(10, 17));
        // A file that came and went between two looks.
        record.rotate();
        record.append(3);
        record.rotate();
        record.append(4);
        record.rotate();
        record.append(1);
        files.look().unwrap();
        assert_eq!(read(&mut files, 99), range(20, 25));
        assert_eq!(files.take_lost(), 3);
    }

    #[test]
    fn a_cursor_continues_at_every_place_and_over_rotations() {
        let mut record = Record::new();
        record.append(6);
        record.rotate();
        record.append(6);
        for most in 0..=12 {
            let mut files = record.open(None);
            assert_eq!(read(&mut files, most), range(0, most as u64));
            let mut again = record.open(files.cursor());
            again.look().unwrap();
            assert_eq!(read(&mut again, 99), range(most as u64, 12));
            assert_eq!(again.take_lost(), 0);
        }
        let mut files = record.open(None);
        read(&mut files, 8);
        let cursor = files.cursor();
        record.rotate();
        record.append(1);
        assert_eq!(read(&mut record.open(cursor.clone()), 99), range(8, 13));
        // The file of the cursor is gone: lines 8 to 11 were in no file that could be read.
        record.rotate();
        record.append(1);
        let mut files = record.open(cursor);
        assert_eq!(read(&mut files, 99), [12, 13]);
        assert_eq!(files.take_lost(), 4);
    }

    #[test]
    fn a_foreign_cursor_begins_at_the_oldest_line() {
        let mut record = Record::new();
        record.append(3);
        let mut files = record.open(None);
        read(&mut files, 2);
        let right = files.cursor().unwrap();
        let wrong = |edit: fn(&mut Cursor)| {
            let mut cursor = right.clone();
            edit(&mut cursor);
            let mut files = record.open(Some(cursor));
            (read(&mut files, 99), files.take_lost())
        };
        let whole = (range(0, 3), 0);
        assert_eq!(wrong(|it| it.offset += 1), whole);
        assert_eq!(wrong(|it| it.offset = u64::MAX), whole);
        assert_eq!(wrong(|it| it.file.inode += 1), whole);
        assert_eq!(wrong(|it| it.file.first_line.clear()), whole);
    }
}
