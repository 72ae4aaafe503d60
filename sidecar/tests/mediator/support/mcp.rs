//! Messages of an MCP server, of both revisions, written from the specification and not with the
//! product's own reader.

use serde_json::{Value, json};

use super::{Answer, Fake, Files, World};

impl Files {
    /// Makes the desk an MCP server: its tools are called over `/mcp`.
    pub fn over_mcp(&mut self) {
        for tool in self.tools["tools"].as_array_mut().unwrap() {
            let name = tool["name"].as_str().unwrap().strip_prefix("desk.");
            let name = name.unwrap().to_string();
            let execution = &mut tool["execution"];
            *execution = json!({"transport": "mcp", "service": "desk", "path": "/mcp",
                "base_url": execution["base_url"], "tool_name": name,
                "auth": execution["auth"]});
        }
    }
}

/// A message with the id of the request that it answers.
pub fn message(key: &str, value: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "$ID", key: value})
}

pub fn answers(key: &str, value: Value) -> Answer {
    Answer::json(message(key, value))
}

/// A request of the server to the client.
pub fn asks(id: Value, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}})
}

pub fn progress() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 0.5}})
}

/// The messages as events, one chunk each.
pub fn events(messages: &[Value]) -> Answer {
    let frames = messages.iter();
    let frames: Vec<_> = frames
        .map(|it| format!("event: message\nid: e-1\ndata: {it}\n\n"))
        .collect();
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    Answer::chunks(200, &frames).header("content-type", "text/event-stream")
}

pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub fn accepted() -> Answer {
    Answer::text(202, "")
}

impl Fake {
    /// The server speaks the stateless revision.
    pub fn will_discover(&self) {
        self.will(answers(
            "result",
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "resultType": "complete"}),
        ));
    }

    /// The server speaks the earlier revision, in this session.
    pub fn will_greet(&self, session: &str) {
        let no = json!({"jsonrpc": "2.0", "id": null,
            "error": {"code": -32000, "message": "Bad Request: no session"}});
        self.will(Answer::text(400, &no.to_string()).header("content-type", "application/json"));
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "desk", "version": "1"}});
        let mut hello = answers("result", hello);
        if !session.is_empty() {
            hello = hello.header("Mcp-Session-Id", session);
        }
        self.will(hello);
        self.will(accepted());
    }

    /// The requests in order, by method, revision and session: `tools/call 2025-11-25 s-1`.
    pub fn spoken(&self) -> Vec<String> {
        let requests = self.requests();
        let spoken = requests.iter().map(|it| {
            let body: Value = serde_json::from_slice(&it.body).unwrap_or_default();
            let method = body["method"].as_str().unwrap_or(&it.method);
            let header = |name: &str| it.header(name).unwrap_or("-").to_string();
            let (revision, session) = (header("mcp-protocol-version"), header("mcp-session-id"));
            format!("{method} {revision} {session}")
        });
        spoken.collect()
    }
}

impl World {
    /// Makes one call of `tool` with this symbol; returns the result that the model read.
    pub async fn call_mcp(&self, tool: &str, symbol: &str) -> Value {
        let arguments = json!({"symbol": symbol}).to_string();
        self.model
            .will(self.wire.will_call(&[("c1", tool, &arguments)]));
        self.model.will(self.wire.will_say("done"));
        self.chat().await;
        self.result()
    }

    pub async fn quote_mcp(&self, symbol: &str) -> Value {
        self.call_mcp("desk__quote", symbol).await
    }
}
