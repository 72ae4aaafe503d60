//! The trading desk: the demo's service, with bearer auth and a log of its requests.
//!
//! `GET /api/v1/market_context/{claw_id}`, `POST /api/v1/trades`, `GET /api/v1/positions`, and
//! for tests `GET /log[?since=SEQ]`. Each requires one of the tokens. The token's owner (the
//! *principal*) is in every answer and in the log. `GET /healthz` needs no token.
//!
//! Invariant: an answer depends only on the request and the trades before it. Two claw ids never
//! get the same market context, so a test sees which id's data it got.

mod ledger;
mod routes;

pub use ledger::{Ledger, LedgerEntry, Trade, market_context};
pub use routes::{DeskState, router};
