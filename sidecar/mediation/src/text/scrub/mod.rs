//! Removes known secrets from bytes, in every form in which a service could echo them.
//!
//! Each byte of a secret may stand as itself or be escaped, even several times over. Encoders
//! differ in the bytes that they escape, so forms are recognized byte by byte instead of listed.
//! [`escapes`] reads escapes, [`needles`] finds secrets that contain them. Nearly every text
//! contains no escape that could stand for a byte of a secret; such a text is searched only for the
//! plain forms, at memory speed.
//!
//! Invariant: the work is linear in the text, whatever the secrets and the text are. A search that
//! has used up its steps treats the rest of the text as a secret.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use needles::{Needles, Steps};

mod escapes;
mod json;
mod needles;
#[cfg(test)]
mod tests;

/// Shorter values are not treated as secrets: scrubbing them would black out ordinary text.
const SHORTEST: usize = 6;
const MARK: &[u8] = b"[redacted]";
/// The longest escape of one byte, such as `\\\\u00e9` or `&amp;#x2F;`.
const LONGEST_ESCAPE: usize = 12;

/// Replaces secrets by `[redacted]`. It holds secrets, so its `Debug` prints none of them.
#[derive(Clone, Default)]
pub struct Scrubber {
    needles: Needles,
    longest: usize,
}

impl Scrubber {
    /// Searches for every secret as it is, in hexadecimal and in base64 (both alphabets, at each of
    /// the three offsets that the preceding bytes can cause), however these are escaped.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let secrets: Vec<&str> = secrets
            .into_iter()
            .map(str::trim)
            .filter(|secret| secret.len() >= SHORTEST)
            .collect();
        let needles = secrets.iter().flat_map(|secret| forms(secret));
        Self {
            longest: secrets.iter().map(|it| it.len()).max().unwrap_or(0) * LONGEST_ESCAPE,
            needles: Needles::new(needles.filter(|needle| needle.len() >= SHORTEST).collect()),
        }
    }

    /// Bytes to read beyond a cut so that a secret there is scrubbed whole.
    pub fn longest(&self) -> usize {
        self.longest
    }

    pub fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.scrubbed(Cow::Owned(bytes)).into_owned()
    }

    /// Copies nothing if there is nothing to replace.
    pub fn scrubbed<'b>(&self, bytes: Cow<'b, [u8]>) -> Cow<'b, [u8]> {
        let found = self.found(&bytes);
        if found.is_empty() {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len() + MARK.len());
        let mut kept = 0;
        for it in found {
            out.extend_from_slice(&bytes[kept..it.start]);
            out.extend_from_slice(MARK);
            kept = it.end;
        }
        out.extend_from_slice(&bytes[kept..]);
        Cow::Owned(out)
    }

    pub fn scrub_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scrub(text.as_bytes().to_vec())).into_owned()
    }

    /// Returns the places of secrets, in order and disjoint; of those that begin at one place, the
    /// longest.
    fn found(&self, text: &[u8]) -> Vec<Range<usize>> {
        self.needles.found(text, &mut Steps::for_text(text))
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.needles.len())
    }
}

fn forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![
        secret.as_bytes().to_vec(),
        hex::encode(secret).into_bytes(),
        hex::encode_upper(secret).into_bytes(),
    ];
    for offset in 0..3 {
        let shifted = [&vec![0u8; offset][..], secret.as_bytes()].concat();
        // The bytes before and after the secret change the first and last characters.
        let first = (offset * 8).div_ceil(6);
        let last = shifted.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted);
            forms.extend(text.get(first..last).map(|text| text.as_bytes().to_vec()));
        }
    }
    forms
}
