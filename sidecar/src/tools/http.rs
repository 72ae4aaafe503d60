//! A call of an HTTP service.
//!
//! Invariants: destination, method and credential come from the manifest alone; one
//! deadline covers connect, headers and body; no redirect is followed; nothing is sent
//! twice; no error names a host, an address or a path.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use toolcrib_manifest::{HttpMethod, RawJson, Tier};
use toolcrib_mediation::{
    Certainty, HttpCall, LiveTool, ResultCode, Scrubber, ToolBody, ToolFailure, http_call,
};

use super::{Tool, ToolContext, ToolOutput, ToolResult, Wire, auth};
use crate::config::Version;
use crate::outbound::Outbound;

/// How far a body is counted to learn its true length; beyond, it is not known.
const MAX_COUNTED: u64 = 8 * 1024 * 1024;

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
    pub scrubber: &'a Scrubber,
}

/// The clients of an agent whose tools end at `max_tier`.
pub fn wire<'a>(client: Client<'a>, max_tier: Tier) -> Wire<'a> {
    match max_tier {
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
        let exchange = self.exchange(name, request, context.max_result);
        match tokio::time::timeout(context.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(ToolFailure::timeout(name)),
        }
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
        let headers = headers(&call, execution.auth.as_ref()).map_err(|what| unusable(&what))?;
        let settings = tool.version.services.get(&execution.service);
        let ca = settings
            .and_then(|settings| settings.tls.as_ref())
            .and_then(|tls| tls.ca.as_deref());
        let proxy = settings.and_then(|settings| settings.proxy.as_deref());
        let client = self.outbound.client(ca, proxy).map_err(|error| {
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
        request: reqwest::RequestBuilder,
        max_result: usize,
    ) -> Result<ToolResult, ToolFailure> {
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
        if let Some(coding) = response.headers().get(header::CONTENT_ENCODING)
            && coding != "identity"
        {
            return Err(ToolFailure::new(
                ResultCode::RequestFailed,
                Certainty::Ran,
                format!("{name} answered in an encoding that was not asked for"),
            ));
        }
        // A redirect is not followed, and where it leads is not the model's business.
        let body = if response.status().is_redirection() {
            ToolBody::default()
        } else {
            read(response, max_result, self.scrubber)
                .await
                .map_err(|_| ToolFailure::broken_off(name))?
        };
        Ok(ToolResult {
            display: format!("{name}: status {status}, {} bytes", body.bytes.len()),
            output: ToolOutput::Http { status, body },
        })
    }
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

/// The URL to dial, if and only if it is sent exactly as it was built: a parser that
/// resolves or rewrites a segment would call another resource.
fn target(base_url: &str, path_and_query: &str) -> Option<Url> {
    let base = Url::parse(base_url).ok()?;
    let origin = base.origin().ascii_serialization();
    let url = Url::parse(&format!("{origin}{path_and_query}")).ok()?;
    let sent = &url[url::Position::BeforePath..];
    (matches!(base.scheme(), "http" | "https") && sent == path_and_query).then_some(url)
}

fn headers(call: &HttpCall, auth: Option<&toolcrib_manifest::Auth>) -> Result<HeaderMap, String> {
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
        .map_err(|_| "the agent's identity cannot stand in a header".to_string())?;
    headers.insert(HeaderName::from_static("x-claw-id"), claw_id);
    if let Some(auth) = auth {
        let (name, value) = auth::header(auth).map_err(|error| error.to_string())?;
        headers.insert(name, value);
    }
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

/// The body's first bytes, scrubbed, and its whole length where that can be learnt
/// without reading for ever.
async fn read(
    mut response: Response,
    max_result: usize,
    scrubber: &Scrubber,
) -> Result<ToolBody, reqwest::Error> {
    // A secret that straddles the edge is read whole; a second length is cut off again
    // below, where half of one may stand.
    let kept = max_result
        .saturating_add(1)
        .saturating_add(2 * scrubber.longest());
    let declared = response.content_length();
    let mut bytes = Vec::new();
    let mut length = 0u64;
    let mut whole = true;
    while let Some(chunk) = response.chunk().await? {
        length += chunk.len() as u64;
        let room = kept - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() == kept && (declared.is_some() || length > MAX_COUNTED) {
            // Dropping the response closes the connection: the rest is never read.
            whole = declared == Some(length);
            break;
        }
    }
    let original_bytes = if whole { Some(length) } else { declared };
    let cut = length > bytes.len() as u64 || !whole;
    Ok(ToolBody {
        bytes: scrubbed(bytes, cut, max_result, scrubber),
        original_bytes,
    })
}

/// Where the body was cut: without what may be half a secret, and still longer than the
/// limit, so that a result that shrank under the scrubber is called truncated all the same.
fn scrubbed(bytes: Vec<u8>, cut: bool, max_result: usize, scrubber: &Scrubber) -> Vec<u8> {
    let mut bytes = scrubber.scrub(bytes);
    if cut {
        bytes.truncate(bytes.len().saturating_sub(scrubber.longest()));
        let least = max_result.saturating_add(1);
        if bytes.len() < least {
            bytes.resize(least, b' ');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_sent_as_it_was_built_or_not_at_all() {
        let check = |base: &str, path: &str, fine: bool| {
            assert_eq!(target(base, path).is_some(), fine, "{base} {path}");
        };
        check("http://desk.pond.svc:8080/api", "/api/v1/a%20b?q=1", true);
        check("https://desk.example", "/", true);
        check("http://desk", "/a/../b", false);
        check("http://desk", "/a/%2e%2e/b", false);
        check("http://desk", "/a\\b", false);
        check("http://desk", "/a\nb", false);
        check("http://desk", "//other/a", true);
        check("http://desk", "@other/a", false);
        check("file:///etc", "/passwd", false);
    }

    #[test]
    fn a_cut_body_never_ends_in_half_a_secret_and_stays_too_long() {
        let scrubber = Scrubber::new(["sekrit-token"]);
        let longest = scrubber.longest();
        let mut body = b"sekrit-token ".repeat(8);
        body.truncate(21 + 2 * longest);
        let clean = scrubbed(body, true, 20, &scrubber);
        assert!(clean.len() > 20);
        let text = String::from_utf8_lossy(&clean);
        assert!(!text.contains("sekr"), "{text}");
    }
}
