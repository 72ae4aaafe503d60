//! The calls of one running child: the request behind each id.
//!
//! Invariant: an id is used once for a child and means nothing to the next child, so an answer
//! reaches only its caller.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use serde_json::value::RawValue;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use toolcrib_mcp::code::METHOD_NOT_FOUND;
use toolcrib_mcp::{Fault, Members, Message, ReplyBody, RpcResponse};
use toolcrib_sidecar::app::sessions::SessionId;

use crate::line::{answer_line, notification_line, request_line};
use crate::listed::ListedTools;

/// Limits the lines that wait for the child to read them. Each line is a few bytes, or belongs to a
/// call, and the number of calls is bounded too.
const QUEUE: usize = 128;

/// The reason why a call got no answer from the child.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    #[error("too many calls are running; try again later")]
    Busy,
    #[error("the program is not running: {why}")]
    NotRunning { why: String },
    #[error("the program ended while the call was running")]
    Ended,
    #[error("the program wrote a longer line than can be read")]
    TooLong,
    #[error("the program did not answer in time")]
    TimedOut,
    #[error("the call was cancelled")]
    Cancelled,
}

impl CallError {
    /// Codes from the range that JSON-RPC and MCP leave to implementations.
    pub fn fault(&self) -> Fault {
        let (code, reason, may_have_run) = match self {
            Self::Busy => (-32010, "busy", false),
            Self::NotRunning { .. } => (-32011, "not_running", false),
            Self::Ended => (-32012, "program_ended", true),
            Self::TooLong => (-32013, "answer_too_long", true),
            Self::TimedOut => (-32014, "timed_out", true),
            Self::Cancelled => (-32015, "cancelled", true),
        };
        Fault {
            code,
            message: self.to_string(),
            data: Some(json!({"reason": reason, "mayHaveRun": may_have_run})),
        }
    }
}

/// The origin of a request. A client with a session may cancel the request by its id.
#[derive(Clone, Debug)]
pub struct Caller {
    pub session: Option<SessionId>,
    pub id: Box<RawValue>,
}

type Outcome = Result<RpcResponse, CallError>;

#[derive(Debug)]
struct Call {
    caller: Option<Caller>,
    answered: oneshot::Sender<Outcome>,
}

#[derive(Debug)]
pub struct Program {
    lines: mpsc::Sender<Vec<u8>>,
    calls: Mutex<Calls>,
    pub listed: ListedTools,
}

#[derive(Debug, Default)]
struct Calls {
    last_id: u64,
    /// The running calls; `None` after the child has ended.
    running: Option<HashMap<u64, Call>>,
}

impl Program {
    /// Returns the program, and the lines for the child's stdin.
    pub fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (lines, queue) = mpsc::channel(QUEUE);
        let calls = Calls {
            last_id: 0,
            running: Some(HashMap::new()),
        };
        let program = Self {
            lines,
            calls: Mutex::new(calls),
            listed: ListedTools::default(),
        };
        (program, queue)
    }

    /// Sends a request and waits for its answer. If the future is dropped, the child is told to
    /// cancel.
    pub async fn request(
        &self,
        caller: Option<Caller>,
        method: &str,
        params: Option<&Members>,
    ) -> Outcome {
        let (waiting, answered) = self.enter(caller)?;
        let line = request_line(waiting.id, method, params);
        // An error of the send or of the wait means that the child has ended and its calls have
        // failed.
        if self.lines.send(line).await.is_err() {
            return Err(CallError::Ended);
        }
        answered.await.unwrap_or(Err(CallError::Ended))
    }

    fn enter(
        &self,
        caller: Option<Caller>,
    ) -> Result<(PendingCall<'_>, oneshot::Receiver<Outcome>), CallError> {
        let (answered, answer) = oneshot::channel();
        let mut calls = self.calls();
        calls.last_id += 1;
        let id = calls.last_id;
        let running = calls.running.as_mut().ok_or(CallError::NotRunning {
            why: "it has just ended".to_owned(),
        })?;
        running.insert(id, Call { caller, answered });
        Ok((PendingCall { program: self, id }, answer))
    }

    pub async fn notify(&self, method: &str) {
        // Err: the child has ended, which the supervisor notices.
        self.lines.send(notification_line(method, None)).await.ok();
    }

    /// Cancels the request that a client of this session sent under this id.
    pub fn cancel(&self, session: &SessionId, id: &RawValue) {
        let is_it = |call: &Call| {
            call.caller.as_ref().is_some_and(|caller| {
                caller.session.as_ref() == Some(session) && caller.id.get() == id.get()
            })
        };
        let mut calls = self.calls();
        let running = calls.running.iter_mut().flatten();
        let found = running
            .filter(|(_, call)| is_it(call))
            .map(|(id, _)| *id)
            .next();
        if let Some(id) = found {
            answer(&mut calls, id, Err(CallError::Cancelled));
            drop(calls);
            self.forget(id);
        }
    }

    /// Handles one line of the child's stdout.
    pub fn heard(&self, line: &[u8]) {
        match Message::parse(line) {
            Ok(Message::Response { id, response }) => match id.get().parse() {
                Ok(id) => answer(&mut self.calls(), id, Ok(response)),
                Err(_) => tracing::debug!("response with an unknown id dropped"),
            },
            Ok(Message::Request { id, method, .. }) => self.answer_request(&id, &method),
            Ok(Message::Notification { method, .. }) => {
                tracing::debug!(method, "notification of the program dropped");
            }
            Err(_) => {
                let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
                tracing::warn!(
                    line = &*line,
                    "stdout line is not a JSON-RPC message, dropped"
                );
            }
        }
    }

    /// Answers a request of the child; none is passed on to clients.
    fn answer_request(&self, id: &RawValue, method: &str) {
        let pong = toolcrib_mcp::raw(&json!({}));
        let refusal = Fault {
            code: METHOD_NOT_FOUND,
            message: "clients do not support this method".to_owned(),
            data: None,
        };
        let said = if method == "ping" {
            ReplyBody::Result(&pong)
        } else {
            tracing::debug!(method, "request of the program refused");
            ReplyBody::Fault(&refusal)
        };
        if self.lines.try_send(answer_line(id, said)).is_err() {
            tracing::warn!(method, "program does not read stdin, response dropped");
        }
    }

    /// Fails all calls after a line of the child that was too long to read: the call that it
    /// answered is unknown.
    pub fn fail_unknown_answer(&self) {
        if let Some(running) = &mut self.calls().running {
            fail(running, &CallError::TooLong);
        }
    }

    /// Handles the child's end: fails all running calls and refuses new ones.
    pub fn ended(&self) {
        if let Some(mut running) = self.calls().running.take() {
            fail(&mut running, &CallError::Ended);
        }
    }

    /// Tells the child that the answer of a call is no longer needed.
    fn forget(&self, id: u64) {
        let line = notification_line("notifications/cancelled", Some(&json!({"requestId": id})));
        if self.lines.try_send(line).is_err() {
            tracing::debug!(id, "program does not read stdin, cancellation dropped");
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // A panic under the lock leaves at worst a call that waits for its timeout.
        self.calls.lock()
    }
}

/// Limits the bytes of a line in the log.
pub const SHOWN: usize = 4096;

fn answer(calls: &mut Calls, id: u64, outcome: Outcome) {
    if let Some(call) = calls.running.as_mut().and_then(|it| it.remove(&id)) {
        // Err: the caller has disconnected.
        call.answered.send(outcome).ok();
    }
}

fn fail(running: &mut HashMap<u64, Call>, error: &CallError) {
    for (_, call) in running.drain() {
        // Err: the caller has disconnected.
        call.answered.send(Err(error.clone())).ok();
    }
}

/// A pending call. Dropping it cancels the call.
struct PendingCall<'a> {
    program: &'a Program,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        let left = self
            .program
            .calls()
            .running
            .as_mut()
            .and_then(|it| it.remove(&self.id));
        if left.is_some() {
            self.program.forget(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use toolcrib_mcp::raw;

    fn caller(session: &str, id: u64) -> Caller {
        Caller {
            session: Some(SessionId::named(session)),
            id: raw(&id),
        }
    }

    fn read(queue: &mut mpsc::Receiver<Vec<u8>>) -> Value {
        serde_json::from_slice(&queue.try_recv().unwrap()).unwrap()
    }

    fn text(outcome: Outcome) -> String {
        match outcome.unwrap() {
            RpcResponse::Result(raw) | RpcResponse::Error(raw) => raw.get().to_owned(),
        }
    }

    #[tokio::test]
    async fn equal_ids_of_two_sessions_get_their_own_answers() {
        let (program, mut queue) = Program::new();
        let otter = program.request(Some(caller("otter", 1)), "tools/list", None);
        let heron = program.request(Some(caller("heron", 1)), "tools/call", None);
        let child = async {
            let first = queue.recv().await.unwrap();
            let second = queue.recv().await.unwrap();
            let id = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap()["id"].clone();
            assert_ne!(id(&first), id(&second));
            for line in [second, first] {
                let value: Value = serde_json::from_slice(&line).unwrap();
                let said = json!({"jsonrpc": "2.0", "id": value["id"], "result": value["method"]});
                program.heard(said.to_string().as_bytes());
                // A second answer to the same call is dropped.
                program.heard(said.to_string().as_bytes());
            }
        };
        let (otter, heron, ()) = tokio::join!(otter, heron, child);
        assert_eq!(text(otter), r#""tools/list""#);
        assert_eq!(text(heron), r#""tools/call""#);
    }

    #[tokio::test]
    async fn a_session_cancels_its_own_calls_only() {
        let (program, mut queue) = Program::new();
        let call = program.request(Some(caller("otter", 7)), "tools/call", None);
        let cancels = async {
            let asked: Value = serde_json::from_slice(&queue.recv().await.unwrap()).unwrap();
            program.cancel(&SessionId::named("heron"), &raw(&7));
            program.cancel(&SessionId::named("otter"), &raw(&8));
            assert!(queue.try_recv().is_err());
            program.cancel(&SessionId::named("otter"), &raw(&7));
            let told = read(&mut queue);
            assert_eq!(told["method"], "notifications/cancelled");
            assert_eq!(told["params"]["requestId"], asked["id"]);
        };
        let (outcome, ()) = tokio::join!(call, cancels);
        assert_eq!(outcome.unwrap_err(), CallError::Cancelled);
    }

    #[tokio::test]
    async fn a_disconnected_caller_cancels_its_call() {
        let (program, mut queue) = Program::new();
        let mut call = Box::pin(program.request(None, "tools/call", None));
        assert!(futures_poll(&mut call).await);
        let asked = read(&mut queue);
        drop(call);
        assert_eq!(read(&mut queue)["params"]["requestId"], asked["id"]);
    }

    /// Polls once; returns true if the call is still pending.
    async fn futures_poll(call: &mut (impl Future<Output = Outcome> + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = call => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn calls_fail_when_the_child_ends() {
        let (program, _queue) = Program::new();
        let call = program.request(None, "tools/call", None);
        let ends = async { program.ended() };
        let (outcome, ()) = tokio::join!(call, ends);
        assert_eq!(outcome.unwrap_err(), CallError::Ended);
        let late = program.request(None, "tools/call", None).await;
        assert!(matches!(late, Err(CallError::NotRunning { .. })));
    }

    #[test]
    fn requests_of_the_child_are_answered_by_the_wrapper() {
        let (program, mut queue) = Program::new();
        program.heard(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#);
        assert_eq!(
            read(&mut queue),
            json!({"jsonrpc": "2.0", "id": "a", "result": {}})
        );
        program.heard(br#"{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}"#);
        let refused = read(&mut queue);
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(5), &json!(-32601))
        );
        program.heard(br#"{"jsonrpc":"2.0","method":"notifications/message"}"#);
        program.heard(b"hello");
        assert!(queue.try_recv().is_err());
    }
}
