//! Known secrets out of bytes, in the forms in which a service could echo them.
//!
//! Each byte of a secret may stand as itself, percent-encoded or JSON-escaped, also more
//! than once over: encoders differ in what they leave alone, so forms are recognized
//! byte by byte instead of listed.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter ones would black out ordinary text, and are no secrets.
const SHORTEST: usize = 6;
const MARK: &[u8] = b"[redacted]";
/// `\\u00e9` within JSON within JSON: what one byte can grow to.
const LONGEST_ESCAPE: usize = 8;

/// Replaces secrets by `[redacted]`. Holds them, so it prints nothing of them.
#[derive(Clone, Default)]
pub struct Scrubber {
    /// Longest first, so that no part of one survives another's replacement.
    needles: Vec<Vec<u8>>,
}

impl Scrubber {
    /// Every secret as it is and in base64 (both alphabets, at each of the three offsets
    /// that what stands before it can shift it by), however these are escaped.
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

    /// How far beyond a cut bytes must be read for a secret there to be scrubbed whole.
    pub fn longest(&self) -> usize {
        self.needles
            .first()
            .map_or(0, |needle| needle.len() * LONGEST_ESCAPE)
    }

    pub fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut begins = [false; 256];
        for needle in &self.needles {
            begins[usize::from(needle[0])] = true;
        }
        begins[usize::from(b'%')] = !self.needles.is_empty();
        begins[usize::from(b'\\')] = !self.needles.is_empty();
        let mut out: Option<Vec<u8>> = None;
        let (mut at, mut kept) = (0, 0);
        while at < bytes.len() {
            let found = begins[usize::from(bytes[at])]
                .then(|| self.longest_at(&bytes[at..]))
                .flatten();
            let Some(length) = found else {
                at += 1;
                continue;
            };
            let out = out.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
            out.extend_from_slice(&bytes[kept..at]);
            out.extend_from_slice(MARK);
            at += length;
            kept = at;
        }
        match out {
            None => bytes,
            Some(mut out) => {
                out.extend_from_slice(&bytes[kept..]);
                out
            }
        }
    }

    pub fn scrub_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scrub(text.as_bytes().to_vec())).into_owned()
    }

    fn longest_at(&self, text: &[u8]) -> Option<usize> {
        self.needles.iter().find_map(|needle| matched(text, needle))
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.needles.len())
    }
}

fn forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.as_bytes().to_vec()];
    for offset in 0..3 {
        let shifted = [&vec![0u8; offset][..], secret.as_bytes()].concat();
        // What stands before and after the secret changes the first and last characters.
        let first = (offset * 8).div_ceil(6);
        let last = shifted.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let text = engine.encode(&shifted);
            forms.extend(text.get(first..last).map(|text| text.as_bytes().to_vec()));
        }
    }
    forms
}

/// How many bytes of `text` say `needle`, from its beginning.
fn matched(text: &[u8], needle: &[u8]) -> Option<usize> {
    let (mut at, mut wanted) = (0, 0);
    while wanted < needle.len() {
        let (consumed, said) = unit(&text[at..], &needle[wanted..])?;
        at += consumed;
        wanted += said;
    }
    Some(at)
}

/// One character of the text: its length, and how many bytes of the needle it says.
fn unit(text: &[u8], needle: &[u8]) -> Option<(usize, usize)> {
    let byte = *needle.first()?;
    match *text.first()? {
        b'%' => {
            if let Some(length) = percent(text, byte) {
                return Some((length, 1));
            }
        }
        b'\\' => return escape(text, needle),
        b'+' if byte == b' ' => return Some((1, 1)),
        _ => {}
    }
    (text[0] == byte).then_some((1, 1))
}

/// `%XX`, `%25XX`, …
fn percent(text: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
        if u8::from_str_radix(digits, 16).ok()? == byte {
            return Some(at + 2);
        }
        if digits != "25" {
            return None;
        }
        at += 2;
    }
}

/// Backslashes, as many as there are, and what they escape.
fn escape(text: &[u8], needle: &[u8]) -> Option<(usize, usize)> {
    let run = |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b'\\').count();
    let (said, wanted) = (run(text), run(needle));
    if wanted > 0 {
        return (said >= wanted).then_some((said, wanted));
    }
    let byte = needle[0];
    let letter = *text.get(said)?;
    if letter == b'u' {
        let digits = std::str::from_utf8(text.get(said + 1..said + 5)?).ok()?;
        let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
        let mut buffer = [0; 4];
        let utf8 = c.encode_utf8(&mut buffer).as_bytes();
        return needle.starts_with(utf8).then_some((said + 5, utf8.len()));
    }
    let plain = match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'"' | b'/' | b'\'' => letter,
        _ => return None,
    };
    (plain == byte).then_some((said + 1, 1))
}
