//! The tools of earlier requests.
//!
//! A runner sends the same tools with each request, often as much text as its history. Tools that were
//! checked once are only compared afterwards. Invariant: a list that is known was checked, for the same
//! dialect, byte for byte.

use std::collections::VecDeque;

use crate::Dialect;

/// Most lists. Most runners send one; those with sub-agents send a few.
const MOST: usize = 4;
/// Most bytes of a list that is remembered.
const MAX_BYTES: usize = 64 * 1024;

/// Lists of tools that passed the checks of [`crate::Request::decode`], the latest first.
#[derive(Debug, Default)]
pub struct KnownTools(VecDeque<KnownList>);

#[derive(Debug)]
struct KnownList {
    dialect: Dialect,
    /// The JSON text of the member `tools`.
    sent: String,
    names: Vec<String>,
}

impl KnownTools {
    /// Returns the names of a list that is known.
    pub(crate) fn names(&self, dialect: Dialect, sent: &str) -> Option<Vec<String>> {
        let mut known = self.0.iter();
        let found = known.find(|it| it.dialect == dialect && it.sent == sent)?;
        Some(found.names.clone())
    }

    /// Remembers a list that was checked.
    pub(crate) fn remember(&mut self, dialect: Dialect, sent: Option<&str>, names: &[String]) {
        let Some(sent) = sent.filter(|sent| sent.len() <= MAX_BYTES) else {
            return;
        };
        self.0.truncate(MOST - 1);
        self.0.push_front(KnownList {
            dialect,
            sent: sent.to_owned(),
            names: names.to_vec(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    fn body(tools: &str) -> Vec<u8> {
        format!(r#"{{"model":"m","messages":[],"tools":{tools}}}"#).into_bytes()
    }

    fn tool(name: &str) -> String {
        format!(r#"[{{"type":"function","function":{{"name":"{name}"}}}}]"#)
    }

    #[test]
    fn known_tools_give_the_same_request() {
        let mut known = KnownTools::default();
        for name in ["a", "b", "a", "c", "d", "e", "a"] {
            let body = body(&tool(name));
            let fresh = Request::decode(Dialect::OpenaiChat, body.clone()).unwrap();
            let decoded = Request::decode_or_return(Dialect::OpenaiChat, body, &mut known);
            assert_eq!(decoded.as_ref(), Ok(&fresh));
            assert!(known.0.len() <= MOST);
        }
        assert_eq!(
            known.names(Dialect::OpenaiChat, &tool("a")),
            Some(vec!["a".to_owned()])
        );
        // The checks of another dialect are others.
        assert_eq!(known.names(Dialect::OpenaiResponses, &tool("a")), None);
    }

    #[test]
    fn refused_tools_do_not_become_known() {
        let mut known = KnownTools::default();
        for tools in [
            r#"[{"TYPE":"function","function":{"name":"a"}}]"#,
            r#"[{"type":"function","type":"custom","function":{"name":"a"}}]"#,
            r#"[{"type":"function","function":{}}]"#,
            r#"{"type":"function"}"#,
        ] {
            for _ in 0..2 {
                let decoded =
                    Request::decode_or_return(Dialect::OpenaiChat, body(tools), &mut known);
                let undecoded = decoded.unwrap_err();
                assert_eq!(undecoded.body, body(tools), "{tools}");
            }
        }
        assert!(known.0.is_empty());
        let long = tool(&"x".repeat(MAX_BYTES));
        Request::decode_or_return(Dialect::OpenaiChat, body(&long), &mut known).unwrap();
        assert!(known.0.is_empty());
    }
}
