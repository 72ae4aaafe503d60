//! The load generator. One item of work is one or more requests in a row on one connection: one
//! request for a turn through the mediator, and every hop of that turn through the bare proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use crate::manifest::TOKEN;

/// Timeout of a request. A timeout fails the run.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests that are sent one after the other.
#[derive(Clone, Debug)]
pub struct Work(pub Vec<Step>);

#[derive(Clone, Debug)]
pub struct Step {
    path: &'static str,
    /// Headers in addition to those of every request.
    headers: Vec<(&'static str, String)>,
    /// The body of a POST; empty for a GET.
    body: Bytes,
}

impl Step {
    pub fn get(path: &'static str) -> Self {
        Self::post(path, Bytes::new())
    }

    pub fn post(path: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            path,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[cfg(test)]
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }

    pub(crate) fn request(&self) -> http::Result<Request<Full<Bytes>>> {
        let method = if self.body.is_empty() { "GET" } else { "POST" };
        let request = Request::builder()
            .method(method)
            .uri(self.path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {TOKEN}"))
            .header("user-agent", "bench/1");
        let headers = self.headers.iter();
        headers
            .fold(request, |request, (name, value)| {
                request.header(*name, value)
            })
            .body(Full::new(self.body.clone()))
    }
}

impl From<Step> for Work {
    fn from(step: Step) -> Self {
        Self(vec![step])
    }
}

/// Times of one item of work.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub first_byte: Duration,
    pub whole: Duration,
}

/// Kept-alive connections to one address.
#[derive(Debug)]
pub struct Load {
    connections: Vec<SendRequest<Full<Bytes>>>,
}

impl Load {
    pub async fn connect(address: SocketAddr, connections: usize) -> Result<Self> {
        let mut senders = Vec::with_capacity(connections);
        for _ in 0..connections {
            senders.push(connected(address).await?);
        }
        Ok(Self {
            connections: senders,
        })
    }

    /// Runs a closed loop: each connection sends its next item when it has the answer.
    pub async fn run(&mut self, work: &Arc<Work>, items: usize) -> Result<Vec<Timing>> {
        let share = items.div_ceil(self.connections.len());
        self.drive(work, share, None).await
    }

    /// Sends this many items a second over all connections. The time of an item is counted from its
    /// sending.
    pub async fn at_rate(
        &mut self,
        work: &Arc<Work>,
        items: usize,
        per_second: f64,
    ) -> Result<Vec<Timing>> {
        let share = items.div_ceil(self.connections.len());
        let period = Duration::from_secs_f64(self.connections.len() as f64 / per_second);
        self.drive(work, share, Some(period)).await
    }

    /// Sends one item on each connection and waits until the result is dropped.
    pub fn hold(self, work: &Arc<Work>) -> JoinSet<Result<Timing>> {
        let mut held = JoinSet::new();
        for mut sender in self.connections {
            let work = work.clone();
            held.spawn(async move { one(&mut sender, &work).await });
        }
        held
    }

    async fn drive(
        &mut self,
        work: &Arc<Work>,
        share: usize,
        period: Option<Duration>,
    ) -> Result<Vec<Timing>> {
        let mut tasks = JoinSet::new();
        let count = self.connections.len() as u32;
        let begin = Instant::now();
        for (index, mut sender) in self.connections.drain(..).enumerate() {
            let work = work.clone();
            tasks.spawn(async move {
                let mut timings = Vec::with_capacity(share);
                for number in 0..share {
                    if let Some(period) = period {
                        let due = begin + period * number as u32 + period * index as u32 / count;
                        tokio::time::sleep_until(due.into()).await;
                    }
                    let item = one(&mut sender, &work);
                    timings.push(tokio::time::timeout(PATIENCE, item).await??);
                }
                anyhow::Ok((sender, timings))
            });
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (sender, timings) = done??;
            self.connections.push(sender);
            all.extend(timings);
        }
        Ok(all)
    }
}

pub(crate) async fn connected(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let (sender, _) = opened(address).await?;
    Ok(sender)
}

/// Opens a connection; returns its task too. The task ends when the sender is dropped. An error of the
/// connection fails the next request.
pub(crate) async fn opened(
    address: SocketAddr,
) -> Result<(SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>)> {
    let stream = TcpStream::connect(address).await.context("connect")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection)))
}

/// Sends one request on a new connection; returns the body of its answer.
pub(crate) async fn ask(address: SocketAddr, step: &Step) -> Result<String> {
    let mut sender = connected(address).await?;
    let answered = async {
        let response = sender.send_request(step.request()?).await?;
        anyhow::Ok(response.into_body().collect().await?.to_bytes())
    };
    let body = tokio::time::timeout(PATIENCE, answered).await??;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

async fn one(sender: &mut SendRequest<Full<Bytes>>, work: &Work) -> Result<Timing> {
    let began = Instant::now();
    let mut first_byte = Duration::ZERO;
    for step in &work.0 {
        sender.ready().await?;
        let response = sender.send_request(step.request()?).await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            if length == 0 {
                first_byte = began.elapsed();
            }
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        ensure!(status.is_success(), "{} answered {status}", step.path);
        ensure!(length > 0, "{} answered nothing", step.path);
    }
    Ok(Timing {
        first_byte,
        whole: began.elapsed(),
    })
}
