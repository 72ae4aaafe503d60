//! Removes known secrets from JSON text, which stays JSON.
//!
//! A secret within a string becomes the mark. A value of another kind that contains a secret (a
//! secret can be a bare number), or a string that would become invalid, is replaced by a string of
//! the mark alone. A secret that spans several values replaces all of them; brackets, colons and
//! commas stay, because they reveal nothing.

use std::borrow::Cow;
use std::ops::Range;

use toolcrib_bounds::json::{is_structure, token};
use toolcrib_dialect::json;

use super::{MARK, Scrubber};

impl Scrubber {
    /// Like [`Scrubber::scrubbed`], for text that is JSON or the beginning of JSON.
    pub fn scrubbed_json<'b>(&self, text: Cow<'b, [u8]>) -> Cow<'b, [u8]> {
        let found = self.found(&text);
        if found.is_empty() {
            return text;
        }
        let mut out = Vec::with_capacity(text.len() + MARK.len());
        let (mut at, mut next) = (0, 0);
        while let Some(token) = token(&text, at) {
            at = token.end;
            while found.get(next).is_some_and(|it| it.end <= token.start) {
                next += 1;
            }
            let within: Vec<_> = found[next..]
                .iter()
                .take_while(|it| it.start < token.end)
                .cloned()
                .collect();
            write(&text, token, &within, &mut out);
        }
        Cow::Owned(out)
    }
}

fn write(text: &[u8], token: Range<usize>, found: &[Range<usize>], out: &mut Vec<u8>) {
    let written = &text[token.clone()];
    if found.is_empty() || is_structure(written[0]) {
        out.extend_from_slice(written);
        return;
    }
    let contents = token.start + 1..token.end - 1;
    let inside = |it: &Range<usize>| contents.start <= it.start && it.end <= contents.end;
    if written[0] == b'"' && found.iter().all(inside) {
        let mut marked = Vec::with_capacity(written.len() + MARK.len());
        let mut kept = token.start;
        for it in found {
            marked.extend_from_slice(&text[kept..it.start]);
            marked.extend_from_slice(MARK);
            kept = it.end;
        }
        marked.extend_from_slice(&text[kept..token.end]);
        // A secret can begin within an escape, half of which would stay.
        if std::str::from_utf8(&marked).is_ok_and(|text| json::checked(text).is_some()) {
            out.extend_from_slice(&marked);
            return;
        }
    }
    out.push(b'"');
    out.extend_from_slice(MARK);
    out.push(b'"');
}
