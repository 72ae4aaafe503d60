//! Hands the records of a batch to the collector: the verdict about each answer, and the waits.
//!
//! OTLP calls 429, 502, 503 and 504 worth a repetition and all other errors final. Here only 400, 413
//! and 422 are final, since they judge the lines: after any other status, a wrong address or a missing
//! right for example, the lines are as good as before, and a record must not be thrown away for it.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use toolcrib_bounds::cut;
use toolcrib_serve::part_of;

use super::Pace;
use super::batch::message;
use crate::telemetry::otlp::{Answer, Receiver};

/// Most bytes of the collector's words in a line of the log.
const MOST_WORDS: usize = 256;
/// Longest wait that a collector can ask for.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Sender {
    receiver: Receiver,
    pod: String,
    pace: Pace,
    /// The wait after the next failed attempt.
    wait: Duration,
}

/// Records that the collector has neither taken nor rejected yet.
#[derive(Debug)]
pub struct PendingRecords {
    records: Vec<LogRecord>,
    /// Records of the next request.
    part: usize,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub rejected: u64,
}

impl PendingRecords {
    /// The counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn done(&mut self, count: usize, rejected: u64) {
        self.records.drain(..count);
        self.part = self.records.len();
        self.counts.sent += count as u64 - rejected;
        self.counts.rejected += rejected;
    }
}

/// The verdict of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The collector has the lines, but for this many.
    Taken {
        rejected: u64,
        words: String,
    },
    Rejected,
    TooLarge,
    Later(Option<Duration>),
}

fn verdict(answer: &Answer, count: usize) -> Verdict {
    match answer.status {
        200..=299 => {
            let partial = ExportLogsServiceResponse::decode(&*answer.body)
                .ok()
                .and_then(|it| it.partial_success)
                .unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_log_records).unwrap_or(0);
            Verdict::Taken {
                rejected: rejected.min(count as u64),
                words: cut(&partial.error_message, MOST_WORDS).into_owned(),
            }
        }
        413 if count > 1 => Verdict::TooLarge,
        400 | 413 | 422 => Verdict::Rejected,
        _ => Verdict::Later(answer.retry_after.map(|it| it.min(MOST_RETRY_AFTER))),
    }
}

impl Sender {
    pub fn new(receiver: Receiver, pod: String, pace: Pace) -> Self {
        Self {
            receiver,
            pod,
            pace,
            wait: pace.first_wait,
        }
    }

    pub fn begin(&self, records: Vec<LogRecord>) -> PendingRecords {
        PendingRecords {
            part: records.len(),
            records,
            counts: Counts::default(),
        }
    }

    /// Waits little after the next failures, since time is short.
    pub fn be_quick(&mut self) {
        self.wait = self.pace.first_wait;
    }

    /// Sends until nothing is left (`None`) or a request fails: then the result is the wait before the
    /// next attempt.
    pub async fn attempt(&mut self, sending: &mut PendingRecords) -> Option<Duration> {
        while sending.part > 0 {
            let count = sending.part;
            let body = message(&sending.records[..count], &self.pod);
            let answer = self.receiver.post(body, self.pace.request).await;
            let (verdict, error) = match answer {
                Ok(answer) => (
                    verdict(&answer, count),
                    format!("the collector answered with status {}", answer.status),
                ),
                Err(error) => (Verdict::Later(None), error),
            };
            match verdict {
                Verdict::Taken { rejected, words } => {
                    self.wait = self.pace.first_wait;
                    if rejected > 0 || !words.is_empty() {
                        tracing::warn!(
                            lines = count,
                            rejected,
                            words,
                            "collector took record lines in part"
                        );
                    }
                    sending.done(count, rejected);
                }
                Verdict::Rejected => {
                    tracing::error!(lines = count, error, "collector rejected record lines");
                    sending.done(count, count as u64);
                }
                Verdict::TooLarge => sending.part = count / 2,
                Verdict::Later(asked) => {
                    let wait = self.next_wait(asked);
                    let retry_ms = wait.as_millis() as u64;
                    tracing::warn!(
                        lines = count,
                        error,
                        retry_ms,
                        "record export failed, retried"
                    );
                    return Some(wait);
                }
            }
        }
        None
    }

    /// At least half of the wait, so that a mediator is patient, and a random part of the rest, so that
    /// many mediators are not patient together.
    fn next_wait(&mut self, asked: Option<Duration>) -> Duration {
        let half = self.wait / 2;
        let wait = half + part_of(half);
        self.wait = (self.wait * 2).min(self.pace.longest_wait);
        wait.max(asked.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;

    use super::*;

    fn answer(status: u16, body: Vec<u8>) -> Answer {
        Answer {
            status,
            retry_after: Some(Duration::from_secs(3600)),
            body,
        }
    }

    fn partial(rejected: i64) -> Vec<u8> {
        let partial = ExportLogsPartialSuccess {
            rejected_log_records: rejected,
            error_message: "x".repeat(1000),
        };
        let response = ExportLogsServiceResponse {
            partial_success: Some(partial),
        };
        response.encode_to_vec()
    }

    #[test]
    fn only_a_verdict_about_the_lines_is_final() {
        let taken = |rejected, words: &str| Verdict::Taken {
            rejected,
            words: words.to_owned(),
        };
        let words = "x".repeat(1000);
        let words = cut(&words, MOST_WORDS);
        let later = || Verdict::Later(Some(MOST_RETRY_AFTER));
        for (status, body, expected) in [
            (200, Vec::new(), taken(0, "")),
            (200, b"no protobuf".to_vec(), taken(0, "")),
            (202, partial(2), taken(2, &words)),
            (200, partial(99), taken(5, &words)),
            (200, partial(-1), taken(0, &words)),
            (400, Vec::new(), Verdict::Rejected),
            (413, Vec::new(), Verdict::TooLarge),
            (429, Vec::new(), later()),
            (404, Vec::new(), later()),
            (302, Vec::new(), later()),
            (500, Vec::new(), later()),
            (503, Vec::new(), later()),
        ] {
            assert_eq!(verdict(&answer(status, body), 5), expected, "{status}");
        }
        assert_eq!(verdict(&answer(413, Vec::new()), 1), Verdict::Rejected);
    }
}
