//! The numbered answers to each agent's mediators.
//!
//! Level-triggered: each agent has one answer, the latest, and a waiting request gets only that. So
//! a slow mediator delays no other and queues nothing. The number rises with every change. A later
//! leader begins with a higher number, from its lease, so an older answer never looks newer.
//!
//! Invariant: an agent has no answer until this leader has compiled it. An empty allowlist would
//! deny everything, and an answer without one would give back tools that the former leader revoked.
//! A suspended agent has an answer without a compilation, since nothing of its files may be used.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib_compile::{ObjectRef, takes_away};
use toolcrib_manifest::{AgentPresence, BudgetUse, Decision, LinkAllowlist, RateUse, Want};

use crate::compressed::CompressedText;

/// Number of stored answers at which those of deleted agents are dropped, unless a request waits
/// for them.
const FORGET_FROM: usize = 64;

/// The latest answer for an agent; `None` until this leader has compiled it.
pub type LatestAnswer = Option<LinkAnswer>;

#[derive(Clone, Debug)]
pub struct LinkAnswer {
    pub seq: u64,
    want: Option<Arc<Want>>,
    access: Access<CompressedText>,
}

/// The part of the compiled files that an agent's mediators may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access<F> {
    /// The tools, feeds, providers and models that the allowlist names. [`Answers`] keeps it as
    /// compressed JSON, since ten thousand are kept and each is read only when it changes.
    Allowed(F),
    /// Nothing, since the agent is suspended.
    Suspended,
    /// Nothing, since the agent is deleted.
    Deleted,
}

impl<F> Access<F> {
    fn map<T>(self, change: impl FnOnce(F) -> T) -> Access<T> {
        match self {
            Access::Allowed(allowlist) => Access::Allowed(change(allowlist)),
            Access::Suspended => Access::Suspended,
            Access::Deleted => Access::Deleted,
        }
    }

    fn allowlist(&self) -> Option<&F> {
        match self {
            Access::Allowed(allowlist) => Some(allowlist),
            Access::Suspended | Access::Deleted => None,
        }
    }
}

/// A change of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    pub seq: u64,
    /// The change revokes something.
    pub revokes: bool,
    /// The change gives something that the earlier answer of this leader did not.
    pub gives: bool,
}

#[derive(Debug, Default)]
pub struct Answers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seq: u64,
    agents: HashMap<ObjectRef, watch::Sender<LatestAnswer>>,
    forget_at: usize,
}

/// `toolcrib_manifest::LinkDown`, with an allowlist that is already encoded as JSON.
#[derive(Serialize)]
struct EncodedLinkDown<'a> {
    seq: u64,
    want: Option<&'a Want>,
    #[serde(rename = "floor")]
    allowlist: Option<Box<RawValue>>,
    agent: AgentPresence,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    budgets: &'a [BudgetUse],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rates: &'a [RateUse],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    decisions: &'a [Decision],
}

/// What the agent's pods but the receiver of an answer have used, as far as they have reported it.
#[derive(Clone, Debug, Default)]
pub struct OtherPods {
    pub budgets: Vec<BudgetUse>,
    pub rates: Vec<RateUse>,
}

impl LinkAnswer {
    /// Returns the body of the response to one pod.
    pub fn body(&self, others: &OtherPods, decisions: &[Decision]) -> Vec<u8> {
        let allowlist = self.access.allowlist();
        let down = EncodedLinkDown {
            seq: self.seq,
            want: self.want.as_deref(),
            allowlist: allowlist.map(|allowlist| {
                RawValue::from_string(allowlist.text())
                    .expect("the text was serialized from an allowlist")
            }),
            agent: match self.access {
                Access::Allowed(_) => AgentPresence::Present,
                Access::Suspended | Access::Deleted => AgentPresence::Deleted,
            },
            budgets: &others.budgets,
            rates: &others.rates,
            decisions,
        };
        serde_json::to_vec(&down).expect("strings and numbers are JSON")
    }
}

impl Answers {
    fn state(&self) -> MutexGuard<'_, State> {
        // An answer is replaced as a whole, so a panic cannot leave an incomplete one.
        self.0.lock()
    }

    /// Drops all answers. The next one gets a number above `seq`.
    pub fn begin(&self, seq: u64) {
        *self.state() = State {
            seq,
            ..State::default()
        };
    }

    /// Publishes the access of an agent's mediators. Returns `None` if nothing changed.
    ///
    /// `is_suspended` is called while the answers are locked. If it returns true, a suspension is
    /// published instead of an allowlist, whose compilation may be older.
    pub fn publish(
        &self,
        agent: &ObjectRef,
        access: Access<&LinkAllowlist>,
        is_suspended: impl FnOnce() -> bool,
    ) -> Option<Publication> {
        let compressed = access.clone().map(|allowlist| {
            CompressedText::of(&serde_json::to_string(allowlist).expect("strings are JSON"))
        });
        let mut state = self.state();
        let (access, compressed) = match access {
            Access::Allowed(_) if is_suspended() => (Access::Suspended, Access::Suspended),
            Access::Allowed(_) | Access::Suspended | Access::Deleted => (access, compressed),
        };
        let State { seq, agents, .. } = &mut *state;
        let sender = agents.entry(agent.clone()).or_default();
        let mut published = None;
        sender.send_if_modified(|latest| {
            if let Some(before) = latest
                && before.access == compressed
            {
                return false;
            }
            *seq += 1;
            let before: Option<LinkAllowlist> = latest.as_ref().and_then(|answer| {
                let text = answer.access.allowlist()?.text();
                Some(
                    serde_json::from_str(&text).expect("the text was serialized from an allowlist"),
                )
            });
            published = Some(Publication {
                seq: *seq,
                revokes: match (&before, access.allowlist()) {
                    (None, _) => false,
                    (Some(_), None) => true,
                    (Some(before), Some(after)) => takes_away(before, after),
                },
                gives: latest.is_some()
                    && match (&before, access.allowlist()) {
                        (_, None) => false,
                        (None, Some(_)) => true,
                        // With swapped arguments: true if the new allowlist allows something that the
                        // old one does not.
                        (Some(before), Some(after)) => takes_away(after, before),
                    },
            });
            *latest = Some(LinkAnswer {
                seq: *seq,
                want: latest.take().and_then(|answer| answer.want),
                access: compressed,
            });
            true
        });
        published
    }

    /// Sets the digests of the written files, without waking waiting requests.
    pub fn want(&self, agent: &ObjectRef, want: Arc<Want>) {
        if let Some(sender) = self.state().agents.get(agent) {
            sender.send_if_modified(|latest| {
                if let Some(answer) = latest {
                    answer.want = Some(want);
                }
                false
            });
        }
    }

    /// Returns a receiver of the agent's answers. If the agent has none yet, `present` says whether
    /// the Agent exists: without it, the answer is that it was deleted.
    pub fn subscribe(&self, agent: &ObjectRef, present: bool) -> watch::Receiver<LatestAnswer> {
        let mut state = self.state();
        if state.agents.len() >= state.forget_at.max(FORGET_FROM) {
            state.forget();
        }
        let State { seq, agents, .. } = &mut *state;
        let sender = agents.entry(agent.clone()).or_insert_with(|| {
            let deleted = (!present).then(|| {
                *seq += 1;
                LinkAnswer {
                    seq: *seq,
                    want: None,
                    access: Access::Deleted,
                }
            });
            watch::Sender::new(deleted)
        });
        sender.subscribe()
    }
}

impl State {
    /// Drops the answers of deleted agents that no request waits for. [`Answers::subscribe`] can
    /// create them again.
    fn forget(&mut self) {
        self.agents.retain(|_, sender| {
            sender.receiver_count() > 0
                || sender
                    .borrow()
                    .as_ref()
                    .is_some_and(|it| it.access != Access::Deleted)
        });
        self.forget_at = self.agents.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toolcrib_manifest::{AllowedRules, LinkDown};

    use super::*;

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn allowlist(tools: &[&str]) -> LinkAllowlist {
        LinkAllowlist {
            rules: BTreeMap::new(),
            tools: tools
                .iter()
                .map(|tool| ((*tool).to_owned(), format!("v1:{tool}")))
                .collect::<BTreeMap<_, _>>(),
            feeds: vec!["desk/tide".into()],
            providers: vec!["house".into()],
            models: None,
            models_matching: Vec::new(),
        }
    }

    fn down(receiver: &watch::Receiver<LatestAnswer>) -> Option<LinkDown> {
        let body = receiver.borrow().as_ref()?.body(&OtherPods::default(), &[]);
        Some(serde_json::from_slice(&body).expect("a mediator decodes the answer"))
    }

    fn allow(answers: &Answers, tools: &[&str]) -> Option<Publication> {
        answers.publish(&otter(), Access::Allowed(&allowlist(tools)), || false)
    }

    #[test]
    fn an_allowlist_that_is_older_than_the_suspension_does_not_lift_it() {
        let answers = Answers::default();
        answers.begin(0);
        allow(&answers, &["a"]);
        let receiver = answers.subscribe(&otter(), true);
        assert_eq!(
            answers.publish(&otter(), Access::Suspended, || true),
            published(2, true, false)
        );
        let late = allowlist(&["a"]);
        assert_eq!(
            answers.publish(&otter(), Access::Allowed(&late), || true),
            None
        );
        let answer = down(&receiver).unwrap();
        assert_eq!(
            (answer.agent, answer.allowlist),
            (AgentPresence::Deleted, None)
        );
        // The agent is resumed: its allowlist is published again.
        assert_eq!(allow(&answers, &["a"]), published(3, false, true));
    }

    #[test]
    fn a_rule_that_is_removed_or_changed_is_a_revocation() {
        let answers = Answers::default();
        answers.begin(0);
        let publish = |digests: &[&str]| {
            let mut allowlist = allowlist(&["a"]);
            let rules = AllowedRules {
                entry: "v1:b".to_owned(),
                rules: digests.iter().map(|digest| (*digest).to_owned()).collect(),
            };
            allowlist.rules.insert("b".to_owned(), rules);
            answers.publish(&otter(), Access::Allowed(&allowlist), || false)
        };
        publish(&["r1:a"]);
        let receiver = answers.subscribe(&otter(), true);
        assert_eq!(publish(&["r1:a"]), None);
        assert_eq!(publish(&["r1:a", "r1:b"]), published(2, false, true));
        assert_eq!(publish(&["r1:b"]), published(3, true, false));
        assert_eq!(publish(&["r1:c"]), published(4, true, true));
        let allowlist = down(&receiver)
            .and_then(|answer| answer.allowlist)
            .expect("an allowlist");
        let rules = &allowlist.rules["b"].rules;
        assert_eq!(rules.iter().collect::<Vec<_>>(), ["r1:c"]);
    }

    #[test]
    fn a_suspension_is_not_forgotten_while_no_mediator_waits() {
        let answers = Answers::default();
        answers.begin(0);
        answers.publish(&otter(), Access::Suspended, || true);
        for number in 0..1_000 {
            answers.subscribe(&ObjectRef::new("pond", format!("newt-{number}")), false);
        }
        let answer = down(&answers.subscribe(&otter(), true)).unwrap();
        assert_eq!((answer.seq, answer.agent), (1, AgentPresence::Deleted));
    }

    fn published(seq: u64, revokes: bool, gives: bool) -> Option<Publication> {
        Some(Publication {
            seq,
            revokes,
            gives,
        })
    }

    #[test]
    fn an_agent_that_was_not_compiled_yet_has_no_answer() {
        let answers = Answers::default();
        answers.begin(100);
        let receiver = answers.subscribe(&otter(), true);
        assert_eq!(down(&receiver), None);
        assert_eq!(allow(&answers, &["a"]), published(101, false, false));
        assert!(receiver.has_changed().unwrap());
        assert_eq!(
            down(&receiver).unwrap(),
            LinkDown {
                seq: 101,
                want: None,
                allowlist: Some(allowlist(&["a"])),
                agent: AgentPresence::Present,
                budgets: Vec::new(),
                rates: Vec::new(),
                decisions: Vec::new(),
            }
        );
    }

    #[test]
    fn only_a_changed_allowlist_wakes_and_only_a_smaller_one_revokes() {
        let answers = Answers::default();
        answers.begin(0);
        let mut receiver = answers.subscribe(&otter(), true);
        let publish = |allowlist: Option<LinkAllowlist>| {
            let access = allowlist.as_ref().map_or(Access::Deleted, Access::Allowed);
            answers.publish(&otter(), access, || false)
        };
        assert_eq!(
            publish(Some(allowlist(&["a", "b"]))),
            published(1, false, false)
        );
        receiver.mark_unchanged();
        assert_eq!(publish(Some(allowlist(&["a", "b"]))), None);
        answers.want(
            &otter(),
            Arc::new(Want {
                manifest: "m1".into(),
                credentials: "c1".into(),
            }),
        );
        assert!(!receiver.has_changed().unwrap());
        assert_eq!(down(&receiver).unwrap().want.unwrap().manifest, "m1");
        assert_eq!(publish(Some(allowlist(&["a"]))), published(2, true, false));
        assert_eq!(
            publish(Some(allowlist(&["a", "b"]))),
            published(3, false, true)
        );
        // Several changes wake a waiting request once, and the digests are kept.
        assert!(receiver.has_changed().unwrap());
        let latest = down(&receiver).unwrap();
        assert_eq!(
            (latest.seq, latest.want.unwrap().manifest),
            (3, "m1".into())
        );
        assert_eq!(publish(None), published(4, true, false));
        assert_eq!(down(&receiver).unwrap().agent, AgentPresence::Deleted);
        assert_eq!(publish(None), None);
        assert_eq!(publish(Some(allowlist(&["a"]))), published(5, false, true));
    }

    #[test]
    fn unknown_agents_are_answered_as_deleted_and_not_remembered() {
        let answers = Answers::default();
        answers.begin(7);
        allow(&answers, &["a"]);
        let mut last = 8;
        for number in 0..1_000 {
            let receiver =
                answers.subscribe(&ObjectRef::new("pond", format!("newt-{number}")), false);
            let answer = down(&receiver).unwrap();
            assert_eq!(
                (answer.agent, answer.allowlist),
                (AgentPresence::Deleted, None)
            );
            assert!(answer.seq > last, "numbers rise");
            last = answer.seq;
        }
        assert!(answers.state().agents.len() <= FORGET_FROM);
        assert!(
            down(&answers.subscribe(&otter(), true))
                .unwrap()
                .allowlist
                .is_some()
        );
    }
}
