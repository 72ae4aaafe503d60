//! Known secrets out of bytes, in the forms in which a service could echo them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use toolcrib_dialect::json;

/// Shorter ones would black out ordinary text, and are no secrets.
const SHORTEST: usize = 6;
const MARK: &[u8] = b"[redacted]";
/// Encoders disagree about these four.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Replaces secrets by `[redacted]`. Holds them, so it prints nothing of them.
#[derive(Clone, Default)]
pub struct Scrubber {
    /// Longest first, so that no part of one survives another's replacement.
    needles: Vec<Vec<u8>>,
}

impl Scrubber {
    /// Every secret as it is, base64 (both alphabets, at each of the three offsets a
    /// prefix can shift it by), URL-encoded, and as JSON and JSON-with-escaped-slashes
    /// write it.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut needles: Vec<Vec<u8>> = secrets
            .into_iter()
            .map(str::trim)
            .filter(|secret| secret.len() >= SHORTEST)
            .flat_map(forms)
            .filter(|needle| needle.len() >= SHORTEST)
            .collect();
        needles.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        needles.dedup();
        Self { needles }
    }

    /// The longest form: how far beyond a cut bytes must be read to be scrubbed whole.
    pub fn longest(&self) -> usize {
        self.needles.first().map_or(0, Vec::len)
    }

    pub fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut bytes = bytes;
        for needle in &self.needles {
            bytes = replaced(bytes, needle);
        }
        bytes
    }

    pub fn scrub_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scrub(text.as_bytes().to_vec())).into_owned()
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.needles.len())
    }
}

fn forms(secret: &str) -> Vec<Vec<u8>> {
    let quoted = json::quote(secret);
    let escaped = &quoted[1..quoted.len() - 1];
    let encoded = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
    let unreserved = utf8_percent_encode(secret, UNRESERVED).to_string();
    let mut forms = vec![
        secret.to_string(),
        escaped.to_string(),
        escaped.replace('/', "\\/"),
        encoded.to_ascii_lowercase(),
        encoded,
        unreserved.to_ascii_lowercase(),
        unreserved,
    ];
    for offset in 0..3 {
        let shifted = [&vec![0u8; offset][..], secret.as_bytes()].concat();
        // What stands before and after the secret changes the first and last characters.
        let first = (offset * 8).div_ceil(6);
        let last = shifted.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted);
            if let Some(middle) = text.get(first..last) {
                forms.push(middle.to_string());
                forms.push(middle.replace('/', "\\/"));
                forms.push(utf8_percent_encode(middle, NON_ALPHANUMERIC).to_string());
            }
        }
    }
    forms.into_iter().map(String::into_bytes).collect()
}

fn replaced(bytes: Vec<u8>, needle: &[u8]) -> Vec<u8> {
    let Some(first) = find(&bytes, needle) else {
        return bytes;
    };
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&bytes[..first]);
    out.extend_from_slice(MARK);
    let mut rest = &bytes[first + needle.len()..];
    while let Some(at) = find(rest, needle) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(MARK);
        rest = &rest[at + needle.len()..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
}
