//! `toolcrib-sidecar probe`: one plain HTTP request to the admin listener, written by
//! hand with std so that an exec probe costs no runtime and no TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use thiserror::Error;

use crate::process::args::ProbeArgs;

/// The kubelet's default probe timeout is 1 s; an answer that comes later counts for nothing.
const TIMEOUT: Duration = Duration::from_millis(900);

#[derive(Debug, Error)]
pub enum ProbeError {
    #[error("no answer from {address}")]
    Unreachable {
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The mediator waits for its first files, or is ending.
    #[error("not ready: no answer from {0} yet; the mediator's log says what it waits for")]
    Slow(SocketAddr),
    /// The body of `/readyz` says why.
    #[error("{0}")]
    Negative(String),
}

/// Probes the mediator; `Ok` if it answered 200.
pub fn probe(args: &ProbeArgs) -> Result<(), ProbeError> {
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let address = args.admin_listen;
    // The error of a read that times out depends on the system.
    let is_timeout = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    let reply = ask(address, path).map_err(|source| match is_timeout(source.kind()) {
        true => ProbeError::Slow(address),
        false => ProbeError::Unreachable { address, source },
    })?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    let status = head.lines().next().unwrap_or("no status line");
    Err(ProbeError::Negative(format!("{path}: {status}: {body}")))
}

fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reply = String::new();
    // An answer is a few hundred bytes; the bound is for any other program on the port.
    stream.take(64 * 1024).read_to_string(&mut reply)?;
    Ok(reply)
}
