//! Turns with the replies and results that models and services really send.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod arguments;
mod errors;
mod idempotency;
mod limits;
mod names;
mod order;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::*;
use toolcrib_dialect::{Dialect, Request};
use toolcrib_manifest::{Policy, RawJson};
use toolcrib_mediation::*;

/// Runs the calls round by round, then text; every service answers 200.
fn rounds(rounds: &[&[(&str, &str)]]) -> Run {
    let mut replies: Vec<_> = rounds.iter().map(|calls| reply(calls, "")).collect();
    replies.push(reply(&[], "end"));
    run(config(request(json!({})), policy()), replies, |_| {
        responded(200, r#"{"n":1}"#)
    })
}

fn check(script: &[&[(&str, &str)]], wanted: &[&str]) -> Run {
    let run = rounds(script);
    assert_eq!(run.results(), wanted);
    run
}

const FEED: (&str, &str) = ("pond__feed", r#"{"at":1}"#);
