//! The chain over the lines of one process.
//!
//! Each line ends in members that the writer adds: the `chain`, its `seq`, and `prev`, the SHA-256 of
//! the line before it. A hash covers a line without its bodies: all bytes up to the end of `prev`,
//! and the closing brace. These bytes are the same on disk and on standard output.
//!
//! `model_call` lines are outside the chain, since standard output does not have them. Instead of a
//! `seq` they have `after`, the `seq` of the line before them, and the next line of the chain has the
//! hash of the last of them in `aside`. So the file and standard output can each be verified alone.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a line. Its text is lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The `prev` of the first line of a chain.
    pub const NONE: Digest = Digest([0; 32]);

    fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Returns lower-case hexadecimal.
    fn text(&self) -> [u8; 64] {
        let mut text = [0; 64];
        hex::encode_to_slice(self.0, &mut text).expect("32 bytes are 64 digits");
        text
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        // Lower case only, because other programs compare digests as text.
        text.bytes()
            .all(|byte| !byte.is_ascii_uppercase())
            .then_some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no SHA-256 in lower case"))
    }
}

/// Position and hash of a line of a chain. A copy that is kept elsewhere proves that this line and
/// the lines before it are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    pub chain: String,
    pub seq: u64,
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub hash: Digest,
    /// Hash of the last `model_call` line after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub aside: Option<Digest>,
}

/// The chain of one writer.
#[derive(Debug)]
pub struct Chain {
    id: String,
    next: u64,
    last: Digest,
    aside: Option<Digest>,
}

impl Chain {
    /// `id`: random, so that no two processes have the same one.
    pub fn new(id: String) -> Self {
        Self {
            id,
            next: 0,
            last: Digest::NONE,
            aside: None,
        }
    }

    /// Adds the members of the chain to a line: a JSON object with a member, without white space at
    /// its end. The line is in the chain once [`Self::advance`] is called with the result.
    pub fn seal(&self, line: &mut Vec<u8>) -> Digest {
        self.begin(line, br#""seq":"#, self.next);
        if let Some(aside) = &self.aside {
            line.extend_from_slice(br#","aside":""#);
            line.extend_from_slice(&aside.text());
            line.push(b'"');
        }
        end(line, self.last)
    }

    /// Returns the last line of the chain; `None` before the first one.
    pub fn head(&self) -> Option<Head> {
        Some(Head {
            chain: self.id.clone(),
            seq: self.next.checked_sub(1)?,
            hash: self.last,
            aside: None,
        })
    }

    /// Advances past a line of [`Self::seal`] that disk or stdout has accepted.
    pub fn advance(&mut self, sealed: Digest) {
        self.next += 1;
        self.last = sealed;
        self.aside = None;
    }

    /// Adds the chain's members to a line that is not part of the chain (`model_call`). Call it only
    /// after the chain's first line.
    pub fn seal_aside(&self, line: &mut Vec<u8>) -> Digest {
        self.begin(line, br#""after":"#, self.next.saturating_sub(1));
        end(line, self.aside.unwrap_or(self.last))
    }

    pub fn advance_aside(&mut self, sealed: Digest) {
        self.aside = Some(sealed);
    }

    /// Adds the chain's id and `number`, whose key with its colon is `key`.
    fn begin(&self, line: &mut Vec<u8>, key: &[u8], number: u64) {
        debug_assert_eq!(line.last(), Some(&b'}'), "a line is a JSON object");
        line.pop();
        line.extend_from_slice(br#","chain":""#);
        line.extend_from_slice(self.id.as_bytes());
        line.extend_from_slice(br#"","#);
        line.extend_from_slice(key);
        line.extend_from_slice(number.to_string().as_bytes());
    }
}

/// Adds the last member of the chain, and returns the line's hash.
fn end(line: &mut Vec<u8>, prev: Digest) -> Digest {
    line.extend_from_slice(br#","prev":""#);
    line.extend_from_slice(&prev.text());
    line.extend_from_slice(br#""}"#);
    Digest::of(&[line])
}

/// The place of a line in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    pub chain: Cow<'a, str>,
    pub kind: LinkKind,
    pub prev: Digest,
    /// Hash of the line itself.
    pub digest: Digest,
    /// The line without its bodies: the bytes that the hash covers, but for the closing brace.
    pub covered: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A line of the chain, with the hash of the last `model_call` line before it.
    Chained { seq: u64, aside: Option<Digest> },
    /// A `model_call` line.
    Aside { after: u64 },
}

/// Reads the place of a line, and hashes the line without its bodies. `None`: the text has no members
/// of a chain, or has other members than bodies after them.
pub fn short_form(line: &[u8]) -> Option<Link<'_>> {
    let members: Members<'_> = serde_json::from_slice(line).ok()?;
    if members.is_ambiguous {
        return None;
    }
    let prev: &RawValue = members.prev?;
    let end = prev.get().as_ptr() as usize + prev.get().len() - line.as_ptr() as usize;
    let text = |raw: &'_ RawValue| serde_json::from_str::<Digest>(raw.get()).ok();
    let number = |raw: &RawValue| raw.get().parse::<u64>().ok();
    let kind = match (members.seq, members.after) {
        (Some(seq), None) => LinkKind::Chained {
            seq: number(seq)?,
            aside: match members.aside {
                Some(aside) => Some(text(aside)?),
                None => None,
            },
        },
        (None, Some(after)) => LinkKind::Aside {
            after: number(after)?,
        },
        (None, None) | (Some(_), Some(_)) => return None,
    };
    let covered = line.get(..end)?;
    Some(Link {
        chain: serde_json::from_str(members.chain?.get())
            .ok()
            .map(|Text(text)| text)?,
        kind,
        prev: text(prev)?,
        digest: Digest::of(&[covered, b"}"]),
        covered,
    })
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The members of a chain, each with its place in the line.
#[derive(Default)]
struct Members<'a> {
    chain: Option<&'a RawValue>,
    seq: Option<&'a RawValue>,
    after: Option<&'a RawValue>,
    aside: Option<&'a RawValue>,
    prev: Option<&'a RawValue>,
    /// A member of the chain is repeated, or a member other than a body follows `prev`.
    is_ambiguous: bool,
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Top;
        impl<'de> Visitor<'de> for Top {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                let mut bodies = [false; 2];
                while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
                    let place = match &*key {
                        "chain" => &mut members.chain,
                        "seq" => &mut members.seq,
                        "after" => &mut members.after,
                        "aside" => &mut members.aside,
                        "prev" => &mut members.prev,
                        other => {
                            if members.prev.is_some() {
                                let body =
                                    ["request", "response"].iter().position(|it| *it == other);
                                let is_new = body
                                    .is_some_and(|at| !std::mem::replace(&mut bodies[at], true));
                                members.is_ambiguous |= !is_new;
                            }
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    // `prev` is the last member that the hash covers.
                    let is_twice = place.replace(map.next_value()?).is_some();
                    members.is_ambiguous |= is_twice || (members.prev.is_some() && key != "prev");
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_has_the_same_hash_with_and_without_bodies() {
        let mut chain = Chain::new("c0ffee".into());
        let mut first = br#"{"kind":"start"}"#.to_vec();
        let hash = chain.seal(&mut first);
        assert_eq!(
            String::from_utf8(first.clone()).unwrap(),
            format!(
                r#"{{"kind":"start","chain":"c0ffee","seq":0,"prev":"{}"}}"#,
                Digest::NONE
            )
        );
        chain.advance(hash);
        let mut aside = br#"{"kind":"model_call"}"#.to_vec();
        let beside = chain.seal_aside(&mut aside);
        chain.advance_aside(beside);
        let mut turn = br#"{"kind":"turn"}"#.to_vec();
        let last = chain.seal(&mut turn);
        let mut with_bodies = turn.clone();
        with_bodies.pop();
        with_bodies.extend_from_slice(br#","request":{"prev":1},"response":[2]}"#);
        for line in [&turn, &with_bodies] {
            let link = short_form(line).unwrap();
            assert_eq!((link.digest, link.prev), (last, hash));
            assert_eq!([link.covered, b"}"].concat(), turn);
            let aside = Some(beside);
            assert_eq!(link.kind, LinkKind::Chained { seq: 1, aside });
        }
        let link = short_form(&aside).unwrap();
        assert_eq!((link.kind, link.prev), (LinkKind::Aside { after: 0 }, hash));
    }

    /// Members after `prev` are not covered by the hash, so only bodies may be there.
    #[test]
    fn nothing_but_bodies_may_follow_the_chain() {
        let chain = Chain::new("c".into());
        let mut line = br#"{"kind":"turn"}"#.to_vec();
        chain.seal(&mut line);
        line.pop();
        for (added, fine) in [
            ("", true),
            (r#","request":1"#, true),
            (r#","http_status":200"#, false),
            (r#","request":1,"request":2"#, false),
            (r#","seq":7"#, false),
            (r#","prev":"00""#, false),
        ] {
            let text = [line.as_slice(), added.as_bytes(), b"}"].concat();
            assert_eq!(short_form(&text).is_some(), fine, "{added}");
        }
        assert_eq!(short_form(br#"{"kind":"turn"}"#), None);
        assert_eq!(short_form(b"{"), None);
    }
}
