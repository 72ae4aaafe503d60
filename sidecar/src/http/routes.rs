//! The routes for the runner, and the checks before a model is asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use http::Method;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use hyper::body::Incoming;
use toolcrib_dialect::{Dialect, Edits, Request, UndecodedRequest, models_body};
use toolcrib_manifest::{Context, Mode, ProviderTools};
use toolcrib_mediation::{
    PresentedTools, RunnerCode, RunnerError, Turn, TurnConfig, fabricated_calls, first_edits,
};
use tower::Service;

use super::unserved;
use crate::app::App;
use crate::config::EffectiveConfig;
use crate::history::line::CallPath;
use crate::history::{Bodies, Body, RecordBody};
use crate::native;
use crate::outbound::model::{Operation, headers, policy};
use crate::request::admission::{admit, enter, let_in, log_unauthenticated, read_body, recordable};
use crate::request::prepare::{ModelRequest, SentBody, prepare};
use crate::request::record::{self, RequestEnd};
use crate::request::response;
use crate::request::room::{BodyRoom, overloaded};
use crate::turn::answer_reader;
use crate::turn::drive::Drive;
use crate::turn::passthrough::{self, Passage};

/// The code of a history that contains managed calls, which no runner is ever shown.
const FABRICATED: &str = "fabricated_history";

/// The routes of the runner's listener. Requests for a model do not go through the router: nearly
/// every request is one, and its handler is found by the path alone.
#[derive(Clone, Debug)]
pub struct RunnerRoutes {
    app: Arc<App>,
    others: Router,
}

impl RunnerRoutes {
    pub fn new(app: Arc<App>) -> Self {
        let others = Router::new()
            .route("/v1/models", get(models))
            .route("/models", get(models))
            .route("/mcp", native::method_router())
            .fallback(not_found)
            .method_not_allowed_fallback(not_found)
            .with_state(app.clone());
        Self { app, others }
    }
}

impl Service<http::Request<Incoming>> for RunnerRoutes {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        match model_route(request.method(), request.uri().path()) {
            Some((operation, dialect)) => {
                let (app, request) = (self.app.clone(), request.map(HttpBody::new));
                Box::pin(async move { Ok(serve(app, operation, dialect, request).await) })
            }
            None => Box::pin(self.others.call(request)),
        }
    }
}

/// Returns what a request asks of a model. `None`: it asks none.
fn model_route(method: &Method, path: &str) -> Option<(Operation, Dialect)> {
    if method != Method::POST {
        return None;
    }
    // Some clients expect `/v1` in the base URL, others add it.
    let route = match path.strip_prefix("/v1").unwrap_or(path) {
        "/chat/completions" => (Operation::Answer, Dialect::OpenaiChat),
        "/messages" => (Operation::Answer, Dialect::AnthropicMessages),
        "/messages/count_tokens" => (Operation::CountTokens, Dialect::AnthropicMessages),
        "/responses" => (Operation::Answer, Dialect::OpenaiResponses),
        _ => return None,
    };
    Some(route)
}

async fn models(State(app): State<Arc<App>>, request: HttpRequest) -> Response {
    let dialect = dialect_of(request.headers());
    match listed(&app, request.headers()).await {
        Ok(models) => {
            let body = models_body(dialect, &models);
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(error) => response::error(dialect, &error),
    }
}

/// The models that may be requested by name: those that the agent lists, or else those that the
/// providers list and cluster policies allow.
async fn listed(app: &App, headers: &HeaderMap) -> Result<Vec<String>, RunnerError> {
    let now = app.current.now();
    admit(&now, headers)?;
    let version = now.version()?;
    if !policy::is_open(version) {
        return Ok(policy::allowed(&now, version));
    }
    // Counts as a running request, so that the bound of requests holds for listings too.
    let permit = app.requests.clone().try_acquire_owned();
    let _permit = permit.map_err(|_| overloaded())?;
    let providers = version.providers.iter();
    let standing = providers
        .map(|(name, provider)| (name.as_str(), provider))
        .filter(|(name, _)| now.provider_stands(name));
    let mut listed = app.models.listed(&app.outbound, standing).await;
    listed.retain(|reference| policy::may_request(&now, version, reference));
    Ok(listed)
}

async fn not_found(request: HttpRequest) -> Response {
    let dialect = dialect_of(request.headers());
    let error = unserved::error(request.uri().path(), request.headers());
    let mut response = response::error(dialect, &error);
    if error.code == RunnerCode::WebsocketNotSupported {
        // The status requires the protocol's name.
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    response
}

/// The dialect where the path does not say it: Anthropic's SDK always sends its version header.
fn dialect_of(headers: &HeaderMap) -> Dialect {
    if headers.contains_key("anthropic-version") {
        Dialect::AnthropicMessages
    } else {
        Dialect::OpenaiChat
    }
}

async fn serve(
    app: Arc<App>,
    operation: Operation,
    dialect: Dialect,
    request: HttpRequest,
) -> Response {
    let started = Instant::now();
    let now = app.current.now();
    // From the headers alone: the body is read only after authentication.
    let caller = match let_in(&app, &now, request.headers(), CallPath::Mediated) {
        Ok(caller) => caller,
        Err(error) => {
            log_unauthenticated(&app, &now, dialect.name(), &error);
            app.metrics
                .request(dialect.name(), error.status(), started.elapsed());
            return response::error(dialect, &error);
        }
    };
    let mut model_request = ModelRequest {
        caller,
        operation,
        dialect,
        headers: headers::upstream(request.headers()),
        interventions: Vec::new(),
        model: None,
        tools_count: 0,
        waited_for_feeds: Duration::ZERO,
        body: SentBody::default(),
    };
    let begun = match begin(&app, &now, &mut model_request, request).await {
        Ok(begun) => begun,
        Err(error) => {
            let record = record::refused(&error);
            let response = error.body(dialect);
            let end = RequestEnd {
                record,
                http_status: error.status(),
                served_by: None,
                bodies: Bodies {
                    request: model_request.body.recorded(),
                    response: Body::Bytes(&response),
                },
                connection: None,
                waited: model_request.caller.started.elapsed(),
            };
            record::finish(&app, model_request.summary(), end);
            return response::error(dialect, &error);
        }
    };
    let (to_runner, from_task) = response::channel();
    // The task is not awaited here: draining waits for the permits that it holds.
    match begun {
        RequestPlan::Pass(passage) => {
            tokio::spawn(Box::pin(passthrough::pass(
                app,
                Arc::new(model_request),
                passage,
                to_runner,
            )));
        }
        RequestPlan::Turn(turn, effects) => {
            tokio::spawn(Drive::new(app, Arc::new(model_request), turn, to_runner).run(effects));
        }
    }
    response::response(from_task, dialect).await
}

enum RequestPlan {
    /// The mediator executes no call of it.
    Pass(Box<Passage>),
    Turn(Box<Turn>, Vec<toolcrib_mediation::Effect>),
}

/// Does the checks that can refuse a request before a model is asked.
async fn begin(
    app: &App,
    now: &EffectiveConfig,
    model_request: &mut ModelRequest,
    request: HttpRequest,
) -> Result<RequestPlan, RunnerError> {
    let version = now.version()?;
    enter(app, &mut model_request.caller)?;
    recordable(app)?;
    let (head, from) = request.into_parts();
    let limit = app.settings.limits.body;
    let (mut body, caller) = (Vec::new(), &mut model_request.caller);
    let read = read_body(app, &head.headers, from, limit, &mut body, caller).await;
    if let Err(error) = read {
        model_request.body = SentBody::Bytes(RecordBody::of(&body));
        return Err(error);
    }
    let known = &app.known_tools;
    let decoded = Request::decode_or_return(model_request.dialect, body, &mut known.lock());
    let request = match decoded {
        Ok(request) => Arc::new(request),
        Err(UndecodedRequest { error, body }) => {
            model_request.body = SentBody::Bytes(RecordBody::of(&body));
            return Err(error.into());
        }
    };
    model_request.body = SentBody::of(&request);
    model_request.model = request.model();
    // Refuses a model that no provider may serve before any tool is presented.
    policy::candidates(
        now,
        version,
        model_request.dialect,
        model_request.model.as_deref(),
    )?;
    let waiting = Instant::now();
    let context = app.feeds.message(&model_request.caller.identity()).await;
    model_request.waited_for_feeds = waiting.elapsed();
    // Reading the body and the feeds took time: the rest uses the configuration in force now.
    let now = &app.current.now();
    if let Some(ended) = model_request.caller.ended(now) {
        return Err(ended);
    }
    let version = now.version()?;
    match version.agent.provider_tools {
        ProviderTools::Allow => {}
        ProviderTools::Refuse => request.refuse_provider_tools()?,
    }
    let is_native = model_request.caller.agent.mode == Mode::Native;
    let presented = PresentedTools::new(&now.authority, &request, jiff::Timestamp::now())
        .remembering(app.continuity.presented());
    // Calls may have to be denied even if no tool is presented: the model may remember revoked
    // tools, or guess tools that the files name and the agent does not get. Hidden rounds stay in
    // its history. Requests for several choices at once get no calls.
    let denies = presented.answers_calls() && request.choices() == 1;
    let passes = is_native || (presented.is_empty() && !denies);
    if passes || model_request.operation == Operation::CountTokens {
        let edits = if passes {
            let mut edits = Edits::new("");
            edits.prompt = prompt(model_request);
            edits.context = context;
            edits
        } else {
            // Tokens are counted for the request that a model would get.
            model_request.tools_count = presented.len();
            let history = app.continuity.history_edits(&request, &presented)?;
            first_edits(
                &request,
                &presented,
                history,
                prompt(model_request),
                context,
            )?
        };
        let mut room = BodyRoom::new(app.bodies.clone());
        let (dialect, model) = (model_request.dialect, model_request.model.as_deref());
        let prepared = prepare(now, dialect, model, &mut room, |model| {
            let mut edits = edits.clone();
            edits.model = model.to_string();
            Ok(request.encode(&edits)?)
        })?;
        let passage = Passage {
            streamed: request.stream(),
            declared: answer_reader::declared(&request),
            prepared,
            room,
        };
        drop(request);
        if !model_request.body.is_whole() {
            model_request.caller.body.release();
        }
        return Ok(RequestPlan::Pass(Box::new(passage)));
    }
    model_request.tools_count = presented.len();
    app.continuity.present(&presented);
    if fabricated_calls(&request, &presented) > 0 {
        model_request.interventions.push(FABRICATED);
    }
    let history = app.continuity.history_edits(&request, &presented)?;
    let (turn, effects) = Turn::start(TurnConfig {
        request,
        presented,
        policy: version.catalog.policy(),
        streaming: model_request.caller.agent.streaming,
        claw_id: model_request.caller.identity(),
        history,
        prompt: prompt(model_request),
        context,
    })?;
    Ok(RequestPlan::Turn(Box::new(turn), effects))
}

/// The tools document, if the agent gets it with each request.
fn prompt(model_request: &ModelRequest) -> Option<String> {
    match model_request.caller.agent.context {
        Context::Prompt => model_request.caller.agent.prompt.clone(),
        Context::Mount | Context::None => None,
    }
}
