//! Fuzz targets: bytes of a runner, a model or a network, mutated from the case files. No input
//! panics, and the invariants hold for every input.
//!
//! `toolcrib-fuzz` sets the number of inputs and the time. A failure prints its input; save it
//! under `tests/corpus/<target>/`, and every run tries it.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]
#![expect(clippy::disallowed_methods, reason = "seeds are files")]

use std::fs;
use std::path::Path;

use toolcrib_dialect::*;
use toolcrib_fuzz::Rng;

/// Words that a mutation inserts: names that parsers look for, and syntax that is hard to parse.
const WORDS: &[&str] = &[
    "{}",
    "[]",
    "null",
    "\"\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "0",
    "-1",
    "1e999",
    "18446744073709551616",
    "true",
    "\n\n",
    "\r",
    "\n",
    "data: ",
    "event: ",
    ": x\n",
    "data: [DONE]\n\n",
    "\u{feff}",
    "é",
    "\"type\":",
    "\"index\":",
    "\"tool_use\"",
    "\"function_call\"",
    "\"tool_calls\":",
    "\"content\":",
    "\"output\":",
    "\"output_index\":",
    "\"delta\":",
    "\"usage\":",
    "\"stream\":true",
    "\"role\":\"assistant\"",
];

/// Returns the case files with these names, and the inputs of earlier failures from the corpus.
fn seeds(target: &str, names: &[&str]) -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut seeds = Vec::new();
    for dialect in Dialect::ALL {
        for case in fs::read_dir(tests.join("cases").join(dialect.name())).unwrap() {
            let case = case.unwrap().path();
            seeds.extend(
                names
                    .iter()
                    .filter_map(|name| fs::read(case.join(name)).ok()),
            );
        }
    }
    seeds.sort();
    if let Ok(found) = fs::read_dir(tests.join("corpus").join(target)) {
        let mut found: Vec<_> = found.map(|file| file.unwrap().path()).collect();
        found.sort();
        seeds.extend(found.into_iter().map(|file| fs::read(file).unwrap()));
    }
    assert!(seeds.len() > 3, "{target} has no seeds");
    seeds
}

/// Runs a target of the case files with these names.
fn fuzz(target: &str, names: &[&str], run: impl Fn(&[u8], &mut Rng)) {
    toolcrib_fuzz::fuzz(target, &seeds(target, names), WORDS, run);
}

fn declared() -> ToolDeclaration {
    ToolDeclaration {
        name: "pond__depth".into(),
        description: "How deep".into(),
        schema: "{}".into(),
    }
}

fn is_json(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| json::checked(text).is_some())
}

#[test]
fn requests_keep_every_byte_that_no_edit_names() {
    fuzz(
        "request",
        &["request.json", "first.json", "next.json"],
        |bytes, _| {
            for dialect in Dialect::ALL {
                let Ok(request) = Request::decode(dialect, bytes.to_vec()) else {
                    continue;
                };
                let model = request.model().unwrap_or_default();
                let same = request.encode(&Edits::new(&model)).unwrap();
                let fields = json::Object::scan(request.as_text()).unwrap();
                if fields.get(request.as_text(), "model") == Some(&json::quote(&model)) {
                    assert_eq!(
                        same.escape_ascii().to_string(),
                        bytes.escape_ascii().to_string()
                    );
                }
                let mut edits = Edits::new("otter-1");
                edits.tools = DeclaredTools::new(dialect, &[declared()]);
                edits.stream = StreamEdit::Stream;
                edits.normalize_legacy = request.legacy_functions();
                edits.appended = vec![r#"{"role":"user","content":"more"}"#.into()];
                edits.context = Some("feed".into());
                let Ok(edited) = request.encode(&edits) else {
                    continue;
                };
                assert!(is_json(&edited));
                let again = Request::decode(dialect, edited).unwrap();
                assert_eq!(again.model().as_deref(), Some("otter-1"));
                assert!(again.stream() && again.tools().contains(&"pond__depth".to_string()));
            }
        },
    );
}

#[test]
fn replies_are_decoded_and_re_encoded() {
    fuzz(
        "reply",
        &["reply.json", "answer.json", "emptied.json"],
        |bytes, _| {
            for dialect in Dialect::ALL {
                let Ok(reply) = Reply::decode(dialect, bytes.to_vec()) else {
                    continue;
                };
                let results: Vec<ToolResult> = (0..reply.calls().len())
                    .map(|call| ToolResult {
                        call,
                        content: "{}".into(),
                    })
                    .collect();
                if let Ok(items) = reply.items(&results, |name| Some(format!("{name}_"))) {
                    assert!(items.iter().all(|item| is_json(item.as_bytes())));
                }
                if let Ok(empty) = terminal_answer(&reply) {
                    assert_eq!((empty.calls().len(), empty.content()), (0, None));
                }
                let history = match dialect {
                    Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
                    Dialect::OpenaiResponses => "input",
                };
                for stream in [true, false] {
                    let asked = format!(r#"{{"model":"m","stream":{stream},"{history}":[]}}"#);
                    let request = Request::decode(dialect, asked.into_bytes()).unwrap();
                    let Ok(answer) = answer(&request, &reply, Some(reply.usage())) else {
                        continue;
                    };
                    if stream {
                        let events = SseParser::new(MAX_REPLY).push(&answer.body).unwrap();
                        let whole =
                            |it: &SseEvent| it.data == "[DONE]" || is_json(it.data.as_bytes());
                        assert!(events.iter().all(whole));
                    } else {
                        assert!(is_json(&answer.body));
                    }
                }
            }
        },
    );
}

#[test]
fn any_chunking_gives_equal_events() {
    fuzz("sse", &["answer.sse", "upstream.sse"], |bytes, rng| {
        let whole = SseParser::new(1 << 16).push(bytes);
        let mut parser = SseParser::new(1 << 16);
        let (mut pieces, mut rest) = (Ok(Vec::new()), bytes);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + rng.below(rest.len()));
            rest = later;
            pieces = match (pieces, parser.push(now)) {
                (Ok(mut all), Ok(more)) => {
                    all.extend(more);
                    Ok(all)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        assert_eq!(pieces, whole);
    });
}

#[test]
fn streams_are_reassembled_and_re_encoded() {
    fuzz("stream", &["answer.sse", "upstream.sse"], |bytes, rng| {
        let Ok(events) = SseParser::new(MAX_REPLY).push(bytes) else {
            return;
        };
        for dialect in Dialect::ALL {
            let history = match dialect {
                Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
                Dialect::OpenaiResponses => "input",
            };
            let asked = format!(r#"{{"model":"m","stream":true,"{history}":[]}}"#);
            let request = Request::decode(dialect, asked.into_bytes()).unwrap();
            let mut whole = Live::new(&request, MAX_REPLY);
            let mut pieces = Live::new(&request, MAX_REPLY);
            let at_once = whole.push(&request, events.clone());
            let mut one_by_one = Ok(String::new());
            for event in events.clone() {
                one_by_one = match (one_by_one, pieces.push(&request, [event])) {
                    (Ok(all), Ok(more)) => Ok(all + &more),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                };
            }
            assert_eq!(at_once, one_by_one);
            let (Ok(_), Ok(reply)) = (at_once, whole.reply()) else {
                continue;
            };
            // Hidden round or answer: both produce frames.
            let rest = match rng.below(2) {
                0 => whole.hide(&reply),
                _ => whole.end(&request, &reply, Some(reply.usage())),
            };
            let said = SseParser::new(MAX_REPLY).push(rest.unwrap_or_default().as_bytes());
            let json = |it: &SseEvent| it.data == "[DONE]" || is_json(it.data.as_bytes());
            assert!(said.unwrap().iter().all(json));
        }
    });
}
