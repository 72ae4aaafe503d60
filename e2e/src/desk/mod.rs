//! The trading desk: the demo's service, with bearer auth and a log of what it was asked.
//!
//! `GET /api/v1/market_context/{claw_id}`, `POST /api/v1/trades`, `GET /api/v1/positions`,
//! and for tests `GET /log[?since=SEQ]`. Each wants one of the tokens; whose token it was
//! (the *principal*) is in every answer and in the log. `GET /healthz` wants none.
//!
//! Invariant: an answer depends only on the request and the trades before it; two
//! claw ids never get the same market context, so a test sees whose data it got.

mod ledger;
mod routes;

pub use ledger::{Asked, Ledger, Trade, market_context};
pub use routes::{DeskState, router};
