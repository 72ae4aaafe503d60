//! Deflated text, for values that are kept for long and read rarely.
//!
//! A status is repetitive and shrinks to a sixth.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// A text as deflated bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedText(Box<[u8]>);

impl CompressedText {
    pub fn of(text: &str) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let deflated = encoder
            .write_all(text.as_bytes())
            .and_then(|()| encoder.finish());
        Self(deflated.expect("a write to memory cannot fail").into())
    }

    /// Length of the deflated bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        DeflateDecoder::new(&*self.0)
            .read_to_string(&mut text)
            .expect("deflated from text");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, at_most: usize) {
        let deflated = CompressedText::of(text);
        assert_eq!(deflated.text(), text);
        assert!(deflated.0.len() <= at_most, "{} bytes", deflated.0.len());
    }

    #[test]
    fn repetitive_text_is_short() {
        check("", 8);
        check("reed: otter, newt, \u{1f9a6}", 64);
        check(&r#"{"name":"reed","reason":"NoPods"}"#.repeat(100), 200);
    }
}
