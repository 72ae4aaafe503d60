//! Text that is kept for long and read rarely.
//!
//! Deflated: a status repeats its own words, and takes a sixth so.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl Packed {
    pub fn of(text: &str) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let packed = encoder
            .write_all(text.as_bytes())
            .and_then(|()| encoder.finish());
        Self(packed.expect("memory takes what is written").into())
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        DeflateDecoder::new(&*self.0)
            .read_to_string(&mut text)
            .expect("it was packed from text");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, at_most: usize) {
        let packed = Packed::of(text);
        assert_eq!(packed.text(), text);
        assert!(packed.0.len() <= at_most, "{} bytes", packed.0.len());
    }

    #[test]
    fn what_repeats_itself_takes_little() {
        check("", 8);
        check("reed: otter, newt, \u{1f9a6}", 64);
        check(&r#"{"name":"reed","reason":"NoPods"}"#.repeat(100), 200);
    }
}
