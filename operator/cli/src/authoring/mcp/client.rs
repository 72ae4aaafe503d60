//! Lists a server's tools: the handshake, and all pages. The handshake has the older form, which
//! current servers answer as well. A server that knows only newer revisions is asked without one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use toolcrib_mcp::revision::{META, NEWEST_HANDSHAKE, STATELESS, implementation, request_meta};

use super::{http::Http, stdio::Stdio};
use crate::print::brief;

/// Limit on pages: more than any server has, so that an endless list ends.
const PAGES: usize = 64;
const TOOLS: usize = 4096;
/// Limit on the whole listing: a server that is installed at its first start is slow.
const DEADLINE: Duration = Duration::from_secs(120);

pub enum Server {
    Http(Http),
    Stdio(Stdio),
}

/// An error that the server sent.
#[derive(Debug, thiserror::Error)]
#[error("the server answered with error {code}: {message}")]
pub struct ServerError {
    code: i64,
    message: String,
}

impl Server {
    /// Returns all tools as the server writes them.
    pub async fn tools(mut self) -> anyhow::Result<Vec<Value>> {
        let listed = tokio::time::timeout(DEADLINE, self.list()).await;
        if let Self::Http(http) = &self {
            http.end().await;
        }
        listed.with_context(|| {
            format!(
                "the server did not list its tools within {} s",
                DEADLINE.as_secs()
            )
        })?
    }

    async fn list(&mut self) -> anyhow::Result<Vec<Value>> {
        let is_greeted = match self.greet().await {
            Ok(()) => true,
            Err(error) if error.is::<ServerError>() => false,
            Err(error) => return Err(error),
        };
        let mut tools = Vec::new();
        let mut cursors = BTreeSet::new();
        let mut params = json!({});
        for page in 0..PAGES {
            if !is_greeted {
                params[META] = request_meta(client_info());
            }
            let id = u64::try_from(page)? + 2;
            let mut result = self.ask(id, "tools/list", &params).await?;
            let Some(Value::Array(more)) = result.get_mut("tools").map(Value::take) else {
                bail!("the server's answer to tools/list has no list of tools");
            };
            tools.extend(more);
            ensure!(
                tools.len() <= TOOLS,
                "the server lists more than {TOOLS} tools"
            );
            let Some(cursor) = result.get("nextCursor").and_then(Value::as_str) else {
                return Ok(tools);
            };
            ensure!(
                cursors.insert(cursor.to_owned()),
                "the server's pages go in a circle"
            );
            params = json!({"cursor": cursor});
        }
        bail!("the server has more than {PAGES} pages of tools")
    }

    async fn greet(&mut self) -> anyhow::Result<()> {
        let params = json!({
            "protocolVersion": NEWEST_HANDSHAKE,
            "capabilities": {},
            "clientInfo": client_info(),
        });
        let result = match self.ask(1, "initialize", &params).await {
            Ok(result) => result,
            Err(error) => {
                if let Self::Http(http) = self {
                    http.speak(STATELESS);
                }
                return Err(error);
            }
        };
        let version = result["protocolVersion"].as_str();
        let version =
            version.context("the server's answer to initialize names no protocolVersion")?;
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        match self {
            Self::Http(http) => {
                http.speak(version);
                http.notify(&done).await
            }
            Self::Stdio(stdio) => stdio.write(&done).await,
        }
    }

    async fn ask(&mut self, id: u64, method: &str, params: &Value) -> anyhow::Result<Value> {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut answer = match self {
            Self::Http(http) => http.ask(id, method, &request).await?,
            Self::Stdio(stdio) => stdio.ask(id, &request).await?,
        };
        if let Some(error) = answer.get("error") {
            bail!(ServerError {
                code: error["code"].as_i64().unwrap_or_default(),
                message: brief(error["message"].as_str().unwrap_or_default()),
            });
        }
        answer
            .get_mut("result")
            .map(Value::take)
            .with_context(|| format!("the server's answer to {method} is none"))
    }
}

fn client_info() -> Value {
    implementation(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
}
