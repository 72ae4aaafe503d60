//! A service that recognizes a repeated call by its key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::State;
use futures::stream;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::support::{TestServer, World};

/// Places one order for each key. The answer to its first request breaks off.
#[derive(Default)]
struct Orders {
    by_key: Mutex<BTreeMap<String, usize>>,
    /// The keys of all requests, in order.
    keys: Mutex<Vec<String>>,
}

async fn order(State(orders): State<Arc<Orders>>, headers: HeaderMap) -> Body {
    let keys: Vec<_> = headers.get_all("idempotency-key").iter().collect();
    let [key] = &keys[..] else {
        panic!("one key expected: {keys:?}");
    };
    let key = key.to_str().unwrap().to_owned();
    let (number, requests) = {
        let mut by_key = orders.by_key.lock().unwrap();
        let next = by_key.len() + 1;
        let number = *by_key.entry(key.clone()).or_insert(next);
        let mut keys = orders.keys.lock().unwrap();
        keys.push(key);
        (number, keys.len())
    };
    if requests == 1 {
        let cut = stream::iter([Ok("{\"order\":"), Err(std::io::Error::other("cut"))]);
        return Body::from_stream(cut);
    }
    json!({ "order": number }).to_string().into()
}

struct Service {
    orders: Arc<Orders>,
    server: TestServer,
}

impl Service {
    async fn start() -> Service {
        let orders = Arc::new(Orders::default());
        let router = axum::Router::new()
            .fallback(order)
            .with_state(orders.clone());
        let server = TestServer::start(router).await;
        Service { orders, server }
    }
}

#[tokio::test]
async fn a_repetition_of_a_lost_answer_has_one_effect() {
    let service = Service::start().await;
    let world = World::start_with(
        |files| {
            let execution = &mut files.tools["tools"][1]["execution"];
            execution["base_url"] = json!(service.server.url());
            execution["idempotency_header"] = json!("Idempotency-Key");
        },
        |_| {},
        &[],
    )
    .await;
    let wire = world.wire;
    for id in ["c1", "c2", "c3"] {
        let call = wire.will_call(&[(id, "desk__order", r#"{"symbol":"OTR"}"#)]);
        world.model.will(call);
    }
    world.model.will(wire.will_say("done"));
    world.chat().await;
    let results: Vec<Value> = world.results().into_iter().map(|(_, it)| it).collect();
    assert_eq!(results[0]["error"]["code"], "request_failed");
    assert_eq!(results[0]["error"]["details"]["retryable"], true);
    assert_eq!(results[1]["data"], json!({"order": 1}));
    assert_eq!(results[2]["error"]["code"], "duplicate_tool_call");

    let lines = world.lines();
    let turn = lines.last().unwrap();
    let id = |call: &str| format!("{}-{call}", turn["request_id"].as_str().unwrap());
    let first = id("1-0");
    assert_eq!(*service.orders.keys.lock().unwrap(), [&*first, &*first]);
    let intents = lines.iter().filter(|line| line["kind"] == "intent");
    let calls = turn["tool_trace"].as_array().unwrap().iter();
    let calls = calls.map(|round| &round["tool_calls"][0]);
    let ids = |line: &Value| (line["call_id"].clone(), line["idempotency_key"].clone());
    let attempts = [
        (json!(first), json!(first)),
        (json!(id("2-0")), json!(first)),
        (json!(id("3-0")), Value::Null),
    ];
    assert_eq!(intents.map(ids).collect::<Vec<_>>(), attempts[..2]);
    assert_eq!(calls.map(ids).collect::<Vec<_>>(), attempts);

    // The next turn's call is another order.
    let call = wire.will_call(&[("c4", "desk__order", r#"{"symbol":"OTR"}"#)]);
    world.model.will(call);
    world.model.will(wire.will_say("done"));
    world.chat().await;
    assert_eq!(service.orders.by_key.lock().unwrap().len(), 2);
}
