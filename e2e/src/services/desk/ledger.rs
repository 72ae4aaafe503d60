//! The desk's memory: trades and requests, both bounded.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

/// Maximum number of entries; enough for a test. The oldest are dropped first.
const MAX_ENTRIES: usize = 512;

/// One request, answered or refused. Header values are left out: they hold credentials.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerEntry {
    pub seq: u64,
    /// `None`: refused with 401.
    pub principal: Option<String>,
    pub method: String,
    /// Path and query as they were received.
    pub target: String,
    /// The claw id in the path, if it has one.
    pub claw_id: Option<String>,
    /// The `X-Claw-ID` header, which is for information only.
    pub claimed_id: Option<String>,
    /// Header names only, sorted.
    pub headers: Vec<String>,
    pub body: String,
    pub status: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trade {
    pub id: u64,
    pub principal: String,
    pub symbol: String,
    pub side: String,
    pub quantity: Value,
}

#[derive(Debug, Default)]
pub struct Ledger(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    asked: VecDeque<LedgerEntry>,
    total: u64,
    trades: VecDeque<Trade>,
    next_trade: u64,
}

impl Ledger {
    /// Appends one request; its `seq` is set here.
    pub fn ask(&self, asked: LedgerEntry) {
        let mut books = self.0.lock();
        let seq = books.total;
        books.total += 1;
        push_bounded(&mut books.asked, LedgerEntry { seq, ..asked });
    }

    /// The response of `GET /log`.
    pub fn log_since(&self, since: u64) -> Value {
        let books = self.0.lock();
        let asked: Vec<_> = books
            .asked
            .iter()
            .filter(|asked| asked.seq >= since)
            .collect();
        json!({"total": books.total, "requests": asked})
    }

    pub fn trade(&self, principal: &str, symbol: &str, side: &str, quantity: Value) -> Trade {
        let mut books = self.0.lock();
        books.next_trade += 1;
        let trade = Trade {
            id: books.next_trade,
            principal: principal.to_string(),
            symbol: symbol.to_string(),
            side: side.to_string(),
            quantity,
        };
        push_bounded(&mut books.trades, trade.clone());
        trade
    }

    pub fn trades(&self) -> Vec<Trade> {
        let books = self.0.lock();
        books.trades.iter().cloned().collect()
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, entry: T) {
    if queue.len() == MAX_ENTRIES {
        queue.pop_front();
    }
    queue.push_back(entry);
}

/// Derives a market context from the id alone: the same on every run, different for every id.
pub fn market_context(claw_id: &str, principal: &str) -> Value {
    // FNV-1a: any fixed mixing function does, and this one fits in a line.
    let seed = claw_id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    json!({
        "claw_id": claw_id,
        "principal": principal,
        "balance": 10_000 + seed % 90_000,
        "buying_power": 20_000 + (seed >> 17) % 180_000,
        "positions": [{"symbol": "OTTR", "quantity": 1 + (seed >> 33) % 99}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_its_own_market() {
        let otter = market_context("otter", "desk");
        assert_eq!(otter, market_context("otter", "desk"));
        assert_ne!(otter["balance"], market_context("heron", "desk")["balance"]);
    }
}
