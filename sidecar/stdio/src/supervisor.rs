//! Supervises the child: starts it, initializes it, and restarts it when it ends.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use toolcrib_mcp::revision::NEWEST_HANDSHAKE;
use toolcrib_mcp::{RpcResponse, members, raw};

use crate::child::{self, Child};
use crate::orphans;
use crate::program::{Program, SHOWN};
use crate::revision::ChildDescription;

/// Limits the bytes of one message of the child. A larger result is more than any model reads.
const LINE: usize = 8 * 1024 * 1024;
/// Timeout of `initialize`: programs that are installed on their first run need time.
const GREETING: Duration = Duration::from_secs(120);
/// Backoff before the first restart; doubled for each further restart.
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// A child that ran at least this long resets the backoff.
const STEADY: Duration = Duration::from_secs(60);
/// Timeout for reading the output that an ended child left in its pipes.
const REST: Duration = Duration::from_secs(1);

/// The state of the child.
#[derive(Clone, Debug)]
pub enum State {
    /// Not initialized yet; `before` says why the previous child ended.
    Starting { before: Option<String> },
    Running {
        program: Arc<Program>,
        about: Arc<ChildDescription>,
    },
    /// Stopped for good.
    Stopped,
}

/// Keeps a child running until `stopped` is true. The child has ended when this returns.
pub async fn run(
    command: Vec<OsString>,
    state: watch::Sender<State>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut backoff = BACKOFF;
    loop {
        let began = Instant::now();
        let end = live(&command, &state, &mut stopped).await;
        let End::Ended { why } = end else { break };
        if began.elapsed() >= STEADY {
            backoff = BACKOFF;
        }
        tracing::warn!(
            why,
            again_in_ms = u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX),
            "program not running, restarting"
        );
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = stop(&mut stopped) => break,
        }
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
    state.send_replace(State::Stopped);
}

enum End {
    Ended { why: String },
    Stopped,
}

async fn live(
    command: &[OsString],
    state: &watch::Sender<State>,
    stopped: &mut watch::Receiver<bool>,
) -> End {
    let (mut child, pipes) = match child::spawn(command) {
        Ok(spawned) => spawned,
        Err(error) => {
            let why = format!("it cannot be started: {error}");
            state.send_replace(State::Starting {
                before: Some(why.clone()),
            });
            return End::Ended { why };
        }
    };
    let (program, queue) = Program::new();
    let program = Arc::new(program);
    let mut reader = tokio::spawn(read(pipes.stdout, program.clone()));
    let mut writer = JoinSet::new();
    writer.spawn(write(queue, pipes.stdin));
    let log = tokio::spawn(log(pipes.stderr));

    let id = child.id();
    let why = tokio::select! {
        why = serve(&program, state) => Some(why),
        status = child.exited() => Some(ended(status)),
        _ = &mut reader => Some(closed(&mut child, "output").await),
        _ = writer.join_next() => Some(closed(&mut child, "input").await),
        never = orphans::reap(id) => match never {},
        () = stop(stopped) => None,
    };
    state.send_replace(match &why {
        Some(why) => State::Starting {
            before: Some(why.clone()),
        },
        None => State::Stopped,
    });
    // Closes the child's stdin.
    writer.shutdown().await;
    match why {
        Some(_) => child.kill().await,
        None => child.end().await,
    }
    // Reads the pipes to their end: answers that the child wrote before it ended still count, and
    // its last log lines explain the end.
    rest(reader).await;
    program.ended();
    rest(log).await;
    match why {
        Some(why) => End::Ended { why },
        None => End::Stopped,
    }
}

fn ended(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("it ended with {status}"),
        Err(error) => format!("it cannot be waited for: {error}"),
    }
}

/// Describes the end of a child that closed a pipe. Waits a moment for the exit status, which
/// explains more. The caller ends a child that still runs, because it cannot serve without the
/// pipe.
async fn closed(child: &mut Child, pipe: &str) -> String {
    timeout(REST, child.exited())
        .await
        .map_or_else(|_| format!("it closed its standard {pipe}"), ended)
}

/// Waits for a task that ends with its pipe. A descendant outside of the process group may keep the
/// pipe open.
async fn rest(mut task: JoinHandle<()>) {
    if !task.is_finished() && timeout(REST, &mut task).await.is_err() {
        task.abort();
    }
}

/// Initializes the child and lets calls through. Returns only if the child cannot be initialized,
/// with the reason.
async fn serve(program: &Arc<Program>, state: &watch::Sender<State>) -> String {
    match greet(program).await {
        Ok(about) => {
            tracing::info!(
                server = about.server(),
                version = about.version(),
                "program ready"
            );
            state.send_replace(State::Running {
                program: program.clone(),
                about: Arc::new(about),
            });
            std::future::pending().await
        }
        Err(why) => why,
    }
}

async fn greet(program: &Program) -> Result<ChildDescription, String> {
    // Declares no capability: every request of the child to a client is refused.
    let params = raw(&json!({
        "protocolVersion": NEWEST_HANDSHAKE,
        "capabilities": {},
        "clientInfo": {
            "name": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
        },
    }));
    let params = members(&params);
    let answer = timeout(
        GREETING,
        program.request(None, "initialize", params.as_ref()),
    )
    .await;
    let about = match answer {
        Err(_) => {
            return Err(format!(
                "it did not answer initialize within {} s",
                GREETING.as_secs()
            ));
        }
        Ok(Err(error)) => return Err(error.to_string()),
        Ok(Ok(RpcResponse::Error(error))) => {
            let error: String = error.get().chars().take(SHOWN).collect();
            return Err(format!("it refused initialize: {}", error.escape_debug()));
        }
        Ok(Ok(RpcResponse::Result(result))) => ChildDescription::read(&result)?,
    };
    program.notify("notifications/initialized").await;
    Ok(about)
}

async fn write(mut queue: mpsc::Receiver<Vec<u8>>, mut stdin: ChildStdin) {
    while let Some(line) = queue.recv().await {
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(error = error.to_string(), "writing to the program failed");
            return;
        }
    }
}

async fn read(stdout: impl AsyncRead + Unpin, program: Arc<Program>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        match next_line(&mut stdout, &mut line, LINE).await {
            Ok(Line::Whole) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Line::Whole) => program.heard(&line),
            Ok(Line::Cut) => {
                tracing::warn!(limit = LINE, "message of the program too long, dropped");
                program.fail_unknown_answer();
            }
            Ok(Line::End) => return,
            Err(error) => {
                tracing::warn!(
                    error = error.to_string(),
                    "reading the program's stdout failed"
                );
                return;
            }
        }
    }
}

async fn log(stderr: impl AsyncRead + Unpin) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        let cut = match next_line(&mut stderr, &mut line, SHOWN).await {
            Ok(Line::Whole) => false,
            Ok(Line::Cut) => true,
            Ok(Line::End) => return,
            Err(error) => {
                tracing::warn!(
                    error = error.to_string(),
                    "reading the program's stderr failed"
                );
                return;
            }
        };
        let line = String::from_utf8_lossy(&line);
        tracing::info!(target: "program", line = line.trim_end(), cut);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole,
    /// The line has more than `limit` bytes; the rest of it was skipped.
    Cut,
    End,
}

/// Reads one line without its line break into `line`, and keeps at most `limit` bytes of it.
async fn next_line(
    from: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    limit: usize,
) -> io::Result<Line> {
    line.clear();
    line.shrink_to(SHOWN);
    let mut cut = false;
    let mut any = false;
    loop {
        let there = from.fill_buf().await?;
        if there.is_empty() {
            return Ok(match (any, cut) {
                (false, _) => Line::End,
                (true, false) => Line::Whole,
                (true, true) => Line::Cut,
            });
        }
        any = true;
        let end = there.iter().position(|byte| *byte == b'\n');
        let part = &there[..end.unwrap_or(there.len())];
        let room = limit - line.len();
        cut |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(there.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(if cut { Line::Cut } else { Line::Whole });
        }
    }
}

async fn stop(stopped: &mut watch::Receiver<bool>) {
    // Err: the sender was dropped, which is a stop too.
    stopped.wait_for(|stopped| *stopped).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_separate() {
        let text: &[u8] = b"one\n\n12345678\n123456789\nafter\nno end";
        let mut from = BufReader::with_capacity(4, text);
        let mut line = Vec::new();
        let mut read = Vec::new();
        loop {
            match next_line(&mut from, &mut line, 8).await.unwrap() {
                Line::End => break,
                kind @ (Line::Whole | Line::Cut) => {
                    read.push((kind, String::from_utf8(line.clone()).unwrap()))
                }
            }
        }
        let whole = |text: &str| (Line::Whole, text.to_owned());
        let expected = [
            whole("one"),
            whole(""),
            whole("12345678"),
            (Line::Cut, "12345678".to_owned()),
            whole("after"),
            whole("no end"),
        ];
        assert_eq!(read, expected);
    }
}
