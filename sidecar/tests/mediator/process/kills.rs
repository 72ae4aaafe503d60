//! The record of a mediator that is killed again and again under load.
//!
//! `TOOLCRIB_KILLS=200 cargo test -p toolcrib-sidecar --test mediator killed_under_load` kills it 200
//! times, in half a minute; without the variable it is killed ten times.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::routing::{get, post};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use toolcrib_record::{Line, Verifier};

use super::binary::{PROGRAM, spawn};
use crate::support::{Files, RUNNER, TestServer, calls, chat, no_tls, says, within};

/// Requests at once.
const CLIENTS: usize = 8;

/// What the model and the service saw.
#[derive(Default)]
struct Observations {
    /// Numbers the calls that the model makes.
    next: AtomicU64,
    /// The calls that reached the service.
    executed: Mutex<BTreeSet<String>>,
    /// Rises with each request to the model and to the service.
    requests: watch::Sender<u64>,
}

async fn model(State(seen): State<Arc<Observations>>, body: Bytes) -> String {
    let body: Value = serde_json::from_slice(&body).unwrap();
    seen.requests.send_modify(|requests| *requests += 1);
    let last = body["messages"].as_array().unwrap().last().unwrap();
    if last["role"] == "tool" {
        return says("done").to_string();
    }
    let number = seen.next.fetch_add(2, Ordering::Relaxed);
    let symbol = |number: u64| json!({"symbol": format!("S{number}")}).to_string();
    let [one, two] = [symbol(number), symbol(number + 1)];
    calls(&[("c1", "desk__quote", &one), ("c2", "desk__quote", &two)]).to_string()
}

async fn quote(
    State(seen): State<Arc<Observations>>,
    UrlPath(symbol): UrlPath<String>,
) -> &'static str {
    seen.executed.lock().unwrap().insert(symbol);
    seen.requests.send_modify(|requests| *requests += 1);
    "{}"
}

/// Sends requests until one fails; returns the number of answers.
async fn load(client: reqwest::Client, listen: String) -> usize {
    let mut answers = 0;
    loop {
        let request = client
            .post(format!("http://{listen}/v1/chat/completions"))
            .bearer_auth(RUNNER)
            .body(chat().to_string());
        let Ok(response) = request.send().await else {
            return answers;
        };
        let status = response.status();
        if response.bytes().await.is_err() {
            return answers;
        }
        assert_eq!(status, 200);
        answers += 1;
    }
}

fn symbol_of(arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    arguments["symbol"].as_str().unwrap().to_owned()
}

/// A number for each kill, spread over the requests of some turns.
fn requests_before(kill: u64) -> u64 {
    // Knuth's multiplicative hash.
    (kill.wrapping_mul(2_654_435_761) >> 7) % 97
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mediator_that_is_killed_under_load_loses_no_call_of_its_record() {
    let kills = std::env::var("TOOLCRIB_KILLS").map_or(10, |it| it.parse().unwrap());
    let seen = Arc::<Observations>::default();
    let model = Router::new().fallback(post(model));
    let model = TestServer::start(model.with_state(seen.clone())).await;
    let quotes = Router::new().route("/quotes/{symbol}", get(quote));
    let desk = TestServer::start(quotes.with_state(seen.clone())).await;
    let mut files = Files::new(&model.url(), &desk.url());
    files.publish();
    let history = tempfile::tempdir().unwrap();
    let stdout = history.path().join("stdout.log");
    let stderr = history.path().join("stderr");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(no_tls())
        .build()
        .unwrap();

    let mut answers = 0;
    for kill in 0..kills {
        let mut open = OpenOptions::new();
        let log = open.create(true).append(true).open(&stdout).unwrap();
        let (mut child, listen, _) =
            spawn(Path::new(PROGRAM), &files, &history, &stderr, |command| {
                command.stdout(log);
            })
            .await;
        let mut requests = seen.requests.subscribe();
        let end = *requests.borrow() + requests_before(kill);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(load(client.clone(), listen.clone()));
        }
        within("requests", requests.wait_for(|now| *now >= end))
            .await
            .unwrap();
        child.signal(Signal::KILL);
        child.ended().await;
        let ends = within("the ends of the clients", clients.join_all()).await;
        answers += ends.into_iter().sum::<usize>();
    }

    let record = std::fs::read(history.path().join("history.jsonl")).unwrap();
    let mut verifier = Verifier::default();
    for (name, text) in [
        ("file", &record),
        ("stdout", &std::fs::read(&stdout).unwrap()),
    ] {
        verifier.source(name);
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            verifier.push(line).unwrap();
        }
    }
    let (chains, sources) = verifier.finish(&[]);
    assert_eq!(chains.len() as u64, kills);
    for chain in &chains {
        assert!(chain.is_whole(), "{chain:?}");
    }
    let broken: u64 = sources.iter().map(|source| source.broken).sum();
    // A kill can cut off the last line of standard output.
    assert!(broken <= kills, "{sources:?}");

    let (mut intents, mut done, mut turns) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in record.split(|byte| *byte == b'\n') {
        let line = Line::parse(line);
        if let Ok(Line::Intent(line)) = &line {
            intents.insert(symbol_of(line.arguments.get()));
        } else if let Ok(Line::Turn(line)) = &line {
            turns += 1;
            let calls = line.tool_trace.iter().flat_map(|round| &round.tool_calls);
            let calls = calls.filter(|call| call.executed);
            done.extend(calls.map(|call| symbol_of(call.arguments.get())));
        }
    }
    let executed = seen.executed.lock().unwrap();
    assert!(
        executed.is_subset(&intents),
        "{:?}",
        executed.difference(&intents)
    );
    assert!(
        done.is_subset(&executed),
        "{:?}",
        done.difference(&executed)
    );
    // Each answer has its line; a line can be there whose answer the kill cut off.
    assert!(turns >= answers, "{turns} lines of {answers} answers");
    let unknown = intents.difference(&done).count();
    assert!(unknown > 0, "the kills hit no call");
    println!(
        "{kills} kills: {answers} answers, {} calls reached the service, {unknown} of {} intents without an outcome",
        executed.len(),
        intents.len()
    );
}
