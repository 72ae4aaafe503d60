//! Splits bytes into lines.

/// Most bytes of one line. The mediator's longest line has two bodies of 1 MiB, escaped.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Splits bytes into lines, and skips lines that are too long.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    is_skipping: bool,
    /// Number of lines that were too long.
    pub too_long: u64,
}

impl Splitter {
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.partial.is_empty() && !self.is_skipping {
                each(line);
                continue;
            }
            self.extend(line);
            self.end(&mut each);
        }
        self.extend(bytes);
    }

    /// Ends the last line, which may have no line break.
    pub fn end(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() && !self.is_skipping {
            each(&self.partial);
        }
        self.partial.clear();
        self.is_skipping = false;
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.is_skipping {
            return;
        }
        if self.partial.len() + bytes.len() > MAX_LINE {
            self.partial = Vec::new();
            self.is_skipping = true;
            self.too_long += 1;
            return;
        }
        self.partial.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_chunks_give_the_same_lines() {
        let text = b"one\n\ntwo\nthree";
        for size in 1..=text.len() {
            let mut lines = Vec::new();
            let mut splitter = Splitter::default();
            for chunk in text.chunks(size) {
                splitter.push(chunk, |line| {
                    lines.push(String::from_utf8_lossy(line).into_owned())
                });
            }
            splitter.end(|line| lines.push(String::from_utf8_lossy(line).into_owned()));
            lines.retain(|line| !line.is_empty());
            assert_eq!(lines, ["one", "two", "three"], "{size}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for _ in 0..17 {
            splitter.push(&[b'x'; 1024 * 1024], |line| lines.push(line.len()));
        }
        assert!(splitter.partial.capacity() < MAX_LINE);
        splitter.push(b"\nnext\n", |line| lines.push(line.len()));
        assert_eq!((lines, splitter.too_long), (vec![4], 1));
    }
}
