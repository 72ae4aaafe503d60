//! One line of the record as the collector gets it: a text without bodies, and its place in the chain.
//!
//! With arguments the text is the line's short form, whose hash proves it. Without them the text has
//! `chain` and `seq` and no `prev`, so that nobody takes it for a line that the hash covers; the hash of
//! the whole line stands beside it.
//!
//! Invariants: bodies of requests and responses are never in the text; without arguments, a line that
//! this release does not know is sent as its kind and its place alone.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use toolcrib_record::{Digest, Line, Link, LinkKind, short_form};

/// Whether arguments and results of calls are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    Exported,
    Removed,
}

/// A line for the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedLine {
    pub text: String,
    pub kind: String,
    /// The time in the line. `gap` lines have none.
    pub time: Option<Timestamp>,
    pub arguments: Arguments,
    /// `None`: the line is in no chain.
    pub place: Option<Place>,
}

/// The place of a line in its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub chain: String,
    pub kind: LinkKind,
    pub prev: Digest,
    pub hash: Digest,
}

impl Place {
    fn of(link: &Link<'_>) -> Self {
        Self {
            chain: link.chain.clone().into_owned(),
            kind: link.kind,
            prev: link.prev,
            hash: link.digest,
        }
    }
}

impl ExportedLine {
    /// Reads a line of the record. `None`: it is none, such as half a line of a killed process, and
    /// could hold anything.
    pub fn of(line: &[u8], arguments: Arguments) -> Option<Self> {
        let link = short_form(line);
        let kind = Line::kind(line).ok()?.into_owned();
        let time = time(line);
        let text = match (&link, arguments) {
            (Some(link), Arguments::Exported) => {
                let covered = std::str::from_utf8(link.covered).ok()?;
                format!("{covered}}}")
            }
            // Written anew, a line has no bodies.
            (None, Arguments::Exported) => written(Line::parse(line).ok()?),
            (None, Arguments::Removed) => written(Line::parse(line).ok()?.without_arguments()),
            (Some(link), Arguments::Removed) => match Line::parse(line) {
                Ok(read) => written(read.without_arguments()),
                Err(_) => envelope(&kind, link),
            },
        };
        Some(Self {
            text,
            kind,
            time,
            arguments,
            place: link.as_ref().map(Place::of),
        })
    }

    /// The number of lines of the record that the collector does not get.
    pub fn gap(lines: u64) -> Self {
        Self {
            text: format!(r#"{{"kind":"gap","lines":{lines}}}"#),
            kind: "gap".to_owned(),
            time: None,
            arguments: Arguments::Exported,
            place: None,
        }
    }
}

fn written(line: Line<'_>) -> String {
    serde_json::to_string(&line).expect("texts, numbers and raw JSON always serialize")
}

/// A line of a kind that this release does not know, or without a field that it needs.
fn envelope(kind: &str, link: &Link<'_>) -> String {
    let members = match link.kind {
        LinkKind::Chained { seq, aside: _ } => {
            serde_json::json!({"kind": kind, "chain": link.chain, "seq": seq})
        }
        LinkKind::Aside { after } => {
            serde_json::json!({"kind": kind, "chain": link.chain, "after": after})
        }
    };
    members.to_string()
}

fn time(line: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Time<'a> {
        #[serde(borrow)]
        timestamp: Cow<'a, str>,
    }
    let read: Time<'_> = serde_json::from_slice(line).ok()?;
    read.timestamp.parse().ok()
}

#[cfg(test)]
mod tests {
    use toolcrib_record::{Chain, REMOVED};

    use super::*;

    const INTENT: &str = r#"{"kind":"intent","request_id":"r1","agent_id":"otter","pod":"otter-0","timestamp":"2026-11-27T08:00:00Z","round":1,"name":"desk.quote","arguments":{"iban":"DE00"},"service":"desk","tier":"ReadOnly","read_only":true}"#;

    fn sealed(line: &str) -> (Vec<u8>, Digest) {
        let mut line = line.as_bytes().to_vec();
        let digest = Chain::new("c0ffee".into()).seal(&mut line);
        (line, digest)
    }

    fn with_bodies(mut line: Vec<u8>) -> Vec<u8> {
        line.pop();
        line.extend_from_slice(br#","request":{"text":"a prompt"},"response":["an answer"]}"#);
        line
    }

    #[test]
    fn the_text_of_a_line_is_what_its_hash_covers() {
        let (line, digest) = sealed(INTENT);
        let exported = ExportedLine::of(&with_bodies(line.clone()), Arguments::Exported).unwrap();
        assert_eq!(exported.text.as_bytes(), line);
        assert_eq!(short_form(exported.text.as_bytes()).unwrap().digest, digest);
        assert_eq!(
            (&*exported.kind, exported.place.unwrap().hash),
            ("intent", digest)
        );
        assert_eq!(exported.time, Some("2026-11-27T08:00:00Z".parse().unwrap()));
    }

    #[test]
    fn without_arguments_the_hash_stands_beside_the_text() {
        let (line, digest) = sealed(INTENT);
        let exported = ExportedLine::of(&with_bodies(line), Arguments::Removed).unwrap();
        assert!(exported.text.contains(REMOVED), "{}", exported.text);
        for absent in ["DE00", "prompt", "answer", "prev"] {
            assert!(!exported.text.contains(absent), "{}", exported.text);
        }
        assert!(exported.text.ends_with(r#","chain":"c0ffee","seq":0}"#));
        let place = exported.place.unwrap();
        assert_eq!((place.hash, place.prev), (digest, Digest::NONE));
    }

    #[test]
    fn a_line_of_another_release_has_no_bodies_and_an_unknown_one_no_members() {
        // Without a chain.
        let old = with_bodies(INTENT.as_bytes().to_vec());
        let exported = ExportedLine::of(&old, Arguments::Exported).unwrap();
        assert_eq!((&*exported.text, exported.place), (INTENT, None));
        // This release knows no such kind, and no intent without its members.
        for line in [
            r#"{"kind":"tomorrow","timestamp":"x","pins":"DE00"}"#,
            r#"{"kind":"intent","pins":"DE00"}"#,
        ] {
            let exported = ExportedLine::of(&sealed(line).0, Arguments::Removed).unwrap();
            let kind = &exported.kind;
            let envelope = format!(r#"{{"chain":"c0ffee","kind":"{kind}","seq":0}}"#);
            assert_eq!(exported.text, envelope);
            let (line, _) = sealed(line);
            let exported = ExportedLine::of(&line, Arguments::Exported).unwrap();
            assert_eq!(exported.text.as_bytes(), line);
        }
        for torn in [
            &br#"{"kind":"turn","request":"a pro"#[..],
            b"",
            b"[1]",
            b"{\"level\":1}",
        ] {
            assert_eq!(ExportedLine::of(torn, Arguments::Exported), None);
        }
    }
}
