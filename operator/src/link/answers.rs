//! What the mediators of each agent hear: whole answers, numbered, waited for.
//!
//! Level-triggered: there is one answer per agent, the latest; whoever waits sees that one,
//! however many there were meanwhile, so a slow reader holds nobody up and queues nothing.
//! A number rises with every change; a later leader begins higher (its lease says where), so
//! that an older answer never looks newer. Invariant: until this leader has compiled an agent
//! there is no answer for it: an empty floor would deny, and no floor would give back what
//! the leader before took away.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib_compile::{ObjectRef, takes_away};
use toolcrib_manifest::{AgentPresence, Floor, Want};

use crate::compressed::CompressedText;

/// Answers that nobody waits for, of agents that are gone, are forgotten from here on.
const FORGET_FROM: usize = 64;

/// The latest answer for an agent, if this leader has one yet.
pub type LatestAnswer = Option<Answer>;

#[derive(Clone, Debug)]
pub struct Answer {
    pub seq: u64,
    want: Option<Arc<Want>>,
    /// As JSON, packed: ten thousand of them are held, and read only when they change.
    /// `None`: the agent is deleted.
    floor: Option<CompressedText>,
}

/// A change of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    pub seq: u64,
    /// Something that was left standing is not any more.
    pub took_away: bool,
}

#[derive(Debug, Default)]
pub struct Answers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seq: u64,
    agents: HashMap<ObjectRef, watch::Sender<LatestAnswer>>,
    forget_at: usize,
}

/// `toolcrib_manifest::LinkDown`, with a floor that is JSON already.
#[derive(Serialize)]
struct EncodedLinkDown<'a> {
    seq: u64,
    want: Option<&'a Want>,
    floor: Option<Box<RawValue>>,
    agent: AgentPresence,
}

impl Answer {
    /// As it is sent.
    pub fn body(&self) -> Vec<u8> {
        let down = EncodedLinkDown {
            seq: self.seq,
            want: self.want.as_deref(),
            floor: self
                .floor
                .as_ref()
                .map(|floor| RawValue::from_string(floor.text()).expect("written from a floor")),
            agent: match self.floor {
                Some(_) => AgentPresence::Present,
                None => AgentPresence::Deleted,
            },
        };
        serde_json::to_vec(&down).expect("strings and numbers are JSON")
    }
}

impl Answers {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave an answer half written: it is replaced whole.
        self.0.lock()
    }

    /// Starts over, with numbers above `seq`.
    pub fn begin(&self, seq: u64) {
        *self.state() = State {
            seq,
            ..State::default()
        };
    }

    /// What an agent was just compiled to, `None`: it is gone. `None` is also the answer
    /// where nothing changed.
    pub fn publish(&self, agent: &ObjectRef, floor: Option<&Floor>) -> Option<Publication> {
        let packed = floor.map(|floor| {
            CompressedText::of(&serde_json::to_string(floor).expect("strings are JSON"))
        });
        let mut state = self.state();
        let State { seq, agents, .. } = &mut *state;
        let sender = agents.entry(agent.clone()).or_default();
        let mut published = None;
        sender.send_if_modified(|heard| {
            if let Some(before) = heard
                && before.floor == packed
            {
                return false;
            }
            *seq += 1;
            let before: Option<Floor> = heard.as_ref().and_then(|answer| {
                let text = answer.floor.as_ref()?.text();
                Some(serde_json::from_str(&text).expect("written from a floor"))
            });
            published = Some(Publication {
                seq: *seq,
                took_away: match (&before, floor) {
                    (None, _) => false,
                    (Some(_), None) => true,
                    (Some(before), Some(after)) => takes_away(before, after),
                },
            });
            *heard = Some(Answer {
                seq: *seq,
                want: heard.take().and_then(|answer| answer.want),
                floor: packed,
            });
            true
        });
        published
    }

    /// The digests of what is written now; wakes nobody.
    pub fn want(&self, agent: &ObjectRef, want: Arc<Want>) {
        if let Some(sender) = self.state().agents.get(agent) {
            sender.send_if_modified(|heard| {
                if let Some(answer) = heard {
                    answer.want = Some(want);
                }
                false
            });
        }
    }

    /// What the agent's mediators hear, from now on. `present`: whether there is such an
    /// agent, where nothing else is known of it.
    pub fn hear(&self, agent: &ObjectRef, present: bool) -> watch::Receiver<LatestAnswer> {
        let mut state = self.state();
        if state.agents.len() >= state.forget_at.max(FORGET_FROM) {
            state.forget();
        }
        let State { seq, agents, .. } = &mut *state;
        let sender = agents.entry(agent.clone()).or_insert_with(|| {
            let deleted = (!present).then(|| {
                *seq += 1;
                Answer {
                    seq: *seq,
                    want: None,
                    floor: None,
                }
            });
            watch::Sender::new(deleted)
        });
        sender.subscribe()
    }
}

impl State {
    /// What nobody waits for and says nothing but "gone" can be made again.
    fn forget(&mut self) {
        self.agents.retain(|_, sender| {
            sender.receiver_count() > 0
                || sender
                    .borrow()
                    .as_ref()
                    .is_some_and(|it| it.floor.is_some())
        });
        self.forget_at = self.agents.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use toolcrib_manifest::LinkDown;

    use super::*;

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn floor(tools: &[&str]) -> Floor {
        Floor {
            tools: tools
                .iter()
                .map(|tool| ((*tool).to_owned(), format!("v1:{tool}")))
                .collect::<BTreeMap<_, _>>(),
            feeds: vec!["desk/tide".into()],
            providers: vec!["house".into()],
            models: None,
        }
    }

    fn down(heard: &watch::Receiver<LatestAnswer>) -> Option<LinkDown> {
        let body = heard.borrow().as_ref()?.body();
        Some(serde_json::from_slice(&body).expect("a mediator reads it"))
    }

    fn published(seq: u64, took_away: bool) -> Option<Publication> {
        Some(Publication { seq, took_away })
    }

    #[test]
    fn an_agent_that_was_not_compiled_yet_has_no_answer() {
        let answers = Answers::default();
        answers.begin(100);
        let heard = answers.hear(&otter(), true);
        assert_eq!(down(&heard), None);
        assert_eq!(
            answers.publish(&otter(), Some(&floor(&["a"]))),
            published(101, false)
        );
        assert!(heard.has_changed().unwrap());
        assert_eq!(
            down(&heard).unwrap(),
            LinkDown {
                seq: 101,
                want: None,
                floor: Some(floor(&["a"])),
                agent: AgentPresence::Present,
            }
        );
    }

    #[test]
    fn only_a_change_wakes_and_only_less_takes_away() {
        let answers = Answers::default();
        answers.begin(0);
        let mut heard = answers.hear(&otter(), true);
        let publish = |floor: Option<Floor>| answers.publish(&otter(), floor.as_ref());
        assert_eq!(publish(Some(floor(&["a", "b"]))), published(1, false));
        heard.mark_unchanged();
        assert_eq!(publish(Some(floor(&["a", "b"]))), None);
        answers.want(
            &otter(),
            Arc::new(Want {
                manifest: "m1".into(),
                credentials: "c1".into(),
            }),
        );
        assert!(!heard.has_changed().unwrap());
        assert_eq!(down(&heard).unwrap().want.unwrap().manifest, "m1");
        assert_eq!(publish(Some(floor(&["a"]))), published(2, true));
        assert_eq!(publish(Some(floor(&["a", "b"]))), published(3, false));
        // Waited for once, however often it changed; what is written is still known.
        assert!(heard.has_changed().unwrap());
        let latest = down(&heard).unwrap();
        assert_eq!(
            (latest.seq, latest.want.unwrap().manifest),
            (3, "m1".into())
        );
        assert_eq!(publish(None), published(4, true));
        assert_eq!(down(&heard).unwrap().agent, AgentPresence::Deleted);
        assert_eq!(publish(None), None);
        assert_eq!(publish(Some(floor(&["a"]))), published(5, false));
    }

    #[test]
    fn nobodys_agents_are_deleted_ones_and_are_not_remembered() {
        let answers = Answers::default();
        answers.begin(7);
        answers.publish(&otter(), Some(&floor(&["a"])));
        let mut last = 8;
        for number in 0..1_000 {
            let heard = answers.hear(&ObjectRef::new("pond", format!("newt-{number}")), false);
            let answer = down(&heard).unwrap();
            assert_eq!((answer.agent, answer.floor), (AgentPresence::Deleted, None));
            assert!(answer.seq > last, "numbers rise");
            last = answer.seq;
        }
        assert!(answers.state().agents.len() <= FORGET_FROM);
        assert!(down(&answers.hear(&otter(), true)).unwrap().floor.is_some());
    }
}
