//! The verbs' work on foreign bytes, without the IO around it.
//!
//! `e2e/growth` calls these functions to measure how the work grows. Not here: the bounds on the
//! bytes. A function returns the size of its result; `None` if it refused its input.

use std::collections::BTreeMap;

use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use toolcrib_compile::ObjectRef;

use crate::authoring::image;
use crate::authoring::image::platform::Platform;
use crate::authoring::import::{self, ImportOptions, PodImport};
use crate::authoring::mcp;
use crate::authoring::openapi::{self, Choice, Remarks, SurfaceOptions};
use crate::commands;
use crate::commands::authoring::review;
use crate::commands::authoring::review::{Listing, SurfaceName};
use crate::print;
use crate::propose::evidence::Evidence;
use crate::propose::grant;
use crate::propose::offers::OfferedTool;
use crate::record::{Entry, Joiner};

/// Converts an OpenAPI document to a Surface.
pub fn openapi(text: &str) -> Option<usize> {
    let document = openapi::parse(text).ok()?;
    let wanted = SurfaceOptions {
        name: "reef".to_owned(),
        namespace: "pond".to_owned(),
        address: None,
        choice: Choice::default(),
    };
    let described = openapi::describe(&document, &wanted).ok()?;
    Some(described.remarks.len())
}

/// Joins the lines of a record into calls. Returns their number.
pub fn calls_of_record(text: &str) -> Option<usize> {
    let mut calls = 0;
    let mut count = |entry| calls += usize::from(matches!(entry, Entry::Call(_)));
    let mut joiner = Joiner::default();
    for line in text.lines() {
        joiner.push(line.as_bytes(), &mut count);
    }
    joiner.end(&mut count);
    Some(calls)
}

/// Proposes grants from the calls of the tool `pond.n`, with arguments `a` to `z`. Returns the bytes
/// of their text.
pub fn proposed_grants(text: &str) -> Option<usize> {
    let letters = ('a'..='z').map(|name| (name.to_string(), json!(true)));
    let offer = OfferedTool {
        surface: ObjectRef::new("pond", "pond"),
        name: "n".to_owned(),
        arguments: letters.collect(),
        schema: serde_json::Map::new(),
    };
    let offers = BTreeMap::from([("pond.n".to_owned(), offer)]);
    let mut evidence = Evidence::default();
    let mut add = |entry| {
        if let Entry::Call(call) = entry {
            evidence.add(&call, &offers);
        }
    };
    let mut joiner = Joiner::default();
    for line in text.lines() {
        joiner.push(line.as_bytes(), &mut add);
    }
    joiner.end(&mut add);
    let used = grant::used(&evidence, &offers, true);
    let agent = ObjectRef::new("pond", "otter");
    let grants = grant::grants(&agent, "otter-proposed", &used, &[]).ok()?;
    let texts = grants.iter().map(|grant| {
        let text = print::annotated(&[], &grant.object, &grant.notes);
        Some(text.ok()?.len())
    });
    texts.sum()
}

/// Converts a pod file to objects, and compiles them.
pub fn pod_file(text: &str) -> Option<usize> {
    let read = import::read(text).ok()?;
    imported(read, &ImportOptions::default())
}

/// Imports a pod file whose service has this descriptor, and whose agent wants two of its feeds.
pub fn service_descriptor(text: &str) -> Option<usize> {
    const POD: &str = "\
x-claw: {pod: pond}
services:
  reef: {image: i, expose: [80]}
  otter:
    x-claw:
      agent: ./otter.md
      tools: [reef]
      feeds: [tides, {source: reef, name: swell, path: /swell}]
";
    let mut read = import::read(POD).ok()?;
    let mut descriptor = import::describe::parse(text).ok()?;
    read.adapt("reef", &mut descriptor, None);
    let mut given = ImportOptions::default();
    given.descriptors.insert("reef".to_owned(), descriptor);
    imported(read, &given)
}

fn imported(read: PodImport, given: &ImportOptions) -> Option<usize> {
    let translated = read.translate(given);
    let files = translated.files.iter();
    let texts = files
        .filter_map(|file| Some((file.name.to_owned(), file.text().ok()?)))
        .collect();
    let report = commands::authoring::import::check(translated, texts);
    Some(report.findings.len() + report.loaded.diagnostics.len())
}

/// Reads a file of variables.
pub fn variables(text: &str) -> Option<usize> {
    Some(import::dotenv(text).ok()?.len())
}

/// Finds the answer to request 7 in a stream of an MCP server.
pub fn mcp_stream(text: &str) -> Option<usize> {
    let chunk = bytes::Bytes::copy_from_slice(text.as_bytes());
    let chunks = stream::iter([Ok(chunk)]).boxed();
    let answer = mcp::http::from_stream(chunks, 7).now_or_never()?.ok()??;
    Some(answer.map_or(0, |result| result.get().len()))
}

/// Converts the tools that an MCP server lists to a Surface, and compares it with an empty one.
pub fn tool_list(text: &str) -> Option<usize> {
    let Value::Array(listed) = serde_json::from_str(text).ok()? else {
        return None;
    };
    let surface = review::new_surface(&NAME, json!({"mcp": {"path": "/mcp"}}));
    let listing = Listing::of(Some(&surface), &listed, "the server's list").ok()?;
    let reviewed = review::with_mcp_tools(surface, listing.tools);
    // The second listing, which is compared with the first one.
    let again = Listing::of(Some(&reviewed), &listed, "the server's list").ok()?;
    let new = again.new_remarks(&reviewed).ok()?.len();
    let text = review::text(reviewed, review::NOT_GRANTED, &listing.remarks).ok()?;
    Some(text.len() + new + listing.drift.len())
}

/// Converts the descriptor in an image to a Surface, and compares it with an empty one.
pub fn image_descriptor(text: &str) -> Option<usize> {
    let descriptor: Value = serde_json::from_str(text).ok()?;
    let mut remarks = Remarks::default();
    let none = image::described::Skill::None;
    let now = image::descriptor::for_review(descriptor, none, NAME.name, &mut remarks);
    let before = json!({"tools": now["tools"]});
    let drift = image::descriptor::drift(&before, &now).len();
    let surface = review::new_surface(&NAME, json!({"descriptor": now}));
    let text = review::text(surface, review::NOT_GRANTED, &remarks).ok()?;
    Some(text.len() + drift)
}

/// Searches an uncompressed layer of an image for a file.
pub fn layer(bytes: &[u8]) -> Option<usize> {
    let place = image::layer::ImagePath::parse("/pond/fish.json")?;
    match image::layer::find_file(bytes, &place).ok()? {
        image::layer::LayerEntry::File(bytes) => Some(bytes.len()),
        image::layer::LayerEntry::Nothing | image::layer::LayerEntry::Removed => Some(0),
    }
}

/// Reads a registry's answer: the manifest of an image, or a list of manifests.
pub fn image_manifest(text: &str) -> Option<usize> {
    let platform = Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
    };
    let digest = image::registry::digest_of(text.as_bytes(), &platform);
    Some(digest.ok()?.len())
}

/// Reads the labels in an image's config.
pub fn image_config(text: &str) -> Option<usize> {
    Some(image::registry::labels_of(text.as_bytes()).ok()?.len())
}

const NAME: SurfaceName<'static> = SurfaceName {
    name: "reef",
    namespace: "pond",
};

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry point that refuses all input would show no growth.
    #[test]
    fn each_function_accepts_valid_input() {
        const TURN: &str = r#"{"kind":"turn","request_id":"r","agent_id":"a","pod":"p","timestamp":"t","dialect":"openai","token":"t","http_status":200,"duration_ms":1,"status":"ok","usage":{"prompt_tokens":1,"completion_tokens":1},"tool_trace":[{"round":1,"round_usage":{"prompt_tokens":1,"completion_tokens":1},"tool_calls":[{"call_id":"c","name":"pond.n","arguments":{"a":1},"result":{},"latency_ms":1,"executed":true}]}]}"#;
        assert!(proposed_grants(TURN) > Some(0));
        let openapi_document = json!({
            "openapi": "3.0.3", "info": {"title": "reef", "version": "1"},
            "servers": [{"url": "https://reef.test"}], "paths": {"/b": {"get": {}}},
        });
        assert!(openapi(&openapi_document.to_string()).is_some());
        let pod = "x-claw:\n  pod: reef\nservices:\n  s:\n    x-claw:\n      agent: ./a.md\n";
        assert!(pod_file(pod) > Some(0));
        assert_eq!(pod_file("["), None);
        let tools = r#"[{"name":"swim","inputSchema":{"type":"object","properties":{"to":{}}}}]"#;
        let described = format!(r#"{{"version":2,"tools":{tools}}}"#);
        assert!(service_descriptor(&described) > Some(0));
        assert!(image_descriptor(&described) > Some(0));
        assert!(tool_list(tools) > Some(0));
        assert_eq!(variables("FISH=trout\n"), Some(1));
        assert!(mcp_stream("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n") > Some(0));
        let list = r#"{"schemaVersion":2,"manifests":[{"mediaType":"m","digest":"sha256:1","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}"#;
        assert_eq!(image_manifest(list), Some("sha256:1".len()));
        assert_eq!(image_config(r#"{"config":{"Labels":{"a":"b"}}}"#), Some(1));
        assert_eq!(layer(&[0; 1024]), Some(0));
    }
}
