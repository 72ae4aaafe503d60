//! A client of the mediator's `/mcp`, in both revisions.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use toolcrib_dialect::SseParser;

use super::{RUNNER, World, within};

pub const STATELESS: &str = "2026-07-28";
const MAX_EVENT: usize = 1024 * 1024;

impl World {
    /// Starts a native agent, whose tools are offered at `/mcp`.
    pub async fn native() -> World {
        Self::start_with(|files| files.agent["native"] = json!(true), |_| {}, &[]).await
    }

    /// One message, as the runner sends it.
    pub fn message(&self, message: &Value) -> RequestBuilder {
        self.runner
            .post(self.url("/mcp"))
            .bearer_auth(RUNNER)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message.to_string())
    }

    /// A request without a session.
    pub fn stateless(&self, method: &str, params: Value) -> RequestBuilder {
        let name = params["name"].as_str().map(ToString::to_string);
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let mut request = self.message(&message);
        request = request.header("mcp-protocol-version", STATELESS);
        request = request.header("mcp-method", method);
        match name {
            Some(name) => request.header("mcp-name", name),
            None => request,
        }
    }

    /// An existing session, or none.
    pub fn session(&self, name: &str) -> Session<'_> {
        Session {
            name: name.to_string(),
            world: self,
        }
    }

    /// Initializes a session.
    pub async fn greeted(&self) -> Session<'_> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = within("a session", self.message(&hello).send())
            .await
            .unwrap();
        let name = answer.headers()["mcp-session-id"].to_str().unwrap();
        self.session(name)
    }
}

pub struct Session<'w> {
    pub name: String,
    world: &'w World,
}

impl Session<'_> {
    pub fn with(&self, message: &Value) -> RequestBuilder {
        let request = self.world.message(message);
        request.header("mcp-session-id", &self.name)
    }

    pub async fn ask(&self, method: &str, params: Value) -> (u16, Value) {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        answered(self.with(&message)).await
    }

    pub fn calling(&self, name: &str, arguments: Value) -> RequestBuilder {
        let params = json!({"name": name, "arguments": arguments});
        self.with(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}))
    }

    /// Calls a tool; returns the text for the runner's model, and true if it is an error.
    pub async fn call(&self, name: &str, arguments: Value) -> (Value, bool) {
        let (status, answer) = answered(self.calling(name, arguments)).await;
        assert_eq!(status, 200, "{answer}");
        read(&answer["result"])
    }

    pub async fn names(&self) -> Vec<String> {
        names(&self.ask("tools/list", json!({})).await.1["result"])
    }

    pub async fn end(&self) {
        let end = self.world.runner.delete(self.world.url("/mcp"));
        let end = end.bearer_auth(RUNNER).header("mcp-session-id", &self.name);
        assert_eq!(answered(end).await.0, 204);
    }

    pub async fn listen(&self) -> Events {
        let request = self.world.runner.get(self.world.url("/mcp"));
        let request = request.bearer_auth(RUNNER);
        let request = request.header("mcp-session-id", &self.name);
        Events::of(request.header("accept", "text/event-stream")).await
    }
}

pub async fn answered(request: RequestBuilder) -> (u16, Value) {
    let response = within("an answer", request.send()).await.unwrap();
    let status = response.status().as_u16();
    let text = within("its body", response.text()).await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// Reads a tool's result: its JSON, and true if it is an error.
pub fn read(result: &Value) -> (Value, bool) {
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{result}"));
    let is_error = result["isError"].as_bool().unwrap();
    (serde_json::from_str(text).unwrap(), is_error)
}

pub fn names(result: &Value) -> Vec<String> {
    let tools = result["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{result}"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_string();
    tools.iter().map(name).collect()
}

/// A stream of messages, without keepalives.
pub struct Events {
    response: reqwest::Response,
    parser: SseParser,
    waiting: Vec<Value>,
}

impl Events {
    pub async fn of(request: RequestBuilder) -> Events {
        let response = within("a stream", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            response,
            parser: SseParser::new(MAX_EVENT),
            waiting: Vec::new(),
        }
    }

    /// The next message; `None` if the stream has ended.
    pub async fn next(&mut self) -> Option<Value> {
        while self.waiting.is_empty() {
            let chunk = within("an event", self.response.chunk()).await.unwrap()?;
            let events = self.parser.push(&chunk).unwrap();
            let messages = events.iter().filter(|event| !event.data.is_empty());
            let messages = messages.map(|event| serde_json::from_str(&event.data).unwrap());
            self.waiting.extend(messages);
        }
        Some(self.waiting.remove(0))
    }
}
