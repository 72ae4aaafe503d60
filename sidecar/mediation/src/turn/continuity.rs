//! Puts hidden rounds back into the runner's next request.
//!
//! Entries are keyed by content: a key covers everything that the runner sent before the hidden
//! rounds, and the reply after them as the runner stores it. So two conversations of one agent stay
//! apart, and a retried request gets the same rounds again. A trimmed history gets none, and
//! neither does a conversation that continues over another API, because the rounds are not items of
//! that API. A runner may move the last item of a request to the end of its next one.
//!
//! A runner may also name a response instead of repeating it (`previous_response_id`). Then the
//! provider has the hidden rounds, and nothing is put back. Two kinds of answers have an id after
//! which the provider cannot continue: a stream of several replies has the id of the first one, and
//! a turn that a terminal tool has ended has the id of a reply whose calls the provider has no
//! results for. [`ContinuationPoint`] says how such an answer is continued.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use toolcrib_bounds::digest::Parts;
use toolcrib_dialect::{
    Dialect, DialectError, HistoryItem, Insertion, PreviousResponse, Request, history_item,
    reference, rename_calls,
};

use super::reply_key::{ReplyKeys, key, push_item};
use crate::access::presented::PresentedTools;

/// The hidden rounds of a turn, ready to be kept. Stored as one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenRounds {
    /// Hex hash of the items before the rounds and the reply after them.
    key: String,
    /// Hex hash of that reply alone. Empty in files of earlier releases.
    #[serde(default)]
    reply: String,
    /// The same two hashes for a runner that refers to the reply's items by id alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    referenced: Option<ReferencedReply>,
    /// Canonical tool names; renamed to the presented ones on insertion.
    items: Vec<String>,
    /// The reply is among `items`. The runner's own copy also has the text of the rounds, and is
    /// left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replaces: bool,
    /// How to continue the answer, if not after the id that the runner has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continuation: Option<ContinuationPoint>,
}

/// The point in the provider's conversation at which an answer is continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContinuationPoint {
    /// The id that the runner has.
    pub(crate) shown: String,
    /// The response that the provider continues; `None`: the items are the whole conversation.
    pub(crate) previous: Option<String>,
    /// The items after that response.
    pub(crate) items: Vec<String>,
}

/// What a request needs for the model to know the hidden rounds of earlier turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryEdits {
    pub inserted: Vec<Insertion>,
    pub previous: PreviousResponse,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReferencedReply {
    key: String,
    reply: String,
}

/// The rounds of past turns, up to a limit in bytes; the oldest are dropped first.
#[derive(Debug)]
pub struct Continuity {
    entries: HashMap<String, HiddenRounds>,
    /// Keys of entries, by [`ReferencedReply::key`].
    referenced: HashMap<String, String>,
    /// Keys of entries, by [`ContinuationPoint::shown`].
    shown: HashMap<String, String>,
    /// Number of entries with this reply. A conversation that contains none of these replies needs
    /// no key, whose hash covers the whole conversation.
    replies: HashMap<String, usize>,
    reply_keys: ReplyKeys,
    order: VecDeque<String>,
    bytes: usize,
    limit: usize,
}

impl Continuity {
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            entries: HashMap::new(),
            referenced: HashMap::new(),
            shown: HashMap::new(),
            replies: HashMap::new(),
            reply_keys: ReplyKeys::default(),
            order: VecDeque::new(),
            bytes: 0,
            limit: limit_bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps a turn's rounds, also when a file is replayed. Drops rounds that are larger than the
    /// limit.
    pub fn remember(&mut self, hidden: HiddenRounds) {
        let size = hidden.size();
        if size > self.limit {
            return;
        }
        self.forget(&hidden.key);
        while self.bytes + size > self.limit {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.forget(&oldest);
        }
        self.bytes += size;
        self.order.push_back(hidden.key.clone());
        for reply in hidden.replies() {
            *self.replies.entry(reply.to_string()).or_default() += 1;
        }
        if let Some(referenced) = &hidden.referenced {
            self.referenced
                .insert(referenced.key.clone(), hidden.key.clone());
        }
        if let Some(point) = &hidden.continuation {
            self.shown.insert(point.shown.clone(), hidden.key.clone());
        }
        self.entries.insert(hidden.key.clone(), hidden);
    }

    /// The entries from the oldest to the newest, for writing a compacted file.
    pub fn entries(&self) -> impl Iterator<Item = HiddenRounds> {
        self.order
            .iter()
            .filter_map(|key| self.entries.get(key).cloned())
    }

    /// Returns the rounds that belong into this request, with tool names as they are presented now.
    pub fn history_edits(
        &mut self,
        request: &Request,
        presented: &PresentedTools,
    ) -> Result<HistoryEdits, DialectError> {
        let mut edits = HistoryEdits::default();
        if self.entries.is_empty() {
            return Ok(edits);
        }
        if let Some(point) = self.continuation(request) {
            edits.previous = match &point.previous {
                Some(id) => PreviousResponse::Set(id.clone()),
                None => PreviousResponse::Drop,
            };
            if !point.items.is_empty() {
                edits.inserted.push(Insertion {
                    before: 0,
                    items: presented_items(request.dialect(), &point.items, presented)?,
                    replaced: 0,
                });
            }
        }
        edits.inserted.extend(self.insertions(request, presented)?);
        Ok(edits)
    }

    fn continuation(&self, request: &Request) -> Option<&ContinuationPoint> {
        let key = self.shown.get(&request.previous_response()?)?;
        self.entries.get(key)?.continuation.as_ref()
    }

    fn insertions(
        &mut self,
        request: &Request,
        presented: &PresentedTools,
    ) -> Result<Vec<Insertion>, DialectError> {
        let mut found = Vec::new();
        if !self.knows_a_reply(request)? {
            return Ok(found);
        }
        let Self {
            entries,
            referenced,
            replies,
            reply_keys,
            ..
        } = self;
        let entry = |key: &str| {
            let found = entries.get(key);
            found.or_else(|| entries.get(referenced.get(key)?))
        };
        let is_known = |key: &str| replies.contains_key("") || replies.contains_key(key);
        let dialect = request.dialect();
        let mut history = reply_keys.history(request, chain_of(request))?;
        let mut budget = MoveBudget::of(request);
        for reply in history.replies() {
            if !is_known(history.key_alone(&reply)?) {
                continue;
            }
            let mut hidden = entry(&history.key(&reply, None)?);
            if hidden.is_none()
                && let Some(last) = history.last_message_after(reply.end)
                && budget.spend()
            {
                hidden = entry(&history.key(&reply, Some(last))?);
            }
            if let Some(hidden) = hidden {
                found.push(Insertion {
                    before: reply.start,
                    items: presented_items(dialect, &hidden.items, presented)?,
                    replaced: if hidden.replaces { reply.len() } else { 0 },
                });
            }
        }
        Ok(found)
    }

    /// Returns true if the request has a known reply.
    fn knows_a_reply(&mut self, request: &Request) -> Result<bool, DialectError> {
        let known = &self.replies;
        if known.contains_key("") {
            return Ok(true);
        }
        self.reply_keys.any(request, |key| known.contains_key(key))
    }

    fn forget(&mut self, key: &str) {
        let Some(hidden) = self.entries.remove(key) else {
            return;
        };
        self.bytes -= hidden.size();
        // Nearly always the oldest entry: a search through all for each would be quadratic.
        match self.order.front().is_some_and(|oldest| oldest == key) {
            true => drop(self.order.pop_front()),
            false => self.order.retain(|other| other != key),
        }
        for reply in hidden.replies() {
            if let Some(count) = self.replies.get_mut(reply) {
                *count -= 1;
                if *count == 0 {
                    self.replies.remove(reply);
                }
            }
        }
        if let Some(ReferencedReply { key: named, .. }) = &hidden.referenced
            && self.referenced.get(named).is_some_and(|of| of == key)
        {
            self.referenced.remove(named);
        }
        if let Some(ContinuationPoint { shown, .. }) = &hidden.continuation
            && self.shown.get(shown).is_some_and(|of| of == key)
        {
            self.shown.remove(shown);
        }
    }
}

impl HiddenRounds {
    /// Returns the rounds of a turn that began with this request and whose last reply has these
    /// items of its own. `None` if no round was hidden, or if the reply has no item to recognize it
    /// by. `reply` is that reply as the model wrote it, if the runner has it joined with the text
    /// of the rounds.
    pub(crate) fn of(
        request: &Request,
        mut items: Vec<String>,
        own_items: &[String],
        reply: Option<Vec<String>>,
        continuation: Option<ContinuationPoint>,
    ) -> Result<Option<Self>, DialectError> {
        if items.is_empty() {
            return Ok(None);
        }
        let dialect = request.dialect();
        let mut chain = chain_of(request);
        for item in request.history() {
            push_item(&history_item(dialect, item)?, &mut chain);
        }
        let own: Vec<HistoryItem> = own_items
            .iter()
            .map(|item| history_item(dialect, item))
            .collect::<Result<_, _>>()?;
        let named: Option<Vec<HistoryItem>> = own_items
            .iter()
            .map(|item| history_item(dialect, &reference(dialect, item)?).ok())
            .collect();
        let replaces = reply.is_some();
        items.extend(reply.into_iter().flatten());
        Ok(Some(Self {
            key: key(dialect, &chain.digest(), &own),
            reply: key(dialect, &[], &own),
            referenced: named.map(|named| ReferencedReply {
                key: key(dialect, &chain.digest(), &named),
                reply: key(dialect, &[], &named),
            }),
            items,
            replaces,
            continuation,
        }))
    }

    fn replies(&self) -> impl Iterator<Item = &str> {
        let referenced = self.referenced.as_ref().map(|it| it.reply.as_str());
        std::iter::once(self.reply.as_str()).chain(referenced)
    }

    fn size(&self) -> usize {
        let items: usize = self.items.iter().map(String::len).sum();
        let referenced = self.referenced.as_ref();
        let named = referenced.map_or(0, |it| it.key.len() + it.reply.len());
        let point = self.continuation.as_ref();
        let continuation = point.map_or(0, ContinuationPoint::size);
        self.key.len() + self.reply.len() + named + items + continuation
    }
}

/// Bytes that may be hashed for a last item that a runner may have moved: some runners keep a message
/// with their own context at the end of each request, so it is then after replies that it was before. At
/// most the bytes of the request, so the work stays linear.
struct MoveBudget {
    left: usize,
    size: usize,
}

impl MoveBudget {
    fn of(request: &Request) -> Self {
        Self {
            left: request.as_text().len(),
            size: request.history().last().map_or(0, str::len),
        }
    }

    /// Returns true if the budget allows another hash of the item, and takes it from the budget.
    fn spend(&mut self) -> bool {
        let left = self.left.checked_sub(self.size);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

impl ContinuationPoint {
    fn size(&self) -> usize {
        let items: usize = self.items.iter().map(String::len).sum();
        self.shown.len() + self.previous.as_ref().map_or(0, String::len) + items
    }
}

/// Begins the hash of the items before a reply. The items of a request that continues a response are
/// not the whole conversation, so two of them are told apart by that response's id.
fn chain_of(request: &Request) -> Parts {
    let mut chain = Parts::default();
    if let Some(previous) = request.previous_response() {
        chain.push_fixed([b'p']);
        chain.push(&previous);
    }
    chain
}

/// Returns stored items with the names of their tools as they are presented now.
fn presented_items(
    dialect: Dialect,
    items: &[String],
    presented: &PresentedTools,
) -> Result<Vec<String>, DialectError> {
    items
        .iter()
        .map(|item| rename_calls(dialect, item, |name| presented.new_name(name)))
        .collect()
}
