//! A call of an HTTP service.
//!
//! Invariants: destination and method come from the manifest alone; no redirect is
//! followed; nothing is sent twice.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use toolcrib_manifest::HttpMethod;
use toolcrib_mediation::{Certainty, HttpCall, ResultCode, ToolBody, ToolFailure, target};
use url::Url;

use super::answer::{EncodingError, Unreadable};
use super::credential::Credential;
use super::granted::GrantedTool;
use super::services::Services;
use crate::outbound::error;
use crate::outbound::tools::answer;
use crate::outbound::tools::{CLAW_ID, ToolOutput, ToolResult, unanswered};

/// A request, and the URL that it is sent to.
#[derive(Debug)]
pub(super) struct Request {
    pub url: Url,
    pub request: reqwest::RequestBuilder,
}

/// Makes the request of a call, without its credential. The tool's client restricts the methods.
pub(super) fn request(
    connections: &reqwest::Client,
    tool: &GrantedTool,
    method: HttpMethod,
    call: HttpCall,
) -> Result<Request, ToolFailure> {
    let base_url = &tool.entry().execution.base_url;
    let url = target(base_url, &call.path_and_query)
        .ok_or_else(|| tool.unusable("its path cannot be sent as it is written"))?;
    let headers = headers(&call).map_err(|what| tool.unusable(what))?;
    let mut request = connections
        .request(wire_method(method), url.clone())
        .headers(headers);
    if let Some(body) = call.body {
        request = request.body(body);
    }
    Ok(Request { url, request })
}

pub(super) async fn exchange(
    services: Services<'_>,
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
    let response = request.send().await.map_err(|error| unsent(name, error))?;
    let status = response.status().as_u16();
    if let Some(token) = token.filter(|_| response.status() == StatusCode::UNAUTHORIZED)
        && let Some(failure) = services.refused(name, &token)
    {
        return Err(failure);
    }
    // A redirect is not followed, and the model does not see its target.
    let body = if response.status().is_redirection() {
        ToolBody::default()
    } else {
        let scrubber = services.scrubber();
        answer::read(response, max_result, &scrubber)
            .await
            .map_err(|unreadable| match unreadable {
                Unreadable::BrokenOff(connection) => {
                    unanswered(name, ToolFailure::broken_off(name), connection)
                }
                Unreadable::Encoding(EncodingError::Unknown) => {
                    ran(name, "answered in an encoding that is not read")
                }
                Unreadable::Encoding(EncodingError::Damaged) => {
                    ran(name, "answered in an encoding that is damaged")
                }
            })?
    };
    Ok(ToolResult {
        display: format!("{name}: status {status}, {} bytes", body.bytes.len()),
        output: ToolOutput::Http { status, body },
    })
}

/// The failure of a call that the service executed and whose answer cannot be used.
fn ran(name: &str, what: &str) -> ToolFailure {
    ToolFailure::new(
        ResultCode::RequestFailed,
        Certainty::Ran,
        format!("{name} {what}"),
    )
}

/// The failure of a request without an answer.
fn unsent(name: &str, error: reqwest::Error) -> ToolFailure {
    let failure = match error.is_connect() || error.is_builder() {
        true => ToolFailure::unreachable(name),
        false => ToolFailure::broken_off(name),
    };
    unanswered(name, failure, error::failure(&error))
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
        .map_err(|_| "the agent's identity has characters that a header cannot contain")?;
    headers.insert(CLAW_ID, claw_id);
    if let Some((name, key)) = &call.idempotency {
        let name = HeaderName::from_bytes(name.as_bytes());
        let (Ok(name), Ok(key)) = (name, HeaderValue::from_str(key)) else {
            return Err("its idempotency header cannot be sent");
        };
        headers.insert(name, key);
    }
    Ok(headers)
}

fn wire_method(method: HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Delete => Method::DELETE,
    }
}
