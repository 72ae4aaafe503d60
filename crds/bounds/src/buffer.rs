//! A buffer for the bytes of a body.

use thiserror::Error;

/// Collects chunks of bytes, at most `limit` bytes.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    limit: usize,
}

/// A body is longer than its bound. The chunk that exceeded it was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is longer than {0} bytes")]
pub struct TooLarge(pub usize);

impl Buffer {
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Adds a whole chunk, or nothing.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), TooLarge> {
        if chunk.len() > self.room() {
            return Err(TooLarge(self.limit));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// Adds as much of the beginning of a chunk as fits. Returns true if the buffer is full.
    pub fn fill(&mut self, chunk: &[u8]) -> bool {
        let length = chunk.len().min(self.room());
        self.bytes.extend_from_slice(&chunk[..length]);
        self.room() == 0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn room(&self) -> usize {
        self.limit - self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_accepted_up_to_exactly_its_bound() {
        for chunks in [&["otter"][..], &["ot", "", "ter"]] {
            let push = |limit| {
                let mut buffer = Buffer::new(limit);
                let pushed = chunks.iter().try_for_each(|it| buffer.push(it.as_bytes()));
                pushed.map(|()| buffer.into_bytes())
            };
            assert_eq!(push(5), Ok(b"otter".to_vec()));
            assert_eq!(push(4), Err(TooLarge(4)), "{chunks:?}");
        }
    }

    #[test]
    fn a_buffer_keeps_the_beginning() {
        for (limit, full, kept) in [(9, false, "otter"), (5, true, "otter"), (4, true, "otte")] {
            let mut buffer = Buffer::new(limit);
            buffer.fill(b"ott");
            assert_eq!(buffer.fill(b"er"), full);
            assert_eq!(buffer.into_bytes(), kept.as_bytes());
        }
    }
}
