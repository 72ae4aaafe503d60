//! Recognizes a model's replies in the history of a request, by their content.
//!
//! A runner repeats its whole history in each request, so nearly all of its replies were looked at
//! for an earlier request. [`ReplyKeys`] finds their keys by a hash of their text, which takes much
//! less time than to decode them.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use toolcrib_bounds::digest::Parts;
use toolcrib_dialect::{
    Dialect, DialectError, HistoryItem, HistoryPart, Request, history_item, may_be_reply,
};

/// Most entries of a generation. Few histories have as many replies.
const MOST: usize = 1024;

/// The keys of replies that were looked at before. A text is known by a hash of 64 bits with a seed of
/// this process, so two texts practically never have the same one. If they had, a conversation could lack
/// its hidden rounds.
#[derive(Debug, Default)]
pub(super) struct ReplyKeys {
    hasher: RandomState,
    /// Whether an item is part of a reply, by the hash of its text.
    in_reply: Recent<bool>,
    /// Keys of replies, by the hash of their items' hashes.
    keys: Recent<String>,
}

/// Entries of two generations. When the younger one is full, the older one is dropped.
#[derive(Debug)]
struct Recent<T> {
    younger: HashMap<u64, T>,
    older: HashMap<u64, T>,
}

impl ReplyKeys {
    /// Returns true if `is_known` holds for the key of a reply in the history.
    pub(super) fn any(
        &mut self,
        request: &Request,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<bool, DialectError> {
        let dialect = request.dialect();
        let items: Vec<&str> = request.history().collect();
        // The hash of an item that is part of a reply.
        let hashes: Vec<Option<u64>> = items
            .iter()
            .map(|item| self.hash(dialect, item))
            .collect::<Result<_, _>>()?;
        let mut at = 0;
        while at < items.len() {
            let own = leading(dialect, &hashes[at..], Option::is_some);
            if own > 0 {
                let reply = at..at + own;
                let key = self.key(dialect, &items[reply.clone()], &hashes[reply])?;
                if is_known(key) {
                    return Ok(true);
                }
            }
            at += own.max(1);
        }
        Ok(false)
    }

    /// Returns the hash of an item that is part of a reply.
    fn hash(&mut self, dialect: Dialect, item: &str) -> Result<Option<u64>, DialectError> {
        if !may_be_reply(dialect, item) {
            return Ok(None);
        }
        let hash = self.hasher.hash_one((dialect.name(), item));
        let read = || history_item(dialect, item).map(|item| is_in_reply(&item));
        let is_in_reply = *self.in_reply.get_or_insert(hash, read)?;
        Ok(is_in_reply.then_some(hash))
    }

    fn key(
        &mut self,
        dialect: Dialect,
        items: &[&str],
        hashes: &[Option<u64>],
    ) -> Result<&str, DialectError> {
        let read = || {
            let items: Vec<HistoryItem> = items
                .iter()
                .map(|item| history_item(dialect, item))
                .collect::<Result<_, _>>()?;
            Ok(key(dialect, &[], &items))
        };
        let hash = self.hasher.hash_one(hashes);
        self.keys.get_or_insert(hash, read).map(String::as_str)
    }
}

impl<T> Recent<T> {
    fn get_or_insert<E>(
        &mut self,
        hash: u64,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        if !self.younger.contains_key(&hash) {
            let value = match self.older.remove(&hash) {
                Some(value) => value,
                None => make()?,
            };
            if self.younger.len() == MOST {
                self.older = std::mem::take(&mut self.younger);
            }
            self.younger.insert(hash, value);
        }
        Ok(&self.younger[&hash])
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            younger: HashMap::new(),
            older: HashMap::new(),
        }
    }
}

/// Returns the key of a reply after the items that `before` is the hash of; nothing: of the reply alone.
pub(super) fn key(dialect: Dialect, before: &[u8], reply: &[HistoryItem]) -> String {
    let mut parts = Parts::default();
    parts.push_fixed(dialect.name());
    parts.push_fixed(before);
    for item in reply {
        push_item(item, &mut parts);
    }
    hex::encode(parts.digest())
}

/// Counts the items, from the first, that form one reply of the model.
pub(super) fn reply_length(dialect: Dialect, items: &[HistoryItem]) -> usize {
    leading(dialect, items, is_in_reply)
}

fn is_in_reply(item: &HistoryItem) -> bool {
    item.role == "assistant"
}

/// Counts the leading items that satisfy `test`, at most as many as one reply can have.
fn leading<T>(dialect: Dialect, items: &[T], test: impl Fn(&T) -> bool) -> usize {
    let longest = match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => 1,
        Dialect::OpenaiResponses => items.len(),
    };
    let items = items.iter().take(longest);
    items.take_while(|item| test(item)).count()
}

/// Adds the content of an item to the hash, unambiguously. System messages are left out, because
/// runners write the time of day into them.
pub(super) fn push_item(item: &HistoryItem, parts: &mut Parts) {
    if matches!(item.role.as_str(), "system" | "developer") {
        return;
    }
    // Reasoning as an item of its own; runners may leave it out.
    if item.role == "assistant" && item.parts.is_empty() {
        return;
    }
    let mut write = |kind: u8, texts: &[&str]| {
        parts.push_fixed([kind]);
        texts.iter().for_each(|text| parts.push(text));
    };
    write(b'r', &[&item.role]);
    for part in &item.parts {
        match part {
            HistoryPart::Text(text) => write(b't', &[text]),
            HistoryPart::Call {
                id,
                name,
                arguments,
            } => write(b'c', &[&plain_id(id), name, arguments]),
            HistoryPart::Result { call_id, content } => {
                write(b'o', &[&plain_id(call_id), content]);
            }
            HistoryPart::Other(json) => write(b'x', &[json]),
        }
    }
}

/// Returns the letters and digits of a call's id. Some runners drop the others, which not every
/// provider accepts.
fn plain_id(id: &str) -> String {
    id.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mediators of other releases wrote the keys in `continuity.jsonl`.
    #[test]
    fn continuity_keys_match_existing_files() {
        let item = |role: &str, parts: Vec<HistoryPart>| HistoryItem {
            role: role.to_string(),
            parts,
        };
        let call = HistoryPart::Call {
            id: "c1".to_string(),
            name: "pond.list".to_string(),
            arguments: "{}".to_string(),
        };
        let result = HistoryPart::Result {
            call_id: "c1".to_string(),
            content: "7".to_string(),
        };
        let mut before = Parts::default();
        for item in [
            item("system", vec![HistoryPart::Text("noon".to_string())]),
            item("user", vec![HistoryPart::Text("hi".to_string())]),
            item("assistant", Vec::new()),
        ] {
            push_item(&item, &mut before);
        }
        let reply = [
            item("assistant", vec![call]),
            item("tool", vec![result, HistoryPart::Other("[]".to_string())]),
        ];
        assert_eq!(
            key(Dialect::AnthropicMessages, &before.digest(), &reply),
            "3fbd5175045f7290036498f672f59ba35198fbbc562c3c7e2b63702858327c53"
        );
    }

    /// Returns a chat of this many replies, from this number on.
    fn chat(replies: std::ops::Range<usize>) -> Request {
        let reply = |at| format!(r#"{{"role":"assistant","content":"reply {at}"}}"#);
        let messages: Vec<String> = replies.map(reply).collect();
        let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
        Request::decode(Dialect::OpenaiChat, body.into_bytes()).unwrap()
    }

    /// Returns the keys that a search looks up.
    fn looked_up(keys: &mut ReplyKeys, request: &Request) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        let is_known = |key: &str| {
            found.borrow_mut().push(key.to_owned());
            false
        };
        assert!(!keys.any(request, is_known).unwrap());
        found.into_inner()
    }

    #[test]
    fn a_history_has_the_same_keys_when_it_is_sent_again() {
        let mut keys = ReplyKeys::default();
        for replies in [0..3, 0..5, 2..3 * MOST, 0..5] {
            let request = chat(replies);
            let items = request.history().map(|item| {
                let item = history_item(Dialect::OpenaiChat, item).unwrap();
                key(Dialect::OpenaiChat, &[], &[item])
            });
            let expected: Vec<String> = items.collect();
            assert_eq!(looked_up(&mut keys, &request), expected);
            assert_eq!(looked_up(&mut keys, &request), expected);
            let kept = keys.keys.younger.len() + keys.keys.older.len();
            assert!(kept <= 2 * MOST, "{kept}");
        }
    }

    #[test]
    fn texts_that_look_like_replies_have_no_key() {
        let body = br#"{"model":"m","messages":[{"role":"user","content":"my assistant"}]}"#;
        let request = Request::decode(Dialect::OpenaiChat, body.to_vec()).unwrap();
        let mut keys = ReplyKeys::default();
        for _ in 0..2 {
            assert_eq!(looked_up(&mut keys, &request), [""; 0]);
        }
    }
}
