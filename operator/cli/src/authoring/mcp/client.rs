//! Lists a server's tools: the handshake, and all pages. The handshake has the older form, which
//! current servers answer as well. A server that knows only newer revisions is asked without one.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use toolcrib_mcp::Raw;
use toolcrib_mcp::client::{self, Client, Protocol, RpcError};
use toolcrib_mcp::revision::{Form, HANDSHAKE, STATELESS};

use super::{http::Http, stdio::Stdio};
use crate::print::brief;

const CLIENT: Client = Client::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
/// Limit on pages: more than any server has, so that an endless list ends.
const PAGES: usize = 64;
const TOOLS: usize = 4096;
/// Limit on the whole listing: a server that is installed at its first start is slow.
const DEADLINE: Duration = Duration::from_secs(120);
/// Time after which the user is told that the command waits.
const PATIENCE: Duration = Duration::from_secs(5);

pub enum Server {
    Http(Http),
    Stdio(Stdio),
}

/// Tells the user that the command waits, if the server is slow.
async fn with_note<T>(listing: impl Future<Output = T>) -> T {
    let mut listing = pin!(listing);
    match tokio::time::timeout(PATIENCE, &mut listing).await {
        Ok(listed) => listed,
        Err(_) => {
            let limit = DEADLINE.as_secs();
            eprintln!("note: waiting for the server's list of tools, at most {limit} s");
            listing.await
        }
    }
}

/// An error that the server sent.
#[derive(Debug, thiserror::Error)]
#[error("the server answered with error {code}: {message}; its log may say more")]
pub struct ServerError {
    code: i64,
    message: String,
}

impl Server {
    /// Returns all tools as the server writes them.
    pub async fn tools(mut self) -> anyhow::Result<Vec<Value>> {
        let listed = tokio::time::timeout(DEADLINE, with_note(self.list())).await;
        if let Self::Http(http) = &self {
            http.end().await;
        }
        listed.with_context(|| {
            format!(
                "the server did not list its tools within {} s: ask again, or look at its log",
                DEADLINE.as_secs()
            )
        })?
    }

    async fn list(&mut self) -> anyhow::Result<Vec<Value>> {
        let protocol = match self.greet().await {
            Ok(protocol) => protocol,
            Err(error) if error.is::<ServerError>() => Protocol::Stateless,
            Err(error) => return Err(error),
        };
        let form = protocol.form();
        if let Self::Http(http) = self {
            http.speak(protocol);
        }
        if form == Form::Handshake {
            self.notify(&client::initialized()).await?;
        }
        let mut tools = Vec::new();
        let mut cursors = BTreeSet::new();
        let mut cursor = None;
        for page in 0..PAGES {
            let id = u64::try_from(page)? + 2;
            let request = CLIENT.list_tools(id, cursor.as_deref(), form);
            let result = self.ask(id, "tools/list", &request).await?;
            let mut result: Value =
                serde_json::from_str(result.get()).context("the server's answer to tools/list")?;
            let Some(Value::Array(more)) = result.get_mut("tools").map(Value::take) else {
                bail!(
                    "the server's answer to tools/list has no list of tools: is it an MCP server \
                     of a known version?"
                );
            };
            tools.extend(more);
            ensure!(
                tools.len() <= TOOLS,
                "the server lists more than {TOOLS} tools: write a descriptor with those that \
                 agents need"
            );
            let Some(next) = result.get("nextCursor").and_then(Value::as_str) else {
                return Ok(tools);
            };
            ensure!(
                cursors.insert(next.to_owned()),
                "the server's pages of tools repeat without end: report it to the server's authors"
            );
            cursor = Some(next.to_owned());
        }
        bail!(
            "the server has more than {PAGES} pages of tools: write a descriptor with the tools \
             that agents need"
        )
    }

    /// Returns the protocol that the server settles on. Errors: [`ServerError`] if the server knows
    /// no handshake.
    async fn greet(&mut self) -> anyhow::Result<Protocol> {
        let result = self.ask(1, "initialize", &CLIENT.initialize(1)).await?;
        let Some(revision) = client::settled(&result) else {
            let answer: Value = serde_json::from_str(result.get()).unwrap_or_default();
            // Some servers of the stateless revision answer the handshake with it.
            ensure!(
                answer["protocolVersion"] == STATELESS,
                "the server's answer to initialize names none of the protocol versions {}, \
                 {STATELESS}: use a release of it that has one of them",
                HANDSHAKE.join(", ")
            );
            return Ok(Protocol::Stateless);
        };
        let session = match self {
            Self::Http(http) => http.take_session(),
            Self::Stdio(_) => None,
        };
        Ok(Protocol::Handshake { revision, session })
    }

    async fn notify(&mut self, message: &str) -> anyhow::Result<()> {
        match self {
            Self::Http(http) => http.notify(message).await,
            Self::Stdio(stdio) => stdio.write(message).await,
        }
    }

    async fn ask(&mut self, id: u64, method: &'static str, request: &str) -> anyhow::Result<Raw> {
        let answer = match self {
            Self::Http(http) => http.ask(id, method, request).await?,
            Self::Stdio(stdio) => stdio.ask(id, request).await?,
        };
        answer.map_err(|RpcError { code, message }| {
            let message = brief(&message);
            ServerError { code, message }.into()
        })
    }
}
