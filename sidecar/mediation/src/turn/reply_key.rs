//! Recognizes a model's replies in the history of a request, by their content.
//!
//! A runner repeats its whole history in each request, so nearly all of its replies were looked at
//! for an earlier request. [`ReplyKeys`] finds their keys by a hash of their text, which takes much
//! less time than to decode them.
//!
//! Invariant: the work is linear in the history, and each of the maps has at most twice [`MOST`]
//! entries.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::quality::RandomState;
use toolcrib_bounds::digest::Parts;
use toolcrib_dialect::{
    Dialect, DialectError, HistoryItem, HistoryPart, Request, history_item, may_be_reply,
};

/// Most entries of a generation. Few histories have as many items.
const MOST: usize = 2048;

/// The memory of the items and replies of earlier requests. A hash of 64 bits, with a seed of this
/// process, stands for a text, so two texts practically never have the same one. If they had, a
/// conversation could lack its hidden rounds.
#[derive(Debug, Default)]
pub(super) struct ReplyKeys {
    hasher: RandomState,
    /// Roles of items, by the hash of the item.
    roles: Recent<Role>,
    /// Keys of replies, by the hash of the reply alone or after the items before it.
    keys: Recent<String>,
    /// SHA-256 states over the items before a reply, by the hash of these items.
    chains: Recent<Parts>,
}

/// The role of an item, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A message whose content changes from request to request, so no key has it.
    System,
    User,
    Reply,
    Other,
}

/// The history of a request.
pub(super) struct History<'r, 'k> {
    reply_keys: &'k mut ReplyKeys,
    dialect: Dialect,
    items: Vec<&'r str>,
    hashes: Vec<u64>,
    roles: Vec<Role>,
    /// For each item, the hash of those before it.
    before: Vec<u64>,
    /// The beginning of all keys.
    start: Parts,
}

/// Entries of two generations. When the younger one is full, the older one is dropped.
#[derive(Debug)]
struct Recent<T> {
    younger: HashMap<u64, T>,
    older: HashMap<u64, T>,
}

impl ReplyKeys {
    /// Returns true if `is_known` holds for the key of a reply alone. Reads only items that may be part
    /// of a reply: most of a conversation are user messages and results.
    pub(super) fn any(
        &mut self,
        request: &Request,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<bool, DialectError> {
        let dialect = request.dialect();
        let items: Vec<&str> = request.history().collect();
        let hashes: Vec<Option<u64>> = items
            .iter()
            .map(|item| self.reply_hash(dialect, item))
            .collect::<Result<_, _>>()?;
        for reply in replies(dialect, &hashes, Option::is_some) {
            let own: Vec<u64> = hashes[reply.clone()].iter().copied().flatten().collect();
            if is_known(self.key_alone(dialect, &items[reply], &own)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the history of a request. `start`: the beginning of the keys of its replies.
    pub(super) fn history<'r>(
        &mut self,
        request: &'r Request,
        start: Parts,
    ) -> Result<History<'r, '_>, DialectError> {
        let dialect = request.dialect();
        let items: Vec<&str> = request.history().collect();
        let (mut hashes, mut roles, mut before) = (Vec::new(), Vec::new(), Vec::new());
        let mut so_far = self.hasher.hash_one(start.digest());
        for item in &items {
            let (hash, role) = self.role(dialect, item)?;
            before.push(so_far);
            if role != Role::System {
                so_far = self.hasher.hash_one([so_far, hash]);
            }
            hashes.push(hash);
            roles.push(role);
        }
        Ok(History {
            reply_keys: self,
            dialect,
            items,
            hashes,
            roles,
            before,
            start,
        })
    }

    /// Returns the hash of an item that is part of a reply.
    fn reply_hash(&mut self, dialect: Dialect, item: &str) -> Result<Option<u64>, DialectError> {
        if !may_be_reply(dialect, item) {
            return Ok(None);
        }
        let (hash, role) = self.role(dialect, item)?;
        Ok((role == Role::Reply).then_some(hash))
    }

    fn role(&mut self, dialect: Dialect, item: &str) -> Result<(u64, Role), DialectError> {
        let hash = self.hasher.hash_one((dialect.name(), item));
        let read = || history_item(dialect, item).map(|item| Role::of(&item));
        Ok((hash, *self.roles.get_or_insert(hash, read)?))
    }

    fn key_alone(
        &mut self,
        dialect: Dialect,
        items: &[&str],
        hashes: &[u64],
    ) -> Result<&str, DialectError> {
        let id = self.hasher.hash_one(hashes);
        let make = || Ok(key(dialect, &[], &decoded(dialect, items)?));
        self.keys.get_or_insert(id, make).map(String::as_str)
    }
}

impl History<'_, '_> {
    /// The places of the replies.
    pub(super) fn replies(&self) -> Vec<Range<usize>> {
        replies(self.dialect, &self.roles, |role| *role == Role::Reply)
    }

    /// Returns the last item if it is a message of the user after this place.
    pub(super) fn last_message_after(&self, place: usize) -> Option<usize> {
        let last = self.items.len().checked_sub(1)?;
        (last >= place && self.roles[last] == Role::User).then_some(last)
    }

    pub(super) fn key_alone(&mut self, reply: &Range<usize>) -> Result<&str, DialectError> {
        let (items, hashes) = (&self.items[reply.clone()], &self.hashes[reply.clone()]);
        self.reply_keys.key_alone(self.dialect, items, hashes)
    }

    /// Returns the key of a reply after the items before it, and after the item `moved` if there is one.
    pub(super) fn key(
        &mut self,
        reply: &Range<usize>,
        moved: Option<usize>,
    ) -> Result<String, DialectError> {
        let hasher = &self.reply_keys.hasher;
        let mut before = self.before[reply.start];
        if let Some(moved) = moved {
            before = hasher.hash_one([before, self.hashes[moved]]);
        }
        let id = hasher.hash_one((before, &self.hashes[reply.clone()]));
        if let Some(key) = self.reply_keys.keys.get(id) {
            return Ok(key.clone());
        }
        let mut chain = self.chain(reply.start)?;
        if let Some(moved) = moved {
            push_item(&history_item(self.dialect, self.items[moved])?, &mut chain);
        }
        let own = decoded(self.dialect, &self.items[reply.clone()])?;
        let key = key(self.dialect, &chain.digest(), &own);
        self.reply_keys.keys.insert(id, key.clone());
        Ok(key)
    }

    /// Returns the SHA-256 state over the items before this one. Continues the one over the most
    /// items that is remembered.
    fn chain(&mut self, at: usize) -> Result<Parts, DialectError> {
        let chains = &mut self.reply_keys.chains;
        let remembered = (0..=at)
            .rev()
            .find_map(|from| Some((from, chains.get(self.before[from])?.clone())));
        let (from, mut chain) = remembered.unwrap_or_else(|| (0, self.start.clone()));
        for item in &self.items[from..at] {
            push_item(&history_item(self.dialect, item)?, &mut chain);
        }
        chains.insert(self.before[at], chain.clone());
        Ok(chain)
    }
}

impl Role {
    fn of(item: &HistoryItem) -> Self {
        match item.role.as_str() {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Reply,
            _ => Self::Other,
        }
    }
}

impl<T> Recent<T> {
    fn get(&mut self, hash: u64) -> Option<&T> {
        if let Some(value) = self.older.remove(&hash) {
            self.insert(hash, value);
        }
        self.younger.get(&hash)
    }

    fn insert(&mut self, hash: u64, value: T) {
        if self.younger.len() == MOST {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(hash, value);
    }

    fn get_or_insert(
        &mut self,
        hash: u64,
        make: impl FnOnce() -> Result<T, DialectError>,
    ) -> Result<&T, DialectError> {
        if self.get(hash).is_none() {
            let value = make()?;
            self.insert(hash, value);
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

/// Returns the key of a reply. `before`: the digest of the items before it; empty: the key is that of
/// the reply alone.
pub(super) fn key(dialect: Dialect, before: &[u8], reply: &[HistoryItem]) -> String {
    let mut parts = Parts::default();
    parts.push_fixed(dialect.name());
    parts.push_fixed(before);
    for item in reply {
        push_item(item, &mut parts);
    }
    hex::encode(parts.digest())
}

/// Returns the places of the replies among these items. A reply is one item for which `is_reply` holds;
/// in the Responses API, it is all neighbours for which this holds.
fn replies<T>(dialect: Dialect, items: &[T], is_reply: impl Fn(&T) -> bool) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for at in (0..items.len()).filter(|at| is_reply(&items[*at])) {
        match found.last_mut() {
            Some(reply) if reply.end == at && dialect == Dialect::OpenaiResponses => reply.end += 1,
            _ => found.push(at..at + 1),
        }
    }
    found
}

fn decoded(dialect: Dialect, items: &[&str]) -> Result<Vec<HistoryItem>, DialectError> {
    let items = items.iter().map(|item| history_item(dialect, item));
    items.collect()
}

/// Adds the content of an item to the hash, unambiguously. System messages are left out, because
/// runners write the time of day into them.
pub(super) fn push_item(item: &HistoryItem, parts: &mut Parts) {
    match Role::of(item) {
        Role::System => return,
        // Reasoning as an item of its own; runners may leave it out.
        Role::Reply if item.parts.is_empty() => return,
        Role::Reply | Role::User | Role::Other => {}
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

    /// Returns the keys of all replies, after the items before them and after a moved last item.
    fn keys(known: &mut ReplyKeys, request: &Request) -> Vec<(String, Option<String>)> {
        let mut history = known.history(request, Parts::default()).unwrap();
        let replies = history.replies();
        let mut key = |reply: &Range<usize>| {
            let exact = history.key(reply, None).unwrap();
            let last = history.last_message_after(reply.end);
            let moved = last.map(|last| history.key(reply, Some(last)).unwrap());
            (exact, moved)
        };
        replies.iter().map(&mut key).collect()
    }

    #[test]
    fn keys_that_are_continued_are_those_of_the_whole_history() {
        let message =
            |role: &str, at: usize| format!(r#"{{"role":"{role}","content":"{role} {at}"}}"#);
        let body = |noon: usize, messages: &[String]| {
            let system = message("system", noon);
            let all = [&[system], messages].concat().join(",");
            let body = format!(r#"{{"model":"m","messages":[{all}]}}"#).into_bytes();
            Request::decode(Dialect::OpenaiChat, body).unwrap()
        };
        let mut known = ReplyKeys::default();
        let (mut one, mut other) = (Vec::new(), vec![message("user", 99)]);
        let mut seen = std::collections::BTreeSet::new();
        for turn in 0..12 {
            for messages in [&mut one, &mut other] {
                messages.push(message("user", turn));
                messages.push(message("assistant", turn % 5));
                let mut sent = messages.clone();
                sent.push(message("user", 50 + turn));
                let request = body(turn, &sent);
                let found = keys(&mut known, &request);
                assert_eq!(found.len(), turn + 1);
                assert_eq!(found, keys(&mut ReplyKeys::default(), &request));
                assert_eq!(found, keys(&mut known, &request));
                seen.extend(found.into_iter().map(|(exact, _)| exact));
            }
        }
        // Equal replies of two conversations, and of one conversation, have different keys.
        assert_eq!(seen.len(), 24);
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
