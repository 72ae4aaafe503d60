//! The content of exported lines: with and without arguments, with hostile data.

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde_json::json;

use super::rig::QUICK;
use crate::support::collector::{Collector, attribute, body};
use crate::support::{Answer, MODEL_KEY, RUNNER, TOOL_TOKEN, Wire, World};

/// Runs a turn with two calls, of which the second fails, and returns what a drain has exported.
async fn exported(wire: Wire, flags: &[&str]) -> Vec<LogRecord> {
    let collector = Collector::start().await;
    let url = collector.url();
    let mut all = vec!["--otlp-endpoint", &*url, "--export-records"];
    all.extend(flags);
    let speak = |files: &mut crate::support::Files| files.speak(wire.0);
    let quick = |limits: &mut toolcrib_sidecar::app::Limits| limits.export = QUICK;
    let mut world = World::start_with(speak, quick, &all).await;
    world.wire = wire;
    let arguments = json!({"symbol": format!("HOSTILE\"}}]\n{{\"kind\":\"gap\"}}{TOOL_TOKEN}")});
    let arguments = arguments.to_string();
    world.model.will(wire.will_call(&[
        ("c1", "desk__order", &*arguments),
        ("c2", "desk__quote", r#"{"symbol":"HOSTILE-2"}"#),
        ("c3", "made_up", r#"{"symbol":"HOSTILE-3"}"#),
    ]));
    world.desk.will(Answer::json(
        json!({"price": "HOSTILE-RESULT", "key": TOOL_TOKEN}),
    ));
    world.desk.will(Answer::text(503, "HOSTILE-ERROR"));
    world.model.will(wire.will_say("HOSTILE-ANSWER"));
    world.chat().await;
    world.server.drain().await;
    collector.records()
}

#[tokio::test]
async fn a_line_has_its_place_and_no_arguments_unless_they_are_exported() {
    for wire in Wire::all() {
        let records = exported(wire, &[]).await;
        let kinds: Vec<String> = records
            .iter()
            .map(|it| attribute(it, "toolcrib.kind"))
            .collect();
        assert_eq!(kinds, ["start", "model_call", "intent", "intent", "turn"]);
        for record in &records {
            for (key, value) in [
                ("toolcrib.agent", "otter"),
                ("toolcrib.namespace", "pond"),
                ("toolcrib.pod", "otter-0"),
                ("toolcrib.arguments", "false"),
            ] {
                assert_eq!(attribute(record, key), value, "{key}");
            }
            assert_eq!(attribute(record, "toolcrib.hash").len(), 64);
            assert_eq!(attribute(record, "toolcrib.prev").len(), 64);
            assert!(record.time_unix_nano > 0);
            let text = body(record);
            for absent in ["HOSTILE", "how deep?", MODEL_KEY, TOOL_TOKEN, RUNNER] {
                assert!(!text.contains(absent), "{absent}: {text}");
            }
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["kind"], attribute(record, "toolcrib.kind"));
        }
        let seqs: Vec<String> = records
            .iter()
            .map(|it| attribute(it, "toolcrib.seq"))
            .collect();
        assert_eq!(seqs, ["0", "", "1", "2", "3"]);
        let turn: serde_json::Value = serde_json::from_str(&body(&records[4])).unwrap();
        let calls = &turn["tool_trace"][0]["tool_calls"];
        assert_eq!(calls[0]["arguments"], "[not exported]");
        assert_eq!(calls[1]["result"]["error"]["code"], "http_503");
    }
}

#[tokio::test]
async fn exported_arguments_are_scrubbed_and_bodies_stay_here() {
    for wire in Wire::all() {
        let records = exported(wire, &["--export-arguments"]).await;
        let texts: Vec<String> = records.iter().map(body).collect();
        let all = texts.join("\n");
        for present in ["HOSTILE-2", "HOSTILE-RESULT", "HOSTILE-ERROR", "[redacted]"] {
            assert!(all.contains(present), "{present}: {all}");
        }
        for absent in ["how deep?", "HOSTILE-ANSWER", MODEL_KEY, TOOL_TOKEN, RUNNER] {
            assert!(!all.contains(absent), "{absent}: {all}");
        }
        assert!(texts.iter().all(|text| !text.contains('\n')));
        let mut verifier = toolcrib_record::Verifier::default();
        for text in &texts {
            verifier.push(text.as_bytes()).unwrap();
        }
        let (reports, sources) = verifier.finish(&[]);
        assert!(
            reports.iter().all(toolcrib_record::ChainReport::is_whole),
            "{reports:?}"
        );
        assert_eq!(
            (sources[0].lines, sources[0].unchained, sources[0].broken),
            (5, 0, 0)
        );
        let same = |record: &LogRecord| {
            let text = body(record);
            let link = toolcrib_record::short_form(text.as_bytes()).unwrap();
            (link.digest.to_string(), attribute(record, "toolcrib.hash"))
        };
        assert!(records.iter().map(same).all(|(link, hash)| link == hash));
    }
}
