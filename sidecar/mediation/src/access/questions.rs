//! The questions about calls that this mediator asked persons, and their ends.
//!
//! The caller passes a monotonic time, and draws the ids. Not here: the record's lines, the request
//! that asks, and the calls that wait.
//!
//! Invariants: a decision ends only a question that was asked here, is open, and has the same digest.
//! No decision makes a denied, expired, withdrawn or used question approved. [`Questions::take`] gives an
//! approval out once. Everything kept here is bounded.

use std::collections::BTreeSet;
use std::time::Duration;

use toolcrib_manifest::{
    ApprovalRef, ApprovalUse, Decision, LONGEST_REASON, MOST_QUESTIONS, OpenQuestion, Verdict,
};

use crate::access::approval::ApprovalNeed;
use crate::codes::ResultCode;

/// Time for which a denied or expired call stays so without a new question.
pub const SETTLED: Duration = Duration::from_mins(15);
/// Time for which the same call gets the same answer after its question was refused or withdrawn.
const LATELY: Duration = Duration::from_secs(10);
/// Limits the questions that are kept after their end.
const MOST_ENDED: usize = 64;
/// Limits the usernames and their characters that are kept of a decision.
const MOST_NAMES: usize = 8;
const LONGEST_NAME: usize = 256;

/// A call that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    /// Id of its question.
    pub id: String,
    /// Digest of the call (`toolcrib_rules::CallIdentity`).
    pub digest: String,
    /// Canonical tool name.
    pub tool: String,
    /// Digest of the tool's entry.
    pub entry: String,
    pub need: ApprovalNeed,
}

/// A person's yes to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The need for which it was asked.
    pub need: ApprovalNeed,
    pub object: ApprovalRef,
    pub decided_by: Vec<String>,
}

/// The end of a question without a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The reason may be empty.
    Denied(String),
    Expired,
    Withdrawn(String),
    /// No ToolApproval was made.
    Refused(Refusal),
}

/// The operator's refusal of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: ResultCode,
    /// Continues a sentence that begins with the tool's name.
    pub message: String,
}

/// The state of a question for a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Open {
        /// `None`: it is not known yet whether the ToolApproval exists.
        approval: Option<ApprovalRef>,
        /// Time until the question expires.
        left: Duration,
    },
    Approved,
    Ended {
        ending: Ending,
        /// Time after which the same call is asked about anew.
        left: Duration,
    },
    /// Another call has used the approval, or the question is not known any more.
    Gone,
}

/// What an earlier process of this pod left of a question in its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierQuestion {
    pub call: WaitingCall,
    pub progress: Progress,
    /// Time until the question expires, zero if it is over; for a denied or expired one, until it is asked
    /// about anew.
    pub left: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The operator will repeat the decision, if there was one.
    Open,
    Ended(Ending),
    Used(ApprovalUse),
}

/// The questions of one pod.
#[derive(Debug, Default)]
pub struct Questions {
    /// In the order in which they were asked.
    entries: Vec<Entry>,
    /// The questions whose time was up since [`Questions::take_expired`].
    expired: Vec<WaitingCall>,
}

#[derive(Debug)]
struct Entry {
    call: WaitingCall,
    approval: Option<ApprovalRef>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open {
        until: Duration,
    },
    /// Approved, and not used.
    Approved {
        approval: Approval,
        until: Duration,
    },
    Ended {
        ending: Ending,
        until: Duration,
    },
    /// The call was decided again and runs; from its intent line on the approval is used.
    Taken,
    /// Kept until the operator has heard it.
    Used {
        used: ApprovalUse,
        /// The result of a refused call.
        code: Option<ResultCode>,
    },
}

impl State {
    fn is_open(&self) -> bool {
        matches!(self, State::Open { .. } | State::Approved { .. })
    }
}

impl Questions {
    /// Takes over the questions of an earlier process, in their order: the latest that fit.
    pub fn restore(&mut self, earlier: Vec<EarlierQuestion>, now: Duration) {
        let is_open = |it: &EarlierQuestion| it.progress == Progress::Open;
        let open = earlier.iter().filter(|it| is_open(it)).count();
        let mut too_many = open.saturating_sub(MOST_QUESTIONS);
        for it in earlier {
            if is_open(&it) && too_many > 0 {
                too_many -= 1;
                continue;
            }
            let until = now.saturating_add(it.left);
            let state = match it.progress {
                Progress::Open => State::Open { until },
                Progress::Ended(ending) => State::Ended { ending, until },
                Progress::Used(used) => State::Used { used, code: None },
            };
            self.entries.push(Entry {
                call: it.call,
                approval: None,
                state,
            });
        }
        self.tidy(now);
    }

    /// Finds the question about a call of this tool: one that is open, or that ended a short time ago.
    /// `digest` gives the call's digest with the id of a question.
    pub fn find(
        &mut self,
        tool: &str,
        entry: &str,
        digest: impl Fn(&str) -> String,
        now: Duration,
    ) -> Option<&WaitingCall> {
        self.tidy(now);
        // The latest first.
        let mut found = self.entries.iter().rev().filter(|it| {
            let is_over = matches!(it.state, State::Taken | State::Used { .. });
            !is_over && it.call.tool == tool && it.call.entry == entry
        });
        let found = found.find(|it| digest(&it.call.id) == it.call.digest)?;
        Some(&found.call)
    }

    /// Returns whether another question may be asked.
    pub fn has_room(&mut self, now: Duration) -> bool {
        self.tidy(now);
        self.open().count() < MOST_QUESTIONS
    }

    /// Opens a question for `open_for`. The caller has written it to the record.
    pub fn open_one(&mut self, call: WaitingCall, open_for: Duration, now: Duration) {
        let until = now.saturating_add(open_for);
        self.entries.push(Entry {
            call,
            approval: None,
            state: State::Open { until },
        });
    }

    /// Notes that the ToolApproval exists.
    pub fn confirm(&mut self, id: &str, approval: ApprovalRef) {
        if let Some(entry) = self.entry(id) {
            entry.approval = Some(approval);
        }
    }

    /// Forgets a question, which the operator withdraws then. `None`: it is not open.
    pub fn withdraw(&mut self, id: &str, now: Duration) -> Option<WaitingCall> {
        self.tidy(now);
        let is_it = |it: &Entry| it.call.id == id && it.state.is_open();
        let at = self.entries.iter().position(is_it)?;
        Some(self.entries.remove(at).call)
    }

    /// Ends a question from this side. `None`: it is not open.
    pub fn end(&mut self, id: &str, ending: Ending, now: Duration) -> Option<WaitingCall> {
        self.tidy(now);
        let entry = self.entry(id).filter(|it| it.state.is_open())?;
        entry.state = ended(ending, now);
        let call = entry.call.clone();
        self.tidy(now);
        Some(call)
    }

    /// Takes decisions of the operator, and returns those that changed a question.
    pub fn decide<'d>(
        &mut self,
        decisions: &'d [Decision],
        now: Duration,
    ) -> Vec<(WaitingCall, &'d Decision)> {
        self.tidy(now);
        let mut taken = Vec::new();
        for decision in decisions {
            let Some(entry) = self.entry(&decision.id) else {
                continue;
            };
            // The operator knows no digest of a question without a ToolApproval, and can only end it.
            let knows_none = decision.call_digest.is_empty();
            let is_end = decision.verdict != Verdict::Approved;
            if entry.call.digest != decision.call_digest && !(knows_none && is_end) {
                continue;
            }
            let reason = || toolcrib_bounds::cut(&decision.reason, LONGEST_REASON).into_owned();
            let next = match (&entry.state, decision.verdict) {
                (State::Open { until }, Verdict::Approved) => match &decision.approval {
                    Some(object) => State::Approved {
                        approval: Approval {
                            need: entry.call.need.clone(),
                            object: object.clone(),
                            decided_by: names(&decision.decided_by),
                        },
                        until: *until,
                    },
                    // The record could not name what was approved.
                    None => continue,
                },
                (State::Approved { .. }, Verdict::Approved) => continue,
                (State::Open { .. } | State::Approved { .. }, Verdict::Denied) => {
                    ended(Ending::Denied(reason()), now)
                }
                (State::Open { .. } | State::Approved { .. }, Verdict::Expired) => {
                    ended(Ending::Expired, now)
                }
                (State::Open { .. } | State::Approved { .. }, Verdict::Withdrawn) => {
                    ended(Ending::Withdrawn(reason()), now)
                }
                (State::Ended { .. } | State::Taken | State::Used { .. }, _) => continue,
            };
            entry.state = next;
            if decision.approval.is_some() {
                entry.approval.clone_from(&decision.approval);
            }
            taken.push((entry.call.clone(), decision));
        }
        self.tidy(now);
        taken
    }

    pub fn standing(&mut self, id: &str, now: Duration) -> Standing {
        self.tidy(now);
        let Some(entry) = self.entry(id) else {
            return Standing::Gone;
        };
        match &entry.state {
            State::Open { until } => Standing::Open {
                approval: entry.approval.clone(),
                left: until.saturating_sub(now),
            },
            State::Approved { .. } => Standing::Approved,
            State::Ended { ending, until } => Standing::Ended {
                ending: ending.clone(),
                left: until.saturating_sub(now),
            },
            State::Taken | State::Used { .. } => Standing::Gone,
        }
    }

    /// Gives out the approval of a question, once. Call [`Self::used`] afterwards in any case.
    pub fn take(&mut self, id: &str, now: Duration) -> Option<Approval> {
        self.tidy(now);
        let entry = self.entry(id)?;
        let State::Approved { approval, .. } = &entry.state else {
            return None;
        };
        let approval = approval.clone();
        entry.state = State::Taken;
        Some(approval)
    }

    /// Notes what became of an approval that was taken. `code`: the result of a refused call, if it is
    /// known.
    pub fn used(&mut self, id: &str, used: ApprovalUse, code: Option<ResultCode>, now: Duration) {
        if let Some(entry) = self.entry(id)
            && matches!(entry.state, State::Taken)
        {
            entry.state = State::Used { used, code };
        }
        self.tidy(now);
    }

    /// Returns each question whose time is up, once.
    pub fn take_expired(&mut self, now: Duration) -> Vec<WaitingCall> {
        self.tidy(now);
        std::mem::take(&mut self.expired)
    }

    /// The questions for a report.
    pub fn report(&mut self, now: Duration) -> Vec<OpenQuestion> {
        self.tidy(now);
        let reported = self.entries.iter().filter_map(|entry| {
            let (used, code) = match &entry.state {
                State::Open { .. } | State::Approved { .. } | State::Taken => (None, None),
                State::Used { used, code } => (Some(*used), *code),
                State::Ended { .. } => return None,
            };
            Some(OpenQuestion {
                id: entry.call.id.clone(),
                used,
                code: code.map(|code| code.to_string()),
            })
        });
        reported.collect()
    }

    /// Forgets the used questions of a report whose answer lists no decision for them.
    pub fn acknowledged(&mut self, reported: &[OpenQuestion], decisions: &[Decision]) {
        let listed: BTreeSet<&str> = decisions.iter().map(|it| it.id.as_str()).collect();
        let used = reported.iter().filter(|it| it.used.is_some());
        let over: BTreeSet<&str> = used
            .map(|it| it.id.as_str())
            .filter(|id| !listed.contains(id))
            .collect();
        self.entries.retain(|entry| {
            let is_used = matches!(entry.state, State::Used { .. });
            !(is_used && over.contains(entry.call.id.as_str()))
        });
    }

    /// The questions that wait for a decision or a call.
    fn open(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|it| it.state.is_open())
    }

    /// Number of questions that wait for a decision or a call.
    pub fn open_count(&mut self, now: Duration) -> usize {
        self.tidy(now);
        self.open().count()
    }

    fn entry(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|it| it.call.id == id)
    }

    /// Ends the questions whose time is up, and forgets the ended ones that are over or too many.
    fn tidy(&mut self, now: Duration) {
        for entry in &mut self.entries {
            if let State::Open { until } | State::Approved { until, .. } = &entry.state
                && *until <= now
            {
                let until = until.saturating_add(SETTLED);
                let ending = Ending::Expired;
                entry.state = State::Ended { ending, until };
                self.expired.push(entry.call.clone());
            }
        }
        let is_over = |it: &Entry| matches!(it.state, State::Ended { until, .. } if until <= now);
        self.entries.retain(|it| !is_over(it));
        let is_kept = |it: &Entry| matches!(it.state, State::Ended { .. } | State::Used { .. });
        let kept = self.entries.iter().filter(|it| is_kept(it)).count();
        let mut too_many = kept.saturating_sub(MOST_ENDED);
        self.entries.retain(|it| {
            let is_dropped = too_many > 0 && is_kept(it);
            too_many -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

fn ended(ending: Ending, now: Duration) -> State {
    let kept = match &ending {
        Ending::Denied(_) | Ending::Expired => SETTLED,
        Ending::Withdrawn(_) | Ending::Refused(_) => LATELY,
    };
    let until = now.saturating_add(kept);
    State::Ended { ending, until }
}

fn names(names: &[String]) -> Vec<String> {
    let cut = |name: &String| toolcrib_bounds::cut(name, LONGEST_NAME).into_owned();
    names.iter().take(MOST_NAMES).map(cut).collect()
}
