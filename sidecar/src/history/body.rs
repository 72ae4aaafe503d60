//! A body for the record: whole if it is short, else its two ends with the length and digest of
//! the whole body.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use toolcrib_dialect::json;
use toolcrib_mediation::Scrubber;

/// Most bytes of one body in a line.
pub const MAX_BODY: usize = 1024 * 1024;
/// Bytes of each end of a longer body.
const END: usize = 32 * 1024;
/// Bytes in memory of each end: a secret that straddles the cut is scrubbed whole, and then the
/// part that may hold half a secret is cut off.
const HELD: usize = 2 * END;

/// The bytes of a body, as they arrived.
#[derive(Debug, Default)]
pub struct RecordBody {
    /// The whole body, or its first [`HELD`] bytes.
    head: Vec<u8>,
    cut: Option<CutBody>,
}

#[derive(Debug)]
struct CutBody {
    /// Length of the whole body.
    length: u64,
    digest: Sha256,
    /// At least the last [`HELD`] bytes.
    tail: Vec<u8>,
}

impl RecordBody {
    pub fn of(bytes: &[u8]) -> Self {
        let mut kept = Self::default();
        kept.push(bytes);
        kept
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(cut) = &mut self.cut {
            return cut.push(bytes);
        }
        if self.head.len() + bytes.len() <= MAX_BODY {
            return self.head.extend_from_slice(bytes);
        }
        let mut cut = CutBody {
            length: 0,
            digest: Sha256::new(),
            tail: Vec::new(),
        };
        cut.push(&self.head);
        cut.push(bytes);
        let missing = HELD.saturating_sub(self.head.len());
        self.head
            .extend_from_slice(&bytes[..bytes.len().min(missing)]);
        self.head.truncate(HELD);
        self.head.shrink_to_fit();
        self.cut = Some(cut);
    }

    /// The whole body; `None`: it was too long.
    pub fn whole(&self) -> Option<&[u8]> {
        self.cut.is_none().then_some(self.head.as_slice())
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The body, or its two ends, as one JSON value. `None`: there is no body.
    pub(super) fn json(&self, scrubber: &Scrubber) -> Option<Cow<'_, str>> {
        let Some(cut) = &self.cut else {
            return whole(&self.head);
        };
        // Only a rare encoding of a secret is longer than half of the bytes in memory.
        let margin = scrubber.longest().min(HELD - END);
        let tail = &cut.tail[cut.tail.len().saturating_sub(END + margin)..];
        let mut first = scrubber.scrub(self.head[..END + margin].to_vec());
        first.truncate(first.len().saturating_sub(margin));
        let last = scrubber.scrub(tail.to_vec());
        let last = &last[margin.min(last.len())..];
        let quoted = |bytes: &[u8]| json::quote(&String::from_utf8_lossy(bytes));
        let members = [
            ("bytes", cut.length.to_string()),
            ("omitted_bytes", (cut.length - 2 * END as u64).to_string()),
            (
                "sha256",
                quoted(hex::encode(cut.digest.clone().finalize()).as_bytes()),
            ),
            ("first", quoted(&first)),
            ("last", quoted(last)),
        ];
        Some(json::object(&members).into())
    }
}

impl CutBody {
    fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.digest.update(bytes);
        let new = &bytes[bytes.len().saturating_sub(HELD)..];
        // Bytes are moved at most once per `HELD` new ones.
        if self.tail.len() + new.len() > 2 * HELD {
            let left = HELD.saturating_sub(new.len()).min(self.tail.len());
            self.tail.drain(..self.tail.len() - left);
        }
        self.tail.extend_from_slice(new);
    }
}

/// Returns JSON unchanged, and other text as a JSON string.
pub(super) fn whole(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    Some(match json::checked(&text) {
        Some(_) => text,
        None => json::quote(&text).into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn json(kept: &RecordBody) -> Option<Value> {
        let text = kept.json(&Scrubber::default())?;
        Some(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_short_body_is_its_json_or_its_text() {
        let check = |bytes: &[u8], written: Option<&str>| {
            let kept = RecordBody::of(bytes);
            let text = kept.json(&Scrubber::default());
            assert_eq!(text.as_deref(), written);
            assert_eq!(kept.whole(), Some(bytes));
        };
        check(b"", None);
        check(b"{\"a\":1.50}", Some("{\"a\":1.50}"));
        check(b"data: 1\n\n", Some(r#""data: 1\n\n""#));
        check(b"\xff", Some("\"\u{fffd}\""));
    }

    /// A runner could hide text behind or before long blanks.
    #[test]
    fn a_long_body_keeps_both_ends_with_its_length_and_digest() {
        let blanks = " ".repeat(2 * MAX_BODY);
        let text = format!("{{\"begin\":1,{blanks}\"end\":2}}");
        for size in [1000, 64 * 1024 + 1, text.len()] {
            let mut kept = RecordBody::default();
            text.as_bytes().chunks(size).for_each(|it| kept.push(it));
            assert_eq!(kept.whole(), None);
            let said = json(&kept).unwrap();
            assert_eq!(said["bytes"], text.len());
            assert_eq!(said["omitted_bytes"], text.len() - 2 * END);
            assert_eq!(said["sha256"], hex::encode(Sha256::digest(&text)));
            assert_eq!(said["first"], text[..END]);
            assert_eq!(said["last"], text[text.len() - END..]);
            let held = kept.head.capacity() + kept.cut.unwrap().tail.capacity();
            assert!(held <= 6 * HELD, "{held}");
        }
    }

    #[test]
    fn a_secret_across_a_cut_leaves_no_half() {
        let scrubber = Scrubber::new(["sekrit-token"]);
        for before in END - 12..=END {
            let blanks = vec![b' '; 2 * MAX_BODY];
            let text = [
                &blanks[..before],
                b"sekrit-token",
                &blanks,
                b"sekrit-token",
                &blanks[..before],
            ];
            let kept = RecordBody::of(&text.concat());
            let said = kept.json(&scrubber).unwrap();
            assert!(!said.contains("sek") && !said.contains("ken"), "{before}");
        }
    }
}
