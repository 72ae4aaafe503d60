//! Reads the questions of an earlier process of this pod from the record.
//!
//! The record's files are rotated, so the oldest lines may be gone. A question whose line is there
//! has its later lines too: an approval whose call may have been sent is never open again.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use memchr::memmem;
use toolcrib_dialect::json;
use toolcrib_manifest::{ApprovalUse, AskingRule, Question, Tier};
use toolcrib_mediation::{ApprovalNeed, EarlierQuestion, Ending, Progress, SETTLED, WaitingCall};
use toolcrib_record::{DecisionLine, DecisionVerdict, IntentLine, Line, QuestionLine, TurnLine};

use super::OPEN_FOR;
use crate::history::log::{FILE_NAME, ROTATED_NAME};

/// Limits the questions that are kept while the record is read: the latest count.
const MOST: usize = 256;
/// Time after its expiry for which the operator still hears of a used approval.
const TOLD: SignedDuration = SignedDuration::from_hours(1);

/// A question as far as the lines tell.
#[derive(Debug)]
struct QuestionState {
    call: WaitingCall,
    question: Question,
    expires_at: Timestamp,
    progress: Progress,
    /// Time of a decision.
    decided_at: Timestamp,
    /// The call that used the approval, as long as its result is not known.
    sent: Option<SentCall>,
}

/// A call that was sent.
#[derive(Debug)]
struct SentCall {
    id: String,
    /// Beginning of the line that has its result.
    turn: String,
}

#[derive(Debug, Default)]
struct QuestionReader {
    /// In the order of their lines.
    found: VecDeque<QuestionState>,
}

/// The questions in their order, and the requests of those that are open.
type EarlierQuestions = (Vec<EarlierQuestion>, BTreeMap<String, Question>);

pub(super) fn read(dir: &Path, pod: &str, now: Timestamp) -> io::Result<EarlierQuestions> {
    let mut reading = QuestionReader::default();
    for name in [ROTATED_NAME, FILE_NAME] {
        let file = match File::open(dir.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // Only a regular file has an end.
        if !file.metadata()?.is_file() {
            continue;
        }
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line)? > 0 {
            reading.line(line.trim_ascii_end(), pod);
            line.clear();
        }
    }
    Ok(reading.end(now))
}

impl QuestionReader {
    fn line(&mut self, line: &[u8], pod: &str) {
        if !self.concerns(line) {
            return;
        }
        // Err: half a line of a killed process, whose call was not sent.
        match Line::parse(line) {
            Ok(Line::Question(line)) if line.pod_uid.as_deref() == Some(pod) => {
                self.question(&line)
            }
            Ok(Line::Decision(line)) => self.decision(&line),
            Ok(Line::Intent(line)) => self.intent(&line),
            Ok(Line::Turn(line)) => self.turn(&line),
            Ok(
                Line::Question(_)
                | Line::Start(_)
                | Line::Rules(_)
                | Line::ModelCall(_)
                | Line::Gap(_),
            )
            | Err(_) => {}
        }
    }

    /// Returns whether a line can tell of a question. Most lines cannot, and some are long, so this parses
    /// none that the mediator wrote.
    fn concerns(&self, line: &[u8]) -> bool {
        match Line::kind(line).as_deref() {
            Ok("question" | "decision") => true,
            // The arguments of a call can have this text, too.
            Ok("intent") => memmem::find(line, br#""approval":"#).is_some(),
            Ok("turn") => {
                let mut sent = self.found.iter().filter_map(|it| it.sent.as_ref());
                sent.any(|sent| line.starts_with(sent.turn.as_bytes()))
            }
            Ok(_) | Err(_) => false,
        }
    }

    fn question(&mut self, line: &QuestionLine<'_>) {
        let time = |text: &str| text.parse::<Timestamp>().ok();
        let (Some(asked_at), Some(expires_at)) = (time(&line.timestamp), time(&line.expires_at))
        else {
            return;
        };
        let rules = line.rules.iter().map(|rule| AskingRule {
            grant: rule.grant.clone(),
            rule: rule.rule.clone(),
        });
        let need = ApprovalNeed {
            rules: rules.collect(),
            policies: line.policies.to_vec(),
            by_tier: line.tier == Tier::Elevated.name(),
        };
        let open_for = expires_at.duration_since(asked_at).unsigned_abs();
        let question = Question {
            id: line.question.clone().into_owned(),
            call_digest: line.call_digest.clone().into_owned(),
            tool: line.name.clone().into_owned(),
            entry: line.entry.clone().into_owned(),
            arguments: line.arguments.get().to_owned(),
            redacted: line.redacted.to_vec(),
            rules: need.rules.clone(),
            asked_at: line.timestamp.clone().into_owned(),
            open_for_ms: u64::try_from(open_for.min(OPEN_FOR).as_millis()).unwrap_or(u64::MAX),
        };
        let call = WaitingCall {
            id: question.id.clone(),
            digest: question.call_digest.clone(),
            tool: question.tool.clone(),
            entry: question.entry.clone(),
            need,
        };
        let found = QuestionState {
            call,
            question,
            expires_at,
            progress: Progress::Open,
            decided_at: asked_at,
            sent: None,
        };
        self.found.retain(|it| it.call.id != found.call.id);
        if self.found.len() >= MOST {
            self.found.pop_front();
        }
        self.found.push_back(found);
    }

    fn find(&mut self, id: &str) -> Option<&mut QuestionState> {
        self.found.iter_mut().find(|it| it.call.id == id)
    }

    fn decision(&mut self, line: &DecisionLine<'_>) {
        let Some(found) = self.find(&line.question) else {
            return;
        };
        if matches!(found.progress, Progress::Used(_)) {
            return;
        }
        let reason = || line.reason.clone().into_owned();
        found.progress = match line.verdict {
            // The operator repeats it.
            DecisionVerdict::Approved => return,
            DecisionVerdict::Denied => Progress::Ended(Ending::Denied(reason())),
            DecisionVerdict::Expired => Progress::Ended(Ending::Expired),
            DecisionVerdict::Withdrawn | DecisionVerdict::Refused => {
                Progress::Ended(Ending::Withdrawn(reason()))
            }
        };
        if let Ok(at) = line.timestamp.parse() {
            found.decided_at = at;
        }
    }

    fn intent(&mut self, line: &IntentLine<'_>) {
        let Some(approval) = &line.approval else {
            return;
        };
        if let Some(found) = self.find(&approval.question) {
            found.progress = Progress::Used(ApprovalUse::Unknown);
            found.sent = line.call_id.as_deref().map(|id| SentCall {
                id: id.to_owned(),
                turn: turn_of(&line.request_id),
            });
        }
    }

    fn turn(&mut self, line: &TurnLine<'_>) {
        for call in line.tool_trace.iter().flat_map(|round| &round.tool_calls) {
            let mut found = self.found.iter_mut();
            let is_it = |it: &&mut QuestionState| {
                let sent = it.sent.as_ref();
                sent.is_some_and(|sent| sent.id == call.call_id)
            };
            if let Some(found) = found.find(is_it) {
                found.sent = None;
                found.progress = Progress::Used(match call.error_code() {
                    None => ApprovalUse::Succeeded,
                    Some(_) => ApprovalUse::Failed,
                });
            }
        }
    }

    fn end(self, now: Timestamp) -> EarlierQuestions {
        let mut requests = BTreeMap::new();
        let mut earlier = Vec::new();
        for it in self.found {
            let (progress, until) = match it.progress {
                Progress::Open => {
                    requests.insert(it.call.id.clone(), it.question);
                    (Progress::Open, it.expires_at)
                }
                Progress::Ended(ending @ (Ending::Denied(_) | Ending::Expired)) => {
                    (Progress::Ended(ending), it.decided_at + SETTLED)
                }
                Progress::Ended(Ending::Withdrawn(_) | Ending::Refused(_)) => continue,
                Progress::Used(used) if it.expires_at + TOLD > now => {
                    (Progress::Used(used), it.expires_at)
                }
                Progress::Used(_) => continue,
            };
            // A clock that was set back does not keep a question open for longer.
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            if left.is_zero() && matches!(progress, Progress::Ended(_)) {
                continue;
            }
            earlier.push(EarlierQuestion {
                call: it.call,
                progress,
                left: left.min(OPEN_FOR),
            });
        }
        (earlier, requests)
    }
}

/// The beginning of the line of a finished request.
fn turn_of(request_id: &str) -> String {
    format!(
        r#"{{"kind":"turn","request_id":{}"#,
        json::quote(request_id)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const POD: &str = "u-7";

    fn question(id: &str, pod: &str, expires_at: &str) -> Value {
        json!({"kind": "question", "request_id": "r", "call_id": "r-1-0", "agent_id": "otter",
            "namespace": "pond", "pod": "otter-0", "pod_uid": pod,
            "timestamp": "2026-11-27T10:00:00Z", "question": id, "call_digest": "c1:0",
            "name": "desk.order", "entry": "v1:order", "tier": "Elevated",
            "arguments": {"quantity": 5}, "expires_at": expires_at})
    }

    fn decision(id: &str, verdict: &str) -> Value {
        json!({"kind": "decision", "pod": "otter-0", "timestamp": "2026-11-27T10:10:00Z",
            "question": id, "call_digest": "c1:0", "name": "desk.order", "verdict": verdict,
            "reason": "no"})
    }

    fn intent(id: &str, call: &str) -> Value {
        json!({"kind": "intent", "request_id": "r", "call_id": call, "agent_id": "otter",
            "pod": "otter-0", "timestamp": "2026-11-27T10:10:00Z", "round": 1, "name": "desk.order",
            "arguments": {}, "service": "desk", "tier": "Elevated", "read_only": false,
            "approval": {"question": id, "name": "otter-0", "uid": "a"}})
    }

    fn turn(calls: &[(&str, Value)]) -> Value {
        let calls = calls.iter().map(|(id, result)| {
            json!({"call_id": id, "name": "desk.order", "arguments": {}, "result": result,
                "latency_ms": 1, "executed": true})
        });
        json!({"kind": "turn", "request_id": "r", "agent_id": "otter", "pod": "otter-0",
            "timestamp": "2026-11-27T10:11:00Z", "dialect": "mcp", "token": "t", "http_status": 200,
            "duration_ms": 1, "status": "ok", "usage": {"prompt_tokens": 0, "completion_tokens": 0},
            "tool_trace": [{"round": 1, "tool_calls": calls.collect::<Vec<_>>(),
                "round_usage": {"prompt_tokens": 0, "completion_tokens": 0}}]})
    }

    /// The line as the mediator writes it.
    fn written(line: &Value) -> String {
        let line = line.to_string();
        serde_json::to_string(&Line::parse(line.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn only_lines_about_questions_are_parsed() {
        let mut reading = QuestionReader::default();
        for line in [
            question("q", POD, "2026-11-27T11:00:00Z"),
            intent("q", "r-1-0"),
        ] {
            assert!(reading.concerns(written(&line).as_bytes()), "{line}");
            reading.line(written(&line).as_bytes(), POD);
        }
        let check = |reading: &QuestionReader, line: &Value, concerns: bool| {
            assert_eq!(
                reading.concerns(written(line).as_bytes()),
                concerns,
                "{line}"
            );
        };
        check(&reading, &decision("q", "denied"), true);
        let mut other = intent("q", "r-1-1");
        other.as_object_mut().unwrap().remove("approval");
        check(&reading, &other, false);
        let result = turn(&[("r-1-0", json!({"ok": true}))]);
        let mut another = result.clone();
        another["request_id"] = json!("r2");
        check(&reading, &another, false);
        check(&reading, &result, true);
        reading.line(written(&result).as_bytes(), POD);
        check(&reading, &result, false);
        let start = json!({"kind": "start", "version": 1, "pod": "otter-0",
            "timestamp": "2026-11-27T10:00:00Z"});
        check(&reading, &start, false);
        // A line of another program, and half a line.
        for text in [r#"{"level":"info"}"#, r#"{"kind":"que"#, ""] {
            assert!(!reading.concerns(text.as_bytes()), "{text}");
        }
    }

    /// Id, progress and seconds left of each question that was found.
    fn found(rotated: &[Value], current: &[Value], now: &str) -> Vec<(String, Progress, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let text = |lines: &[Value]| {
            lines
                .iter()
                .map(|it| written(it) + "\n")
                .collect::<String>()
        };
        std::fs::write(dir.path().join(ROTATED_NAME), text(rotated)).unwrap();
        // Half a line of a killed process.
        std::fs::write(
            dir.path().join(FILE_NAME),
            text(current) + "{\"kind\":\"int",
        )
        .unwrap();
        let (earlier, requests) = read(dir.path(), POD, now.parse().unwrap()).unwrap();
        for it in &earlier {
            let is_open = it.progress == Progress::Open;
            assert_eq!(requests.contains_key(&it.call.id), is_open);
        }
        let found = earlier.into_iter();
        found
            .map(|it| (it.call.id, it.progress, it.left.as_secs()))
            .collect()
    }

    #[test]
    fn the_record_tells_what_became_of_each_question() {
        const SOON: &str = "2026-11-27T11:00:00Z";
        let denied = Progress::Ended(Ending::Denied("no".to_owned()));
        let rotated = [
            question("open", POD, SOON),
            question("approved", POD, SOON),
            question("used", POD, SOON),
            question("unknown", POD, SOON),
            question("failed", POD, SOON),
            question("elsewhere", "u-8", SOON),
        ];
        let current = [
            question("denied", POD, SOON),
            question("withdrawn", POD, SOON),
            question("expired", POD, "2026-11-27T10:15:00Z"),
            question("over", POD, "2026-11-27T10:10:00Z"),
            decision("approved", "approved"),
            decision("denied", "denied"),
            decision("withdrawn", "withdrawn"),
            decision("over", "expired"),
            intent("used", "r-1-0"),
            intent("unknown", "r-1-1"),
            intent("failed", "r-1-2"),
            // A line of a question that is gone.
            intent("another", "r-1-3"),
            turn(&[
                ("r-1-0", json!({"ok": true})),
                ("r-1-2", json!({"ok": false, "error": {"code": "http_500"}})),
            ]),
            // After the fact, and of no effect.
            decision("unknown", "denied"),
        ];
        let expected = [
            ("open", Progress::Open, 2400),
            ("approved", Progress::Open, 2400),
            ("used", Progress::Used(ApprovalUse::Succeeded), 2400),
            ("unknown", Progress::Used(ApprovalUse::Unknown), 2400),
            ("failed", Progress::Used(ApprovalUse::Failed), 2400),
            ("denied", denied, 300),
            // Its time is up, and the line of its end is not written yet.
            ("expired", Progress::Open, 0),
            ("over", Progress::Ended(Ending::Expired), 300),
        ];
        let expected = expected.map(|(id, progress, left)| (id.to_owned(), progress, left));
        assert_eq!(found(&rotated, &current, "2026-11-27T10:20:00Z"), expected);
        // A clock that was set back by a day; hours later.
        let back = found(&rotated[..1], &[], "2026-11-26T10:00:00Z");
        assert_eq!(back, [("open".to_owned(), Progress::Open, 3600)]);
        let over = found(&rotated, &current, "2026-11-27T13:00:00Z");
        let unended = ["open", "approved", "expired"];
        assert_eq!(over, unended.map(|id| (id.to_owned(), Progress::Open, 0)));
    }
}
