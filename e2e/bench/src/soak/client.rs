//! One client of a mediator: a kept-alive connection, opened again after the client has closed it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::load::{Step, opened};

/// Timeout of an answer; longer than the mediator's own deadlines in this run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Events of a stream that a client reads before it cancels.
const EVENTS_READ: usize = 5;
/// Time after which a client hangs up: the mediator waits for its tool by then.
const BEFORE_HANGING_UP: Duration = Duration::from_millis(200);

/// What a client saw of the answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Whole {
        status: u16,
        body: Bytes,
    },
    /// The connection was closed before the end of the answer.
    Broken(String),
    /// The client closed the connection.
    Closed,
}

pub struct Client {
    address: SocketAddr,
    connection: Option<Connection>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<hyper::Result<()>>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&mut self, step: &Step) -> Result<Answer> {
        self.send(step.request()?).await
    }

    pub async fn ask_with_wrong_token(&mut self, step: &Step) -> Result<Answer> {
        let mut request = step.request()?;
        let wrong = HeaderValue::from_static("Bearer otter:another-runner");
        request.headers_mut().insert(AUTHORIZATION, wrong);
        self.send(request).await
    }

    /// Sends a request, reads the beginning of the streamed answer, and closes the connection.
    pub async fn cancel(&mut self, step: &Step) -> Result<Answer> {
        let request = step.request()?;
        let read = async {
            let response = self.response(request).await?;
            if !response.status().is_success() {
                return whole(response).await;
            }
            let mut body = response.into_body();
            for _ in 0..EVENTS_READ {
                if body.frame().await.transpose()?.is_none() {
                    break;
                }
            }
            Ok(Answer::Closed)
        };
        let answer = in_time(read).await;
        self.close();
        Ok(answer)
    }

    /// Sends a request, and closes the connection before the answer.
    pub async fn hang_up(&mut self, step: &Step) -> Result<Answer> {
        let request = step.request()?;
        let answer = tokio::time::timeout(BEFORE_HANGING_UP, self.response(request)).await;
        let answer = match answer {
            Err(_) => Answer::Closed,
            Ok(Ok(response)) => seen(whole(response).await),
            Ok(Err(error)) => Answer::Broken(format!("{error:#}")),
        };
        self.close();
        Ok(answer)
    }

    /// Sends a request without the second half of its body, on a connection of its own that is closed
    /// at once.
    pub async fn send_half(&self, step: &Step) -> Result<Answer> {
        let (head, body) = step.request()?.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut text = format!("{} {} HTTP/1.1\r\n", head.method, head.uri).into_bytes();
        for (name, value) in &head.headers {
            let line = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
            text.extend(line.concat());
        }
        text.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        text.extend_from_slice(&body[..body.len() / 2]);
        TcpStream::connect(self.address)
            .await?
            .write_all(&text)
            .await?;
        Ok(Answer::Closed)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let answered = async { whole(self.response(request).await?).await };
        let answer = in_time(answered).await;
        if let Answer::Broken(_) = answer {
            self.close();
        }
        Ok(answer)
    }

    async fn response(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let mut open = self.connection.take();
        if let Some(connection) = &mut open
            && connection.sender.ready().await.is_err()
        {
            open = None;
        }
        let open = match open {
            Some(open) => open,
            None => {
                let (sender, task) = opened(self.address).await?;
                Connection { sender, task }
            }
        };
        let connection = self.connection.insert(open);
        Ok(connection.sender.send_request(request).await?)
    }

    /// Closes the socket at once, also while an answer is read.
    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.task.abort();
        }
    }
}

async fn whole(response: Response<Incoming>) -> Result<Answer> {
    Ok(Answer::Whole {
        status: response.status().as_u16(),
        body: response.into_body().collect().await?.to_bytes(),
    })
}

async fn in_time(answer: impl Future<Output = Result<Answer>>) -> Answer {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => seen(answer),
        Err(_) => Answer::Broken(format!("no answer after {PATIENCE:?}")),
    }
}

fn seen(answer: Result<Answer>) -> Answer {
    answer.unwrap_or_else(|error| Answer::Broken(format!("{error:#}")))
}
