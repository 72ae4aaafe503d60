//! `/mcp` over HTTP. Requests need the runner's token. Requests that a web page could make through
//! a browser are refused: another origin, and a name that was rebound to this address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::header::{ACCEPT, ALLOW, HOST, HeaderMap, ORIGIN};
use http::{StatusCode, Uri};
use toolcrib_mcp::Fault;
use toolcrib_mcp::code::INVALID_REQUEST;
use toolcrib_mcp::revision::{self, Form};
use toolcrib_mediation::{RunnerCode, RunnerError};

use super::answer::Refusal;
use super::call::call;
use super::changes::{self, StreamOwner};
use super::is_offered;
use super::message::{ClientMessage, NextStep, session, session_name, too_many_streams};
use crate::app::App;
use crate::history::line::CallPath;
use crate::request::admission::{enter, let_in, log_unauthenticated, read_body};
use crate::request::caller::Caller;
use crate::request::record::MCP;

/// Most bytes of one message; arguments may have a quarter of that.
const MAX_BODY: usize = 1024 * 1024;

pub fn method_router() -> MethodRouter<Arc<App>> {
    post(receive).get(listen).delete(end)
}

async fn receive(State(app): State<Arc<App>>, request: Request) -> Response {
    let started = Instant::now();
    let response = match received(&app, request).await {
        // Counted when its record is written.
        Ok(NextStep::Call(asked)) => return call(app, *asked).await,
        Ok(NextStep::Answered(response)) => response,
        Err(refusal) => refusal.into_response(),
    };
    counted(&app, response, started)
}

async fn received(app: &Arc<App>, request: Request) -> Result<NextStep, Refusal> {
    let (head, from) = request.into_parts();
    let mut caller = admitted(app, &head.headers)?;
    enter(app, &mut caller)?;
    let mut body = Vec::new();
    let limit = MAX_BODY.min(app.settings.limits.body);
    read_body(app, &head.headers, from, limit, &mut body, &mut caller).await?;
    // Reading the body took time: the rest uses the configuration in force now.
    let now = app.current.now();
    if let Some(ended) = caller.ended(&now) {
        return Err(ended.into());
    }
    let received = ClientMessage {
        app,
        now: &now,
        headers: &head.headers,
        caller,
        body,
    };
    received.next()
}

async fn listen(State(app): State<Arc<App>>, request: Request) -> Response {
    let started = Instant::now();
    let opened = listening(&app, request.headers());
    let response = opened.unwrap_or_else(IntoResponse::into_response);
    counted(&app, response, started)
}

fn listening(app: &Arc<App>, headers: &HeaderMap) -> Result<Response, Refusal> {
    let caller = admitted(app, headers)?;
    if revision::form(headers) == Form::Stateless {
        let allowed = [(ALLOW, "POST")];
        return Ok((StatusCode::METHOD_NOT_ALLOWED, allowed).into_response());
    }
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    if !accept.is_some_and(|it| it.contains("text/event-stream")) {
        let fault = Fault::new(INVALID_REQUEST, "only text/event-stream is given here");
        return Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, fault));
    }
    let session = session(app, headers, &caller)?;
    changes::stream(app, &caller.runner, StreamOwner::Session(&session))
        .ok_or_else(too_many_streams)
}

async fn end(State(app): State<Arc<App>>, request: Request) -> Response {
    let started = Instant::now();
    let headers = request.headers();
    let found =
        admitted(&app, headers).and_then(|caller| session(&app, headers, &caller).map(|_| ()));
    let response = match (found, session_name(headers)) {
        (Err(refusal), _) => refusal.into_response(),
        (Ok(()), Some(name)) if app.native.sessions.end(name) => {
            StatusCode::NO_CONTENT.into_response()
        }
        (Ok(()), _) => StatusCode::NOT_FOUND.into_response(),
    };
    counted(&app, response, started)
}

/// Authenticates a request by its headers alone.
fn admitted(app: &Arc<App>, headers: &HeaderMap) -> Result<Caller, Refusal> {
    if !is_local(headers) {
        let fault = Fault::new(INVALID_REQUEST, "pages and other hosts are not served");
        return Err(Refusal::new(StatusCode::FORBIDDEN, fault));
    }
    let now = app.current.now();
    let caller = let_in(app, &now, headers, CallPath::Native)
        .inspect_err(|error| log_unauthenticated(app, &now, MCP, error))?;
    if let Err(unavailable) = now.version() {
        return Err(RunnerError::from(unavailable).into());
    }
    if !is_offered(&now) {
        let what = "this agent's tools are not offered at /mcp: its Agent object says neither \
            mode: Native nor native: true";
        return Err(RunnerError::new(RunnerCode::NotFound, what).into());
    }
    Ok(caller)
}

/// True if a runner, and not a web page in a browser, sent the request: its host is an address or
/// this machine's name, and so is its origin, if it has one.
fn is_local(headers: &HeaderMap) -> bool {
    let names = |name| headers.get_all(name).iter();
    let host = |text: &str| host_of(&format!("http://{text}/"));
    names(HOST).all(|value| {
        let name = value.to_str().ok().and_then(host);
        name.is_some_and(|it| it == LOCALHOST || it.parse::<IpAddr>().is_ok())
    }) && names(ORIGIN).all(|value| {
        let name = value.to_str().ok().and_then(host_of);
        name.is_some_and(|it| {
            it == LOCALHOST || it.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
        })
    })
}

const LOCALHOST: &str = "localhost";

/// The host of an absolute URI, without the brackets of an IPv6 address.
fn host_of(uri: &str) -> Option<String> {
    let uri: Uri = uri.parse().ok()?;
    uri.scheme()?;
    let host = uri.host()?;
    Some(host.trim_matches(['[', ']']).to_ascii_lowercase())
}

fn counted(app: &App, response: Response, started: Instant) -> Response {
    let status = response.status().as_u16();
    app.metrics.request(MCP, status, started.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    fn check(name: HeaderName, value: &'static str, expected: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        assert_eq!(is_local(&headers), expected, "{value}");
    }

    #[test]
    fn a_rebound_name_and_a_page_of_another_origin_are_refused() {
        for host in ["127.0.0.1:4141", "localhost", "[::1]:4141", "10.0.0.7:80"] {
            check(HOST, host, true);
        }
        for host in [
            "evil.test:4141",
            "localhost.evil.test",
            "127.0.0.1.nip.test",
            "",
            "@",
        ] {
            check(HOST, host, false);
        }
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "https://[::1]:1",
        ] {
            check(ORIGIN, origin, true);
        }
        for origin in [
            "https://evil.test",
            "http://10.0.0.7",
            "null",
            "",
            "localhost",
        ] {
            check(ORIGIN, origin, false);
        }
    }
}
