//! Known secrets out of bytes, in the forms in which a service could echo them.
//!
//! Each byte of a secret may stand as itself, percent-encoded or JSON-escaped, also more
//! than once over: encoders differ in what they leave alone, so forms are recognized
//! byte by byte instead of listed. That is slow, and nearly every text holds no escape
//! that could say a byte of a secret; those are searched for the plain forms at once.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

mod json;

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
    /// Those of them that begin with a byte, by that byte.
    by_first: Vec<Vec<usize>>,
    /// All of them at once; `None`: there are none, or too many for it.
    plain: Option<AhoCorasick>,
    bytes: Bytes,
}

/// Which bytes the needles have.
#[derive(Clone)]
struct Bytes {
    anywhere: [bool; 256],
    /// At the beginning, in any of its spellings.
    first: [bool; 256],
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
        let plain = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&needles)
            .ok()
            .filter(|_| !needles.is_empty());
        let mut by_first = vec![Vec::new(); 256];
        for (at, needle) in needles.iter().enumerate() {
            by_first[usize::from(needle[0])].push(at);
        }
        Self {
            bytes: Bytes::of(&needles),
            by_first,
            plain,
            needles,
        }
    }

    /// How far beyond a cut bytes must be read for a secret there to be scrubbed whole.
    pub fn longest(&self) -> usize {
        self.needles
            .first()
            .map_or(0, |needle| needle.len() * LONGEST_ESCAPE)
    }

    pub fn scrub(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.scrubbed(Cow::Owned(bytes)).into_owned()
    }

    /// Copies nothing where there is nothing to replace.
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

    /// Where secrets stand, in order and apart; of those that begin at one place the longest.
    fn found(&self, text: &[u8]) -> Vec<Range<usize>> {
        if self.needles.is_empty() {
            return Vec::new();
        }
        if let Some(plain) = &self.plain
            && !self.bytes.escaped_in(text)
        {
            return plain.find_iter(text).map(|it| it.range()).collect();
        }
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let begins = self.bytes.first[usize::from(text[at])];
            match begins.then(|| self.longest_at(&text[at..])).flatten() {
                Some(length) => {
                    found.push(at..at + length);
                    at += length;
                }
                None => at += 1,
            }
        }
        found
    }

    pub fn scrub_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scrub(text.as_bytes().to_vec())).into_owned()
    }

    fn longest_at(&self, text: &[u8]) -> Option<usize> {
        match text[0] {
            // May say any byte.
            b'%' | b'\\' | b'+' => self.needles.iter().find_map(|it| matched(text, it)),
            byte => {
                let begin = self.by_first[usize::from(byte)].iter();
                begin
                    .copied()
                    .find_map(|at| matched(text, &self.needles[at]))
            }
        }
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} forms)", self.needles.len())
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            anywhere: [false; 256],
            first: [false; 256],
        }
    }
}

impl Bytes {
    fn of(needles: &[Vec<u8>]) -> Self {
        let mut bytes = Self::default();
        for needle in needles {
            bytes.first[usize::from(needle[0])] = true;
            for byte in needle {
                bytes.anywhere[usize::from(*byte)] = true;
            }
        }
        for escape in [b'%', b'\\', b'+'] {
            bytes.first[usize::from(escape)] = true;
        }
        bytes
    }

    /// Whether the text has an escape that could say a byte of a needle. Errs towards yes.
    fn escaped_in(&self, text: &[u8]) -> bool {
        let has = |byte: u8| self.anywhere[usize::from(byte)];
        if has(b' ') && memchr::memchr(b'+', text).is_some() {
            return true;
        }
        memchr::memchr2_iter(b'%', b'\\', text).any(|at| match text[at] {
            b'%' => hex(text.get(at + 1..at + 3))
                .is_some_and(|byte| byte == u32::from(b'%') || self.has_code(byte)),
            _ if has(b'\\') => true,
            _ => match text.get(at + 1) {
                // Of a run of backslashes the last one decides.
                Some(b'\\') | None => false,
                Some(b'u') => hex(text.get(at + 2..at + 6)).is_some_and(|code| self.has_code(code)),
                Some(b'n') => has(b'\n'),
                Some(b'r') => has(b'\r'),
                Some(b't') => has(b'\t'),
                Some(letter) => has(*letter),
            },
        })
    }

    /// A character beyond ASCII stands for all of them.
    fn has_code(&self, code: u32) -> bool {
        match u8::try_from(code) {
            Ok(byte) if byte.is_ascii() => self.anywhere[usize::from(byte)],
            Ok(_) | Err(_) => self.anywhere[128..].contains(&true),
        }
    }
}

fn hex(digits: Option<&[u8]>) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits?).ok()?, 16).ok()
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
