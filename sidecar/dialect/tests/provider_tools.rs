//! Requests that make the provider itself execute a tool or fetch a url, and requests that only
//! look like them.

use serde_json::{Value, json};
use toolcrib_dialect::{Dialect, DialectError, Request};

const REMOTE: &str = "https://attacker.example/?q=x";
const INLINE: &str = "data:image/png;base64,iVBORw0KGgo=";

fn request(dialect: Dialect, fields: Value) -> Request {
    let history = match dialect {
        Dialect::OpenaiChat | Dialect::AnthropicMessages => "messages",
        Dialect::OpenaiResponses => "input",
    };
    let mut body = json!({"model": "m", history: []});
    for (key, value) in fields.as_object().expect("fields") {
        body[key] = value.clone();
    }
    let body = body.to_string().into_bytes();
    Request::decode(dialect, body).expect("a body that is otherwise accepted")
}

#[track_caller]
fn refused(dialect: Dialect, fields: Value, field: &str) {
    assert_eq!(
        request(dialect, fields.clone()).refuse_provider_tools(),
        Err(DialectError::ProviderSide(field.to_owned())),
        "{dialect:?} {fields}"
    );
}

#[track_caller]
fn passes(dialect: Dialect, fields: Value) {
    assert_eq!(
        request(dialect, fields.clone()).refuse_provider_tools(),
        Ok(()),
        "{dialect:?} {fields}"
    );
}

fn said(content: Value) -> Value {
    json!([{"role": "user", "content": "hi"}, {"role": "user", "content": content}])
}

#[test]
fn fields_that_make_a_provider_search_or_connect_are_refused() {
    for dialect in Dialect::ALL {
        refused(
            dialect,
            json!({"mcp_servers": [{"type": "url", "url": REMOTE, "name": "x"}]}),
            "mcp_servers",
        );
        refused(
            dialect,
            json!({"web_search_options": {}}),
            "web_search_options",
        );
        refused(dialect, json!({"Plugins": [{"id": "web"}]}), "plugins");
        refused(
            dialect,
            json!({"search_parameters": {}}),
            "search_parameters",
        );
        refused(dialect, json!({"enable_search": true}), "enable_search");
        passes(
            dialect,
            json!({"enable_search": false, "mcp_servers": null}),
        );
        passes(dialect, json!({}));
    }
    let stored = json!({"prompt": {"id": "pmpt_1"}});
    refused(Dialect::OpenaiResponses, stored.clone(), "prompt");
    passes(Dialect::OpenaiChat, stored);
}

#[test]
fn tools_that_the_provider_executes_are_refused() {
    let function = json!({"type": "function", "function": {"name": "f"}});
    let chat = |tool: Value| json!({"tools": [function, tool]});
    passes(Dialect::OpenaiChat, json!({"tools": null}));
    passes(
        Dialect::OpenaiChat,
        chat(json!({"type": "custom", "custom": {"name": "c"}})),
    );
    for tool in [
        json!({"type": "web_search", "function": {"name": "w"}}),
        json!({"function": {"name": "untyped"}}),
    ] {
        refused(Dialect::OpenaiChat, chat(tool), "tools[1]");
    }

    let function = json!({"type": "function", "name": "f", "parameters": {}});
    let responses = |tool: Value| json!({"tools": [function, tool]});
    for kind in [
        "custom",
        "local_shell",
        "computer_use_preview",
        "apply_patch",
    ] {
        passes(
            Dialect::OpenaiResponses,
            responses(json!({"type": kind, "name": "n"})),
        );
    }
    for kind in [
        "mcp",
        "web_search",
        "web_search_preview_2025_03_11",
        "file_search",
        "code_interpreter",
        "image_generation",
        "shell",
    ] {
        let tool = json!({"type": kind, "name": "n", "server_url": REMOTE});
        refused(
            Dialect::OpenaiResponses,
            responses(tool.clone()),
            "tools[1]",
        );
        let item = json!({"input": [{"type": "additional_tools", "tools": [tool]}]});
        refused(Dialect::OpenaiResponses, item, "input[0].tools[0]");
    }
    let space = |kind: &str| json!({"type": "namespace", "name": "s", "tools": [{"type": kind, "name": "n"}]});
    passes(Dialect::OpenaiResponses, responses(space("function")));
    refused(
        Dialect::OpenaiResponses,
        responses(space("mcp")),
        "tools[1].tools[0]",
    );

    let anthropic = |tool: Value| json!({"tools": [{"name": "f", "input_schema": {}}, tool]});
    for kind in [
        "custom",
        "bash_20250124",
        "text_editor_20250728",
        "computer_20250124",
        "memory_20250818",
        "tool_search_tool_regex_20251119",
    ] {
        passes(
            Dialect::AnthropicMessages,
            anthropic(json!({"type": kind, "name": "n"})),
        );
    }
    for kind in [
        "web_search_20250305",
        "web_fetch_20250910",
        "code_execution_20250825",
        "mcp_toolset",
        "bash_code_execution",
    ] {
        refused(
            Dialect::AnthropicMessages,
            anthropic(json!({"type": kind, "name": "n"})),
            "tools[1]",
        );
    }
}

#[test]
fn remote_urls_are_refused_and_inline_content_passes() {
    let chat =
        |part: Value| json!({"messages": said(json!([{"type": "text", "text": REMOTE}, part]))});
    for (part, field) in [
        (
            json!({"type": "image_url", "image_url": {"url": REMOTE}}),
            "image_url",
        ),
        (
            json!({"type": "image_url", "image_url": REMOTE}),
            "image_url",
        ),
        (
            json!({"type": "image_url", "IMAGE_URL": {"URL": REMOTE}}),
            "image_url",
        ),
        (
            json!({"type": "image_url", "image_url": {"url": "gs://bucket/x"}}),
            "image_url",
        ),
        (
            json!({"type": "video_url", "video_url": {"url": REMOTE}}),
            "video_url",
        ),
        (
            json!({"type": "file", "file": {"file_data": REMOTE}}),
            "file",
        ),
        (
            json!({"type": "input_audio", "input_audio": {"data": REMOTE}}),
            "input_audio",
        ),
    ] {
        refused(
            Dialect::OpenaiChat,
            chat(part),
            &format!("messages[1].content[1].{field}"),
        );
    }
    for part in [
        json!({"type": "image_url", "image_url": {"url": INLINE, "detail": "low"}}),
        json!({"type": "image_url", "image_url": {"url": "DATA:image/png;base64,AA=="}}),
        json!({"type": "file", "file": {"file_data": INLINE, "filename": "a.png"}}),
        json!({"type": "file", "file": {"file_id": "file-1"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        json!({"type": "text", "text": "t", "annotations": [{"url_citation": {"url": REMOTE}}]}),
    ] {
        passes(Dialect::OpenaiChat, chat(part));
    }

    let responses = |part: Value| json!({"input": said(json!([part]))});
    for (part, field) in [
        (
            json!({"type": "input_image", "image_url": REMOTE}),
            ".image_url",
        ),
        (
            json!({"type": "input_file", "file_url": REMOTE}),
            ".file_url",
        ),
        (json!({"type": "input_file", "file_data": REMOTE}), ""),
    ] {
        refused(
            Dialect::OpenaiResponses,
            responses(part.clone()),
            &format!("input[1].content[0]{field}"),
        );
        let output =
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": [part]}]});
        refused(
            Dialect::OpenaiResponses,
            output,
            &format!("input[0].output[0]{field}"),
        );
    }
    let shot = |url: &str| json!({"input": [{"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}}]});
    refused(
        Dialect::OpenaiResponses,
        shot(REMOTE),
        "input[0].output.image_url",
    );
    passes(Dialect::OpenaiResponses, shot(INLINE));
    passes(
        Dialect::OpenaiResponses,
        responses(json!({"type": "input_file", "file_data": INLINE, "filename": "a"})),
    );
    // Arguments that the model wrote for a tool of the runner are not fetched.
    passes(
        Dialect::OpenaiResponses,
        json!({"input": [{"type": "function_call", "call_id": "c", "name": "browse", "arguments": format!("{{\"url\":\"{REMOTE}\"}}")}]}),
    );
    passes(Dialect::OpenaiResponses, json!({"input": REMOTE}));

    let anthropic = |block: Value| json!({"messages": said(json!([block]))});
    let by_url = json!({"type": "image", "source": {"type": "url", "url": REMOTE}});
    let inline = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let result =
        |inner: &Value| json!({"type": "tool_result", "tool_use_id": "t", "content": [inner]});
    let document = |inner: &Value| json!({"type": "document", "source": {"type": "content", "content": [inner]}});
    for (block, at) in [
        (by_url.clone(), ""),
        (
            json!({"type": "document", "source": {"type": "URL", "Url": REMOTE}}),
            "",
        ),
        (result(&by_url), ".content[0]"),
        (document(&by_url), ".source.content[0]"),
    ] {
        refused(
            Dialect::AnthropicMessages,
            anthropic(block),
            &format!("messages[1].content[0]{at}.source.url"),
        );
    }
    refused(
        Dialect::AnthropicMessages,
        json!({"system": [by_url]}),
        "system[0].source.url",
    );
    for block in [
        inline.clone(),
        result(&inline),
        document(&inline),
        json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": REMOTE}}),
        json!({"type": "search_result", "source": REMOTE, "title": "t", "content": [{"type": "text", "text": "t"}]}),
        json!({"type": "tool_use", "id": "t", "name": "browse", "input": {"url": REMOTE, "image_url": REMOTE}}),
        json!({"type": "text", "text": REMOTE}),
    ] {
        passes(Dialect::AnthropicMessages, anthropic(block));
    }
}

/// Readers behind the mediator may take the first or the last value. Most such bodies cannot even
/// be decoded.
#[test]
fn every_value_of_a_repeated_key_is_checked() {
    let body = |tool: &str, part: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}],"tools":[{tool}]}}"#
        )
        .into_bytes()
    };
    let read = |tool: &str, part: &str| {
        Request::decode(Dialect::OpenaiChat, body(tool, part))
            .and_then(|request| request.refuse_provider_tools())
    };
    const TOOL: &str = r#"{"type":"function","function":{"name":"f"}}"#;
    const PART: &str = r#"{"type":"image_url","image_url":{"url":"data:,"}}"#;
    assert_eq!(read(TOOL, PART), Ok(()));
    for tool in [
        r#"{"type":"function","type":"mcp","function":{"name":"f"}}"#,
        r#"{"type":"mcp","type":"function","function":{"name":"f"}}"#,
        r#"{"Type":"mcp","type":"function","function":{"name":"f"}}"#,
    ] {
        assert!(read(tool, PART).is_err(), "{tool}");
    }
    for part in [
        r#"{"type":"image_url","image_url":{"url":"https://a.test","url":"data:,"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:,"},"imageUrl":{"url":"https://a.test"}}"#,
    ] {
        assert!(read(TOOL, part).is_err(), "{part}");
    }
}

/// Nested blocks are read up to a depth, and refused beyond it: the work stays linear.
#[test]
fn blocks_that_nest_deep_are_refused() {
    let mut block = json!({"type": "text", "text": "t"});
    for _ in 0..20 {
        block = json!({"type": "tool_result", "tool_use_id": "t", "content": [block]});
    }
    let deep = request(
        Dialect::AnthropicMessages,
        json!({"messages": said(json!([block]))}),
    );
    assert!(deep.refuse_provider_tools().is_err());
}
