//! A client between a controller and the API server. It sees every request, and can lose, delay,
//! age or drop messages.
//!
//! Writes are numbered in the order in which they begin, so a fault can be put at each of them in
//! turn. Renewing the lease, reviewing a token and the dry run of the policies for approvals are not
//! counted.
//!
//! Invariant: messages without a fault pass unchanged, bodies streamed.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::{Body as Answer, Bytes};
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;
use toolcrib_compile::names;

/// The fault of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write succeeds, and the process is killed.
    Kill,
    /// The write succeeds, and its response is lost.
    Lose,
    /// The process is paused while this request is in flight.
    Pause,
}

/// The write at which a fault happens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FaultPoint {
    /// Counted from 1.
    Number(usize),
    /// The first write whose path ends so.
    Path(String),
}

/// Faults of watch events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchFault {
    Delivered,
    /// Events of these resources (`secrets`, `toolgrants`, …) are lost.
    Lost(BTreeSet<&'static str>),
}

/// Faults of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Running,
    /// Nothing is sent and nothing arrives until the process is resumed.
    Paused,
    /// Like [`Process::Running`], but watches bring no events yet.
    Deaf,
    /// Nothing is sent and nothing arrives, for ever.
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog {
    pub method: Method,
    pub path: String,
    pub watch: bool,
    /// Number of the write, from 1.
    pub write: Option<usize>,
}

#[derive(Clone)]
pub struct Faults(Arc<Inner>);

struct Inner {
    client: Client,
    state: Mutex<State>,
    process: watch::Sender<Process>,
    watching: watch::Sender<WatchFault>,
    /// Whether the held request still waits.
    holds: watch::Sender<bool>,
    /// A change ends every watch; the next watch of each resource is answered 410 Gone.
    generation: watch::Sender<u64>,
}

struct State {
    log: Vec<RequestLog>,
    writes: usize,
    fault: Option<(FaultPoint, Fault)>,
    struck: bool,
    /// The resourceVersion as of which objects are read, and the operator's namespace, which is
    /// exempt.
    aged: Option<(String, String)>,
    /// Resources whose next watch is answered 410 Gone.
    gone: BTreeSet<String>,
    /// The name of the object whose next request is held until [`Faults::release`].
    held: Option<&'static str>,
}

impl Faults {
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Inner {
            client,
            state: Mutex::new(State {
                log: Vec::new(),
                writes: 0,
                fault: None,
                struck: false,
                aged: None,
                gone: BTreeSet::new(),
                held: None,
            }),
            process: watch::channel(Process::Running).0,
            holds: watch::channel(true).0,
            watching: watch::channel(WatchFault::Delivered).0,
            generation: watch::channel(0).0,
        }))
    }

    /// Adds a fault at the write of this number.
    pub fn at(self, write: usize, fault: Fault) -> Self {
        self.state().fault = Some((FaultPoint::Number(write), fault));
        self
    }

    /// Adds a fault at the first write whose path ends with `path`, whatever its number is. Tasks
    /// that write side by side number their writes differently from run to run.
    pub fn at_path(self, path: String, fault: Fault) -> Self {
        self.state().fault = Some((FaultPoint::Path(path), fault));
        self
    }

    /// Holds the next request for the object of this name until [`Faults::release`]. All other
    /// requests and events pass.
    pub fn hold(self, name: &'static str) -> Self {
        self.state().held = Some(name);
        self
    }

    /// Sends the held request.
    pub fn release(&self) {
        self.0.holds.send_replace(false);
    }

    /// Returns objects as of `version`, except those of the operator's own namespace, until
    /// [`Faults::renew`].
    pub fn aged(self, version: &str, system: &str) -> Self {
        self.state().aged = Some((version.to_owned(), system.to_owned()));
        self.0.process.send_replace(Process::Deaf);
        self
    }

    pub fn renew(&self) {
        self.state().aged = None;
        self.0.process.send_replace(Process::Running);
    }

    /// Drops all events of these resources from now on.
    pub fn lose_events(&self, resources: impl IntoIterator<Item = &'static str>) {
        let lost = WatchFault::Lost(resources.into_iter().collect());
        self.0.watching.send_replace(lost);
    }

    /// Ends every watch; the next watch gets 410 Gone, so the client lists again.
    pub fn gone(&self, resources: &BTreeSet<String>) {
        self.0.watching.send_replace(WatchFault::Delivered);
        self.state().gone = resources.clone();
        self.0.generation.send_modify(|generation| *generation += 1);
    }

    /// Sends the paused process's requests; it gets no new events until [`Faults::renew`].
    pub fn resume(&self) {
        self.0.process.send_replace(Process::Deaf);
    }

    /// True if the fault has happened.
    pub fn struck(&self) -> bool {
        self.state().struck
    }

    pub fn writes(&self) -> usize {
        self.state().writes
    }

    pub fn log(&self) -> Vec<RequestLog> {
        self.state().log.clone()
    }

    /// Resources that were watched.
    pub fn watched(&self) -> BTreeSet<String> {
        self.state()
            .log
            .iter()
            .filter(|seen| seen.watch)
            .map(|seen| resource(&seen.path).to_owned())
            .collect()
    }

    pub fn client(&self) -> Client {
        let inner = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: Request<Body>| {
            let inner = Arc::clone(&inner);
            async move { inner.pass(request).await }
        });
        Client::new(service, self.0.client.default_namespace().to_owned())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

type ApiResult = Result<Response<Answer>, kube::Error>;

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn until(&self, allowed: impl FnMut(&Process) -> bool) {
        // The sender is a field of self, so it is not dropped.
        self.process
            .subscribe()
            .wait_for(allowed)
            .await
            .map(drop)
            .unwrap_or_default();
    }

    async fn pass(self: Arc<Self>, mut request: Request<Body>) -> ApiResult {
        self.until(|process| !matches!(process, Process::Paused | Process::Dead))
            .await;
        let path = request.uri().path().to_owned();
        let watch = query(request.uri()).any(|(key, _)| key == "watch");
        let (fault, version) = self.note(request.method(), &path, watch);
        if let Some(version) = version {
            return self.aged(request, &version).await;
        }
        if self.is_held(&path) {
            let mut holds = self.holds.subscribe();
            // The sender is a field of self, so it is not dropped.
            holds
                .wait_for(|holds| !holds)
                .await
                .map(drop)
                .unwrap_or_default();
        }
        match fault {
            Some(Fault::Kill) => {
                self.send(request).await?;
                self.process.send_replace(Process::Dead);
                return std::future::pending().await;
            }
            Some(Fault::Lose) => {
                self.send(request).await?;
                return Err(kube::Error::Service("the answer is lost".into()));
            }
            Some(Fault::Pause) => {
                self.process.send_replace(Process::Paused);
                // The request is on the wire: it arrives even if its caller is gone.
                let inner = Arc::clone(&self);
                let held = tokio::spawn(async move {
                    inner
                        .until(|process| matches!(process, Process::Running | Process::Deaf))
                        .await;
                    inner.send(request).await
                });
                return held.await.expect("sending does not panic");
            }
            None => {}
        }
        if watch {
            let gone = self.state().gone.remove(resource(&path));
            if gone {
                return Ok(Response::new(Answer::from(GONE)));
            }
            self.until(|process| *process == Process::Running).await;
            let resource = resource(&path).to_owned();
            // An aged list is continued by a watch of its version.
            request.headers_mut().remove("accept-encoding");
            let answer = self.send(request).await?;
            return Ok(answer.map(|body| self.events(resource, body)));
        }
        self.send(request).await
    }

    /// Logs a request; returns its fault, and the version for its read.
    fn note(&self, method: &Method, path: &str, watch: bool) -> (Option<Fault>, Option<String>) {
        let mut state = self.state();
        let write = counts(method, path).then(|| {
            state.writes += 1;
            state.writes
        });
        state.log.push(RequestLog {
            method: method.clone(),
            path: path.to_owned(),
            watch,
            write,
        });
        let is_first = !state.struck;
        let fault = state
            .fault
            .as_ref()
            .filter(|(point, _)| match point {
                FaultPoint::Number(number) => write == Some(*number),
                FaultPoint::Path(end) => is_first && write.is_some() && path.ends_with(end),
            })
            .map(|(_, fault)| *fault);
        state.struck |= fault.is_some();
        let version = state
            .aged
            .as_ref()
            .filter(|(_, system)| {
                *method == Method::GET
                    && !watch
                    && !path.contains(&format!("/namespaces/{system}/"))
            })
            .map(|(version, _)| version.clone());
        (fault, version)
    }

    fn is_held(&self, path: &str) -> bool {
        let mut state = self.state();
        let held = state.held.take_if(|held| single(path) == Some(*held));
        state.struck |= held.is_some();
        held.is_some()
    }

    async fn send(&self, request: Request<Body>) -> ApiResult {
        Ok(self.client.send(request).await?.map(Answer::new))
    }

    /// Reads a list as of `version`; a single object is read by a list of one.
    async fn aged(&self, mut request: Request<Body>, version: &str) -> ApiResult {
        let path = request.uri().path().to_owned();
        let mut parameters: Vec<(String, String)> = query(request.uri())
            .filter(|(key, _)| !key.starts_with("resourceVersion"))
            .collect();
        let name = single(&path);
        let collection = match name {
            Some(name) => {
                parameters.push(("fieldSelector".into(), format!("metadata.name={name}")));
                path.trim_end_matches(name).trim_end_matches('/')
            }
            None => &path,
        };
        // A continued list has its version in the token.
        if !parameters.iter().any(|(key, _)| key == "continue") {
            parameters.push(("resourceVersion".into(), version.to_owned()));
            parameters.push(("resourceVersionMatch".into(), "Exact".into()));
        }
        let query: Vec<String> = parameters
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        *request.uri_mut() = format!("{collection}?{}", query.join("&"))
            .parse()
            .expect("made of a URI's parts");
        let answer = self.send(request).await?;
        if name.is_none() || !answer.status().is_success() {
            return Ok(answer);
        }
        let body = answer.into_body().collect().await;
        let list: Value = serde_json::from_slice(&body.expect("a list").to_bytes()).expect("JSON");
        let (status, body) = match list["items"].get(0) {
            Some(object) => (StatusCode::OK, object.clone()),
            None => (
                StatusCode::NOT_FOUND,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                       "reason": "NotFound", "message": "not there yet", "code": 404}),
            ),
        };
        let mut answer = Response::new(Answer::from(body.to_string()));
        *answer.status_mut() = status;
        Ok(answer)
    }

    /// Passes the lines of a watch that are to arrive.
    fn events(self: &Arc<Self>, resource: String, body: Answer) -> Answer {
        let inner = Arc::clone(self);
        let mut generation = self.generation.subscribe();
        generation.mark_unchanged();
        let lines = futures::stream::unfold(
            (body.into_data_stream(), Vec::new(), generation),
            move |(mut body, mut rest, mut generation)| {
                let inner = Arc::clone(&inner);
                let resource = resource.clone();
                async move {
                    loop {
                        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                            let line: Vec<u8> = rest.drain(..=end).collect();
                            inner.until(|process| *process == Process::Running).await;
                            let lost = match &*inner.watching.borrow() {
                                WatchFault::Delivered => false,
                                WatchFault::Lost(resources) => {
                                    resources.contains(resource.as_str())
                                }
                            };
                            if !lost {
                                let state = (body, rest, generation);
                                return Some((Ok::<_, axum::Error>(Bytes::from(line)), state));
                            }
                        }
                        let more = tokio::select! {
                            _ = generation.changed() => return None,
                            more = body.next() => more,
                        };
                        match more {
                            Some(Ok(bytes)) => rest.extend_from_slice(&bytes),
                            Some(Err(error)) => {
                                return Some((Err(error), (body, rest, generation)));
                            }
                            None => return None,
                        }
                    }
                }
            },
        );
        Answer::from_stream(lines)
    }
}

const GONE: &str = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"#,
    r#""Failure","message":"too old resource version","reason":"Expired","code":410}}"#,
    "\n"
);

/// True if the request is a write of the controller's actual work.
fn counts(method: &Method, path: &str) -> bool {
    *method != Method::GET
        && !path.contains("/leases/")
        && !path.contains("/tokenreviews")
        && single(path) != Some(names::APPROVAL_CHECK)
}

fn query(uri: &Uri) -> impl Iterator<Item = (String, String)> {
    uri.query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        })
}

/// The path's segments after group and version, without the namespace's.
fn parts(path: &str) -> Vec<&str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let skip = if parts.first() == Some(&"api") { 2 } else { 3 };
    match parts.get(skip..) {
        Some(["namespaces", _, rest @ ..]) if !rest.is_empty() => rest.to_vec(),
        Some(rest) => rest.to_vec(),
        None => Vec::new(),
    }
}

/// Returns `secrets` for `/api/v1/namespaces/pond/secrets/reed`.
pub fn resource(path: &str) -> &str {
    parts(path).first().copied().unwrap_or_default()
}

fn single(path: &str) -> Option<&str> {
    parts(path).get(1).copied()
}
