//! A call of an HTTP service.
//!
//! Invariants: destination, method and credential come from the manifest alone; one
//! deadline covers connect, headers and body; no redirect is followed; nothing is sent
//! twice; no error names a host, an address or a path.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use tokio::time::Instant;
use toolcrib_manifest::{HttpMethod, RawJson, Tier};
use toolcrib_mediation::{
    Certainty, HttpCall, LiveTool, ResultCode, ToolBody, ToolFailure, http_call, target,
};

use super::answer::{self, Unreadable};
use super::credential::{Credential, CredentialError, credential};
use super::oauth::Tokens;
use super::{Tool, ToolContext, ToolOutput, ToolResult, Wire};
use crate::config::{Current, Version};
use crate::outbound::Outbound;

/// Says the agent's identity, for information: it authenticates nothing.
pub const CLAW_ID: HeaderName = HeaderName::from_static("x-claw-id");

/// Sends what only reads. It has no way to send anything else.
#[derive(Clone, Copy, Debug)]
pub struct ReadClient<'a>(pub Client<'a>);

/// Sends anything that was permitted.
#[derive(Clone, Copy, Debug)]
pub struct FullClient<'a>(pub Client<'a>);

/// What both are made of.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    pub outbound: &'a Outbound,
    pub tokens: &'a Tokens,
    /// Whose scrubber is asked when the answer is there: it knows the token of this call.
    pub current: &'a Current,
}

/// The clients of a context that may do what this tier may.
pub fn wire<'a>(client: Client<'a>, tier: Tier) -> Wire<'a> {
    match tier {
        Tier::ReadOnly => Wire::ReadOnly(ReadClient(client)),
        Tier::Workspace | Tier::System | Tier::Elevated => Wire::Full(FullClient(client)),
    }
}

/// A tool of the manifest, permitted for one call.
#[derive(Debug)]
pub struct HttpTool {
    live: LiveTool,
    version: Arc<Version>,
}

impl HttpTool {
    pub fn new(live: LiveTool, version: Arc<Version>) -> Self {
        Self { live, version }
    }
}

/// A call that only reads, as far as its tier says.
struct ReadCall<'t>(&'t HttpTool);

/// Any call.
struct AnyCall<'t>(&'t HttpTool);

impl Tool for HttpTool {
    fn name(&self) -> &str {
        self.live.catalog_tool().name()
    }

    fn description(&self) -> &str {
        &self.live.tool().description
    }

    fn schema(&self) -> &RawJson {
        &self.live.tool().input_schema
    }

    fn tier(&self) -> Tier {
        self.live.catalog_tool().tier
    }

    fn execute<'a>(
        self: Box<Self>,
        context: ToolContext<'a>,
    ) -> BoxFuture<'a, Result<ToolResult, ToolFailure>>
    where
        Self: 'a,
    {
        async move {
            match (self.tier(), context.wire) {
                (Tier::ReadOnly, Wire::ReadOnly(client)) => {
                    client.send(ReadCall(&self), context).await
                }
                (_, Wire::Full(client)) => client.send(AnyCall(&self), context).await,
                (Tier::Workspace | Tier::System | Tier::Elevated, Wire::ReadOnly(_)) => {
                    Err(ToolFailure::new(
                        ResultCode::PermissionDenied,
                        Certainty::NeverRan,
                        format!("{} may write, and this agent may only read", self.name()),
                    ))
                }
            }
        }
        .boxed()
    }
}

impl ReadClient<'_> {
    async fn send(
        &self,
        call: ReadCall<'_>,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        self.0.send(call.0, context).await
    }
}

impl FullClient<'_> {
    async fn send(
        &self,
        call: AnyCall<'_>,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        self.0.send(call.0, context).await
    }
}

impl Client<'_> {
    async fn send(
        &self,
        tool: &HttpTool,
        context: ToolContext<'_>,
    ) -> Result<ToolResult, ToolFailure> {
        let name = tool.name();
        let request = self.request(tool, context)?;
        let deadline = Instant::now() + context.timeout;
        let credential = self.credential(tool);
        let Ok(credential) = tokio::time::timeout_at(deadline, credential).await else {
            // Nothing was sent to the service yet.
            return Err(ToolFailure::new(
                ResultCode::Timeout,
                Certainty::Transient,
                format!("{name} was not called: its credential did not come in time"),
            ));
        };
        let exchange = self.exchange(name, request, credential?, context.max_result);
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ToolFailure::timeout(name)),
        }
    }

    async fn credential(&self, tool: &HttpTool) -> Result<Option<Credential>, ToolFailure> {
        let execution = &tool.live.tool().execution;
        let Some(auth) = &execution.auth else {
            return Ok(None);
        };
        let settings = tool.version.services.get(&execution.service);
        let found = credential(auth, settings, self.tokens).await;
        found.map(Some).map_err(|error| {
            let (code, certainty) = match error {
                CredentialError::Header(_) => (ResultCode::UnsupportedTool, Certainty::NeverRan),
                CredentialError::Token(error) if error.is_transient() => {
                    (ResultCode::RequestFailed, Certainty::Transient)
                }
                CredentialError::Token(_) => (ResultCode::RequestFailed, Certainty::NeverRan),
            };
            ToolFailure::new(
                code,
                certainty,
                format!("{} was not called: {error}", tool.name()),
            )
        })
    }

    fn request(
        &self,
        tool: &HttpTool,
        context: ToolContext<'_>,
    ) -> Result<reqwest::RequestBuilder, ToolFailure> {
        let name = tool.name();
        let call = http_call(tool.live.tool(), context.arguments, context.claw_id)?;
        let unusable = |what: &str| {
            ToolFailure::new(
                ResultCode::UnsupportedTool,
                Certainty::NeverRan,
                format!("{name}: {what}"),
            )
        };
        let execution = &tool.live.tool().execution;
        let url = target(&execution.base_url, &call.path_and_query)
            .ok_or_else(|| unusable("its path cannot be sent as it is written"))?;
        let headers = headers(&call).map_err(unusable)?;
        let settings = tool.version.services.get(&execution.service);
        let client = self.outbound.for_service(settings).map_err(|error| {
            tracing::error!(tool = name, error = error.to_string(), "no client");
            unusable("its transport settings cannot be used")
        })?;
        let request = client.request(method(call.method), url).headers(headers);
        Ok(match call.body {
            Some(body) => request.body(body),
            None => request,
        })
    }

    async fn exchange(
        &self,
        name: &str,
        mut request: reqwest::RequestBuilder,
        credential: Option<Credential>,
        max_result: usize,
    ) -> Result<ToolResult, ToolFailure> {
        let mut token = None;
        if let Some(credential) = credential {
            request = request.header(credential.name, credential.value);
            token = credential.token;
        }
        let response = request.send().await.map_err(|error| {
            let kind = error_kind(&error);
            tracing::debug!(
                tool = name,
                error = error.without_url().to_string(),
                "not answered"
            );
            error_of(name, &kind)
        })?;
        let status = response.status().as_u16();
        if let Some(token) = token.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
            self.tokens.forget(&token);
            if token.reused {
                return Err(ToolFailure::new(
                    ResultCode::Http(status),
                    Certainty::Transient,
                    format!("{name} did not take the access token; the next call brings a new one"),
                ));
            }
        }
        // A redirect is not followed, and where it leads is not the model's business.
        let body = if response.status().is_redirection() {
            ToolBody::default()
        } else {
            let scrubber = self.current.scrubber();
            answer::read(response, max_result, &scrubber)
                .await
                .map_err(|unreadable| match unreadable {
                    Unreadable::BrokenOff => ToolFailure::broken_off(name),
                    Unreadable::Coding => ran(name, "answered in an encoding that is not read"),
                    Unreadable::Damaged => ran(name, "answered in an encoding that is damaged"),
                })?
        };
        Ok(ToolResult {
            display: format!("{name}: status {status}, {} bytes", body.bytes.len()),
            output: ToolOutput::Http { status, body },
        })
    }
}

/// The service has acted, and what it says cannot be used.
fn ran(name: &str, what: &str) -> ToolFailure {
    ToolFailure::new(
        ResultCode::RequestFailed,
        Certainty::Ran,
        format!("{name} {what}"),
    )
}

/// How far a request came that has no answer.
enum Unanswered {
    NotConnected,
    BrokenOff,
}

fn error_kind(error: &reqwest::Error) -> Unanswered {
    if error.is_connect() || error.is_builder() {
        Unanswered::NotConnected
    } else {
        Unanswered::BrokenOff
    }
}

fn error_of(name: &str, kind: &Unanswered) -> ToolFailure {
    match kind {
        Unanswered::NotConnected => ToolFailure::unreachable(name),
        Unanswered::BrokenOff => ToolFailure::broken_off(name),
    }
}

fn headers(call: &HttpCall) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::ACCEPT,
        HeaderValue::from_static("application/json, */*;q=0.5"),
    );
    headers.insert(
        header::ACCEPT_ENCODING,
        HeaderValue::from_static("identity"),
    );
    if call.body.is_some() {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
    }
    let claw_id = HeaderValue::from_str(&call.claw_id)
        .map_err(|_| "the agent's identity cannot stand in a header")?;
    headers.insert(CLAW_ID, claw_id);
    Ok(headers)
}

fn method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
