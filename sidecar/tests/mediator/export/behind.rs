//! A collector that is behind the record's rotation.

use std::sync::Arc;

use super::rig::{QUICK, Rig, turn};
use crate::support::collector::{Collector, Verdict};
use crate::support::{Wire, World, until};

const LOST: &str = r#"exported_lines_total{outcome="lost"}"#;
/// The record's files have half of this each.
const SMALL: u64 = 64 * 1024;

#[tokio::test]
async fn with_drop_rotation_goes_on_and_the_lost_lines_are_counted() {
    let rig = Rig::start(SMALL, None).await;
    rig.flushed().await;
    rig.collector.usually(Verdict::Status(503));
    let before = rig.collector.requests();
    rig.line(1000);
    rig.collector.asked(before + 1).await;
    for _ in 0..200 {
        rig.line(1000);
    }
    rig.history.ready().unwrap();
    rig.collector.usually(Verdict::Take);
    rig.flushed().await;
    let lost = rig.count(LOST);
    let taken = rig.places().len() as u64;
    // The lines of the message that was tried are in memory.
    assert!(lost > 100, "{lost}");
    assert_eq!(taken + lost, 202);
    let gap = format!(r#"{{"kind":"gap","lines":{lost}}}"#);
    assert!(rig.collector.texts().contains(&gap));
    let verified = rig.verified();
    let findings: Vec<_> = verified.values().flatten().collect();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].starts_with("missing: lines "), "{findings:?}");
}

#[tokio::test]
async fn with_refuse_rotation_waits_and_each_line_arrives() {
    let rig = Rig::start(SMALL, Some(Arc::default())).await;
    rig.flushed().await;
    rig.collector.usually(Verdict::Status(503));
    let mut written = 1;
    while rig.history.ready().is_ok() {
        rig.line(1000);
        written += 1;
        assert!(written < 1000, "never refused");
    }
    let refusal = rig.history.ready().unwrap_err().to_string();
    assert!(refusal.contains("the collector has not taken"), "{refusal}");
    // Requests that run already have room, first in the file and then in memory.
    for _ in 0..20 {
        rig.line(1000);
        written += 1;
    }
    assert!(rig.history.waiting() > 0);
    let intent = rig.history.intent(br#"{"kind":"intent"}"#.to_vec());
    assert!(intent.is_err());
    let model_call = rig.history.model_call(br#"{"kind":"model_call"}"#.to_vec());
    assert!(model_call.is_err());
    rig.collector.usually(Verdict::Take);
    until("room", || rig.history.ready().ok()).await;
    rig.history.turn(turn(10)).unwrap();
    written += 1;
    rig.flushed().await;
    let places = rig.places();
    let seqs: Vec<u64> = places.iter().map(|(_, seq)| *seq).collect();
    assert_eq!(seqs, (0..written).collect::<Vec<u64>>());
    assert_eq!(rig.count(LOST), 0);
    assert!(rig.verified().values().all(Vec::is_empty));
}

/// The runner reads why, and is served again without a restart.
#[tokio::test]
async fn with_refuse_a_request_is_refused_with_a_reason_and_served_later() {
    let collector = Collector::start().await;
    collector.usually(Verdict::Status(503));
    let flags = [
        "--otlp-endpoint",
        &collector.url(),
        "--export-records",
        "--export-when-behind",
        "Refuse",
        "--history-max-bytes",
        "60000",
    ];
    let quick = |limits: &mut toolcrib_sidecar::app::Limits| limits.export = QUICK;
    let world = World::start_with(|_| {}, quick, &flags).await;
    let refused = loop {
        world.model.will(Wire::CHAT.will_say("hello"));
        let (status, body) = world.ask(world.wire.chat()).await;
        if status != 200 {
            assert_eq!(status, 503, "{body}");
            break body.to_string();
        }
    };
    assert!(refused.contains("record_unavailable"), "{refused}");
    assert!(refused.contains("OpenTelemetry Collector"), "{refused}");
    collector.usually(Verdict::Take);
    until("room", || world.server.app.history.ready().ok()).await;
    world.chat().await;
}
