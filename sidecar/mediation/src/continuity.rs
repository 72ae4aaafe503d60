//! Hidden rounds put back where they belong in the next request.
//!
//! Keyed by content: an entry's key covers everything the runner sent up to the hidden
//! rounds and the reply they led to, as the runner stores it. So two conversations of one
//! agent stay apart, a retried request gets the same again, and a trimmed history gets
//! none.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolcrib_dialect::{
    Dialect, DialectError, HistoryPart, Insertion, Request, history_item, respell,
};

use crate::presented::Presented;

/// A turn's hidden rounds, ready to be kept. One line of JSON each, when stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// Hex of what stands before the rounds and the reply after them.
    key: String,
    /// Canonical tool names; spelled anew when put back.
    items: Vec<String>,
}

/// The rounds of past turns, at most so many bytes; the oldest go first.
#[derive(Debug)]
pub struct Continuity {
    entries: HashMap<String, Vec<String>>,
    order: VecDeque<String>,
    bytes: usize,
    limit: usize,
}

impl Continuity {
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit: limit_bytes,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps a turn's rounds (also when replaying a file). Rounds larger than the limit
    /// are not kept.
    pub fn remember(&mut self, hidden: Hidden) {
        let size = size(&hidden.key, &hidden.items);
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
        self.entries.insert(hidden.key, hidden.items);
    }

    /// Oldest first, for writing a compacted file.
    pub fn entries(&self) -> impl Iterator<Item = Hidden> {
        self.order.iter().filter_map(|key| {
            self.entries.get(key).map(|items| Hidden {
                key: key.clone(),
                items: items.clone(),
            })
        })
    }

    /// What of it belongs into this request, with names as they are presented now.
    pub fn insertions(
        &self,
        request: &Request,
        presented: &Presented,
    ) -> Result<Vec<Insertion>, DialectError> {
        if self.entries.is_empty() {
            return Ok(Vec::new());
        }
        let dialect = request.dialect();
        let mut chain = Chain::new(dialect);
        let mut found = Vec::new();
        let mut at = 0;
        let items: Vec<&str> = request.history().collect();
        while at < items.len() {
            let own = chain.reply_length(&items[at..])?;
            if own == 0 {
                chain.push(items[at])?;
                at += 1;
                continue;
            }
            let before = chain.digest();
            let key = chain.key(&before, &items[at..at + own])?;
            if let Some(rounds) = self.entries.get(&key) {
                let items = rounds
                    .iter()
                    .map(|item| respell(dialect, item, |name| presented.spelling(name)))
                    .collect::<Result<_, _>>()?;
                found.push(Insertion { before: at, items });
            }
            for item in &items[at..at + own] {
                chain.push(item)?;
            }
            at += own;
        }
        Ok(found)
    }

    fn forget(&mut self, key: &str) {
        if let Some(items) = self.entries.remove(key) {
            self.bytes -= size(key, &items);
            self.order.retain(|other| other != key);
        }
    }
}

impl Hidden {
    /// The rounds of a turn that began with this request and ended with these own items
    /// of its last reply. `None`: nothing was hidden, or the reply leaves nothing to
    /// recognize it by.
    pub(crate) fn of(
        request: &Request,
        items: Vec<String>,
        own_items: &[String],
    ) -> Result<Option<Self>, DialectError> {
        if items.is_empty() {
            return Ok(None);
        }
        let mut chain = Chain::new(request.dialect());
        for item in request.history() {
            chain.push(item)?;
        }
        let own: Vec<&str> = own_items.iter().map(String::as_str).collect();
        let key = chain.key(&chain.digest(), &own)?;
        Ok(Some(Self { key, items }))
    }
}

fn size(key: &str, items: &[String]) -> usize {
    key.len() + items.iter().map(String::len).sum::<usize>()
}

/// A running digest of what a history says. System messages are left out: runners write
/// the time of day into them.
struct Chain {
    dialect: Dialect,
    hash: Sha256,
}

impl Chain {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            hash: Sha256::new(),
        }
    }

    fn push(&mut self, item: &str) -> Result<(), DialectError> {
        self.hash.update(said(self.dialect, item)?);
        Ok(())
    }

    fn digest(&self) -> Vec<u8> {
        self.hash.clone().finalize().to_vec()
    }

    fn key(&self, before: &[u8], reply: &[&str]) -> Result<String, DialectError> {
        let mut hash = Sha256::new();
        hash.update(before);
        for item in reply {
            hash.update(said(self.dialect, item)?);
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// How many items, from here, are one reply of the model.
    fn reply_length(&self, items: &[&str]) -> Result<usize, DialectError> {
        let mut length = 0;
        for item in items {
            if history_item(self.dialect, item)?.role != "assistant" {
                break;
            }
            length += 1;
            if self.dialect != Dialect::OpenaiResponses {
                break;
            }
        }
        Ok(length)
    }
}

/// What an item says, in bytes that no other item has: every text with its length.
fn said(dialect: Dialect, item: &str) -> Result<Vec<u8>, DialectError> {
    let item = history_item(dialect, item)?;
    let mut out = Vec::new();
    if matches!(item.role.as_str(), "system" | "developer") {
        return Ok(out);
    }
    // Reasoning that is an item of its own, which runners may leave out.
    if item.role == "assistant" && item.parts.is_empty() {
        return Ok(out);
    }
    let mut write = |kind: u8, texts: &[&str]| {
        out.push(kind);
        for text in texts {
            out.extend_from_slice(&(text.len() as u64).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    };
    write(b'r', &[&item.role]);
    for part in &item.parts {
        match part {
            HistoryPart::Text(text) => write(b't', &[text]),
            HistoryPart::Call {
                id,
                name,
                arguments,
            } => write(b'c', &[id, name, arguments]),
            HistoryPart::Result { call_id, content } => write(b'o', &[call_id, content]),
            HistoryPart::Other(json) => write(b'x', &[json]),
        }
    }
    Ok(out)
}
