//! A server that sends scripted bytes, as a broken or hostile service may. It keeps every byte
//! that it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The answer to one request's head.
#[derive(Clone)]
pub struct RawAnswer {
    bytes: Vec<u8>,
    then: AfterAnswer,
}

#[derive(Clone, Copy)]
enum AfterAnswer {
    /// Reads the next request of the connection.
    Keep,
    Close,
    /// Sends nothing more, and keeps the connection open.
    Hang,
    /// Sends the same bytes for ever.
    Endless,
    /// Sends one byte at a time, for ever.
    Drip,
}

impl RawAnswer {
    fn new(bytes: impl Into<Vec<u8>>, then: AfterAnswer) -> RawAnswer {
        RawAnswer {
            bytes: bytes.into(),
            then,
        }
    }

    pub fn keep(bytes: impl Into<Vec<u8>>) -> RawAnswer {
        Self::new(bytes, AfterAnswer::Keep)
    }

    pub fn close(bytes: impl Into<Vec<u8>>) -> RawAnswer {
        Self::new(bytes, AfterAnswer::Close)
    }

    pub fn hang(bytes: impl Into<Vec<u8>>) -> RawAnswer {
        Self::new(bytes, AfterAnswer::Hang)
    }

    /// `bytes` first, then 64 KiB chunks of `x`.
    pub fn endless(bytes: impl Into<Vec<u8>>) -> RawAnswer {
        Self::new(bytes, AfterAnswer::Endless)
    }

    /// `bytes` first, then a byte each few milliseconds.
    pub fn drip(bytes: impl Into<Vec<u8>>) -> RawAnswer {
        Self::new(bytes, AfterAnswer::Drip)
    }

    pub fn json(body: &str) -> RawAnswer {
        Self::keep(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }
}

pub struct Raw {
    pub address: SocketAddr,
    connections: Arc<Mutex<Vec<Vec<u8>>>>,
    task: JoinHandle<()>,
}

impl Raw {
    /// Starts a server that answers in the script's order, over all connections.
    pub async fn start(script: impl IntoIterator<Item = RawAnswer>) -> Raw {
        Self::serve(script, None).await
    }

    pub async fn start_tls(script: impl IntoIterator<Item = RawAnswer>, tls: ServerConfig) -> Raw {
        Self::serve(script, Some(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn serve(script: impl IntoIterator<Item = RawAnswer>, tls: Option<TlsAcceptor>) -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let script: Vec<RawAnswer> = script.into_iter().collect();
        let script = Arc::new(Mutex::new(script.into_iter()));
        let seen = connections.clone();
        let task = tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(Vec::new());
                    seen.len() - 1
                };
                let one = RawConnection {
                    seen: seen.clone(),
                    number,
                    script: script.clone(),
                };
                match tls.clone() {
                    None => served.spawn(one.serve(stream)),
                    Some(tls) => served.spawn(async move {
                        // Err: the client refused the certificate.
                        if let Ok(stream) = tls.accept(stream).await {
                            one.serve(stream).await;
                        }
                    }),
                };
            }
        });
        Raw {
            address,
            connections,
            task,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bytes received on each connection, after TLS if there is any.
    pub fn connections(&self) -> Vec<String> {
        let connections = self.connections.lock().unwrap();
        connections
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct RawConnection {
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    number: usize,
    script: Arc<Mutex<std::vec::IntoIter<RawAnswer>>>,
}

impl RawConnection {
    async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    self.seen.lock().unwrap()[self.number].extend(&buffer[..length]);
                    request.extend(&buffer[..length]);
                }
            }
            if !is_whole(&request) {
                continue;
            }
            request.clear();
            let Some(said) = self.script.lock().unwrap().next() else {
                return;
            };
            // Err: the client has closed the connection.
            if stream.write_all(&said.bytes).await.is_err() {
                return;
            }
            match said.then {
                AfterAnswer::Keep => {}
                AfterAnswer::Close => {
                    stream.shutdown().await.ok();
                    return;
                }
                AfterAnswer::Hang => std::future::pending().await,
                AfterAnswer::Endless => while stream.write_all(&[b'x'; 64 * 1024]).await.is_ok() {},
                AfterAnswer::Drip => {
                    let mut pace = tokio::time::interval(Duration::from_millis(5));
                    loop {
                        pace.tick().await;
                        if stream.write_all(b"x").await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// True if the request has its head and the declared body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.to_ascii_lowercase();
    let length = length
        .split_once("content-length: ")
        .map_or(0, |(_, rest)| {
            rest.lines().next().unwrap_or_default().parse().unwrap_or(0)
        });
    body.len() >= length
}
