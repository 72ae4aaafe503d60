//! Each directory `cases/<dialect>/<case>/` holds a request and a reply as received, and the
//! committed bodies that are derived from them. After an intended change: `UPDATE_EXPECT=1 cargo
//! test -p toolcrib-dialect --test cases`, then read the diff.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]
#![expect(clippy::disallowed_methods, reason = "case files are read here")]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;
use toolcrib_dialect::*;
use toolcrib_golden::{Suite, cases, here};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut suite = Suite::default();
    for dialect in Dialect::ALL {
        suite = suite.cases(cases(&root.join(dialect.name()), None), move |case| {
            check(dialect, case);
            reassembles(dialect, case);
        });
    }
    suite.run()
}

fn check(dialect: Dialect, case: &Path) {
    let read = |name: &str| fs::read(case.join(name)).unwrap();
    let request = Request::decode(dialect, read("request.json")).unwrap();
    let reply = Reply::decode(dialect, read("reply.json")).unwrap();

    // Without a change, every byte stays.
    let same = request
        .encode(&Edits::new(request.model().unwrap()))
        .unwrap();
    assert_eq!(same, read("request.json"), "{case:?}");

    let mut edits = Edits::new("otter-1");
    edits.stream = StreamEdit::Whole;
    edits.normalize_legacy = request.legacy_functions();
    edits.choice_names = vec![("pond.depth".into(), "pond__depth".into())];
    let depth = ToolDeclaration {
        name: "pond__depth".into(),
        description: "How \"deep\"".into(),
        schema: r#"{"type":"object", "properties":{"at":{"type":"number","maximum":1.0}}}"#.into(),
    };
    edits.tools = DeclaredTools::new(request.dialect(), &[depth]);
    expect(case, "first.json", &request.encode(&edits).unwrap());

    let results: Vec<ToolResult> = (0..reply.calls().len())
        .filter(|call| reply.calls()[*call].name != "shell")
        .map(|call| ToolResult {
            call,
            content: format!("{{\"ok\":true,\"data\":\"result {call}\"}}"),
        })
        .collect();
    let spell = |name: &str| (name == "pond.depth").then(|| "pond__depth".to_string());
    edits.appended = reply.items(&results, spell).unwrap();
    edits.prompt = Some("# Tools\n\n- `pond.depth`".into());
    edits.context = Some("feed: 12 °C".into());
    edits.container = reply.container();
    edits.inserted = vec![Insertion {
        before: 0,
        items: vec![r#"{"role":"user","content":"put in"}"#.into()],
        replaced: 0,
    }];
    edits.tool_choice = ToolChoiceEdit::Auto;
    expect(case, "next.json", &request.encode(&edits).unwrap());

    let usage = Usage {
        prompt_tokens: 1000,
        completion_tokens: 200,
        cache_read_tokens: 30,
        cache_write_tokens: 4,
        reasoning_tokens: 7,
    };
    let unsummed = answer(&with_stream(&request, false), &reply, None).unwrap();
    // Only the members that repeat the request are replaced by the runner's.
    let says_tools = text_member(&reply, "tools");
    if !request.legacy_functions() && !says_tools {
        assert_eq!(unsummed.body, read("reply.json"), "{case:?}: unchanged");
    }
    let whole = answer(&with_stream(&request, false), &reply, Some(usage)).unwrap();
    expect(case, "answer.json", &whole.body);

    let streamed = answer(&with_stream(&request, true), &reply, Some(usage)).unwrap();
    assert_eq!(streamed.content_type, "text/event-stream");
    expect(case, "answer.sse", &streamed.body);

    let again = reassembled(dialect, &events(&streamed.body)).unwrap();
    let stored = Reply::decode(dialect, whole.body).unwrap();
    assert_eq!(again.calls(), stored.calls(), "{case:?}");
    assert_eq!(again.content(), reply.content(), "{case:?}");
    assert_eq!(again.finish(), stored.finish(), "{case:?}");
    assert_eq!(again.usage(), usage, "{case:?}");
    let cut = reassembled(dialect, &events(&streamed.body)[..1]);
    assert_eq!(cut, Err(DialectError::StreamCut), "{case:?}");

    let emptied = terminal_answer(&reply).unwrap();
    expect(case, "emptied.json", emptied.as_text().as_bytes());
    let streamed = answer(&with_stream(&request, true), &emptied, None).unwrap();
    let again = reassembled(dialect, &events(&streamed.body)).unwrap();
    assert_eq!(blocks(&again), blocks(&emptied), "{case:?}");
    assert_eq!(again.finish(), emptied.finish(), "{case:?}");
}

/// An empty answer still has the elements that clients index.
fn blocks(reply: &Reply) -> Vec<Value> {
    let body: Value = serde_json::from_str(reply.as_text()).unwrap();
    let blocks = body["content"].as_array().cloned().unwrap_or_default();
    let wants = usize::from(reply.dialect() == Dialect::AnthropicMessages);
    assert_eq!(blocks.len(), wants);
    blocks
}

/// A provider's own stream, with pieces that our streams do not have.
fn reassembles(dialect: Dialect, case: &Path) {
    let Ok(stream) = fs::read(case.join("upstream.sse")) else {
        return;
    };
    let reply = reassembled(dialect, &events(&stream)).unwrap();
    expect(case, "upstream.json", reply.as_text().as_bytes());
}

/// The events of a stream, equal for any chunking.
fn events(stream: &[u8]) -> Vec<SseEvent> {
    let whole = SseParser::new(1 << 20).push(stream).unwrap();
    for size in [1, 2, 3, 61] {
        let mut parser = SseParser::new(1 << 20);
        let pieces: Vec<SseEvent> = stream
            .chunks(size)
            .flat_map(|chunk| parser.push(chunk).unwrap())
            .collect();
        assert_eq!(pieces, whole, "in pieces of {size}");
    }
    whole
}

fn reassembled(dialect: Dialect, events: &[SseEvent]) -> Result<Reply, DialectError> {
    let mut reassembly = Reassembly::new(dialect, MAX_REPLY);
    for event in events {
        reassembly.push(event.clone())?;
    }
    reassembly.finish()
}

fn text_member(reply: &Reply, key: &str) -> bool {
    let body = json::Object::scan(reply.as_text()).unwrap();
    body.member(key).is_some()
}

fn with_stream(request: &Request, stream: bool) -> Request {
    let body = json::Object::scan(request.as_text()).unwrap();
    let mut options = vec![("stream", stream.to_string())];
    if request.dialect() == Dialect::OpenaiChat {
        options.push(("stream_options", r#"{"include_usage":true}"#.into()));
    }
    let text = body.edit(
        request.as_text(),
        |member| match member.key.as_str() {
            "stream" | "stream_options" => json::Change::Drop,
            _ => json::Change::Keep,
        },
        &options,
    );
    Request::decode(request.dialect(), text.into_bytes()).unwrap()
}

fn expect(case: &Path, name: &str, body: &[u8]) {
    let text = std::str::from_utf8(body).unwrap();
    toolcrib_golden::expect(here!(), &case.join(name), text);
}
