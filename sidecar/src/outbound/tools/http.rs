//! A call of an HTTP service.
//!
//! Invariants: destination and method come from the manifest alone; no redirect is
//! followed; nothing is sent twice.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::Full;
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
use crate::outbound::transport::{Destination, SendError, Transport};

/// A request, and the way that it takes.
#[derive(Debug)]
pub(super) struct Request {
    pub to: Arc<Destination>,
    transport: Transport,
    request: http::Request<Full<Bytes>>,
}

/// Makes the request of a call, without its credential. The tool's client restricts the methods.
pub(super) fn request(
    base: &Url,
    transport: Transport,
    tool: &GrantedTool,
    method: HttpMethod,
    call: HttpCall,
) -> Result<Request, ToolFailure> {
    let to = target(base, &call.path_and_query)
        .and_then(|url| Destination::try_from(url).ok())
        .ok_or_else(|| tool.unusable("its path cannot be sent as it is written"))?;
    let headers = headers(&call).map_err(|what| tool.unusable(what))?;
    let mut request = http::Request::new(Full::from(call.body.unwrap_or_default()));
    *request.method_mut() = wire_method(method);
    *request.uri_mut() = to.uri.clone();
    *request.headers_mut() = headers;
    Ok(Request {
        to: Arc::new(to),
        transport,
        request,
    })
}

pub(super) async fn exchange(
    services: Services<'_>,
    name: &str,
    request: Request,
    credential: Option<Credential>,
    max_result: usize,
) -> Result<ToolResult, ToolFailure> {
    let Request {
        to,
        transport,
        mut request,
    } = request;
    let mut token = None;
    if let Some(credential) = credential {
        request
            .headers_mut()
            .append(credential.name, credential.value);
        token = credential.token;
    }
    let sent = transport.send(to.clone(), request).await;
    let response = sent.map_err(|error| unsent(name, &error, &to.url))?;
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
fn unsent(name: &str, error: &SendError, url: &Url) -> ToolFailure {
    let failure = match error.is_unsent() {
        true => ToolFailure::unreachable(name),
        false => ToolFailure::broken_off(name),
    };
    unanswered(name, failure, error::send_failure(error, url))
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
