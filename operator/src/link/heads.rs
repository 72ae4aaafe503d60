//! The last known line of each pod's record, for the agents' status.
//!
//! Pure. A head is what its mediator says; keeping it where the mediator cannot write shows later
//! whether the record was changed. Bounded: the latest heads of a pod and of an agent, with checked
//! texts.
//!
//! Invariant: the number of a chain's head never falls.

use std::cmp::Reverse;
use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use toolcrib_compile::ObjectRef;
use toolcrib_crds::RecordHeadStatus;
use toolcrib_manifest::RecordHead;

use super::reports::{MOST, Sender};

/// Most heads of an agent, the latest ones. The definition of Agent has the same bound.
const MOST_HEADS: usize = 32;
/// Most heads of a pod, the latest ones, so that no pod displaces those of another. Each
/// process of a mediator begins a chain.
const MOST_OF_POD: usize = 4;
/// Most characters of a chain's id; the mediator's have 16.
const MOST_ID: usize = 64;
/// Characters of a SHA-256.
const HASH: usize = 64;

#[derive(Debug, Default)]
pub struct RecordHeads {
    agents: HashMap<ObjectRef, Vec<KeptHead>>,
}

#[derive(Clone, Debug)]
struct KeptHead {
    head: RecordHeadStatus,
    /// The pod has ended, so this is its last head.
    is_last: bool,
}

impl RecordHeads {
    /// Continues from an Agent's status, unless the agent is known already.
    pub fn begin(&mut self, agent: &ObjectRef, status: &[RecordHeadStatus]) {
        self.agents.entry(agent.clone()).or_insert_with(|| {
            let kept = status.iter().take(MOST_HEADS).cloned();
            kept.map(|head| KeptHead {
                head,
                is_last: false,
            })
            .collect()
        });
    }

    /// Takes the head of a report. Nothing is kept for an agent that has not begun.
    pub(super) fn learn(&mut self, sender: &Sender, head: &RecordHead, now: Timestamp) {
        let Some(kept) = self
            .agents
            .get_mut(&sender.agent)
            .filter(|_| is_valid(head))
        else {
            return;
        };
        let new = KeptHead {
            head: RecordHeadStatus {
                pod: sender.pod.clone(),
                pod_uid: sender.uid.clone(),
                chain: head.chain.clone(),
                seq: head.seq,
                hash: head.hash.clone(),
                time: Time(now),
            },
            is_last: false,
        };
        let known = kept
            .iter_mut()
            .find(|it| (&*it.head.pod_uid, &*it.head.chain) == (&*sender.uid, &*head.chain));
        match known {
            Some(known) if known.head.seq < head.seq => *known = new,
            Some(_) => {}
            None => {
                kept.push(new);
                kept.sort_by_key(|it| Reverse(it.head.time.0));
                let mut of_pod = 0;
                kept.retain(|it| {
                    of_pod += usize::from(it.head.pod_uid == sender.uid);
                    it.head.pod_uid != sender.uid || of_pod <= MOST_OF_POD
                });
                kept.truncate(MOST_HEADS);
            }
        }
    }

    pub(super) fn remove_pod(&mut self, agent: &ObjectRef, uid: &str) {
        let kept = self.agents.get_mut(agent).into_iter().flatten();
        for head in kept.filter(|it| it.head.pod_uid == uid) {
            head.is_last = true;
        }
    }

    pub(super) fn forget_agent(&mut self, agent: &ObjectRef) {
        self.agents.remove(agent);
    }

    /// The heads for the status, the latest first.
    pub fn of(&self, agent: &ObjectRef) -> Vec<RecordHeadStatus> {
        let kept = self.agents.get(agent).into_iter().flatten();
        let mut heads: Vec<RecordHeadStatus> = kept.map(|it| it.head.clone()).collect();
        heads.sort_by_key(|it| Reverse(it.time.0));
        heads
    }

    /// Whether a pod has ended whose last head this status lacks.
    pub fn is_urgent(&self, agent: &ObjectRef, status: &[RecordHeadStatus]) -> bool {
        let kept = self.agents.get(agent).into_iter().flatten();
        let mut last = kept.filter(|it| it.is_last);
        last.any(|it| {
            let same = |other: &RecordHeadStatus| {
                (&*other.chain, other.seq) == (&*it.head.chain, it.head.seq)
            };
            !status.iter().any(same)
        })
    }
}

/// A mediator may send anything.
fn is_valid(head: &RecordHead) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (1..=MOST_ID).contains(&head.chain.len())
        && head.chain.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && head.hash.len() == HASH
        && head.hash.bytes().all(is_hex)
        && head.seq <= MOST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otter() -> ObjectRef {
        ObjectRef::new("pond", "otter")
    }

    fn sender(uid: &str) -> Sender {
        Sender {
            uid: uid.to_owned(),
            pod: format!("otter-{uid}"),
            agent: otter(),
            older_than_leader: false,
        }
    }

    fn head(chain: &str, seq: u64) -> RecordHead {
        RecordHead {
            chain: chain.to_owned(),
            seq,
            hash: "a".repeat(HASH),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn shown(heads: &RecordHeads) -> Vec<(String, u64)> {
        let heads = heads.of(&otter()).into_iter();
        heads.map(|it| (it.chain, it.seq)).collect()
    }

    #[test]
    fn a_head_moves_forward_only_and_outlives_its_leader() {
        let mut heads = RecordHeads::default();
        heads.learn(&sender("a"), &head("c1", 7), at(1));
        assert_eq!(shown(&heads), []);
        heads.begin(&otter(), &[]);
        for (chain, seq, second) in [("c1", 7, 1), ("c1", 3, 2), ("c2", 0, 3), ("c1", 9, 4)] {
            heads.learn(&sender("a"), &head(chain, seq), at(second));
        }
        assert_eq!(shown(&heads), [("c1".to_owned(), 9), ("c2".to_owned(), 0)]);
        let mut next = RecordHeads::default();
        next.begin(&otter(), &heads.of(&otter()));
        next.learn(&sender("a"), &head("c1", 8), at(5));
        assert_eq!(shown(&next), shown(&heads));
    }

    #[test]
    fn the_last_head_of_a_pod_is_written_soon() {
        let mut heads = RecordHeads::default();
        heads.begin(&otter(), &[]);
        heads.learn(&sender("a"), &head("c1", 7), at(1));
        let status = heads.of(&otter());
        heads.learn(&sender("a"), &head("c1", 8), at(2));
        assert!(!heads.is_urgent(&otter(), &status));
        heads.remove_pod(&otter(), "a");
        assert!(heads.is_urgent(&otter(), &status));
        assert!(!heads.is_urgent(&otter(), &heads.of(&otter())));
        heads.forget_agent(&otter());
        assert_eq!(shown(&heads), []);
    }

    #[test]
    fn heads_are_bounded_and_checked() {
        let mut heads = RecordHeads::default();
        heads.begin(&otter(), &[]);
        let chain = |number: i64| head(&format!("c{number}"), 1);
        heads.learn(&sender("b"), &chain(0), at(0));
        (1..100).for_each(|number| heads.learn(&sender("a"), &chain(number), at(number)));
        let chains = |heads: &RecordHeads| -> Vec<String> {
            shown(heads).into_iter().map(|(chain, _)| chain).collect()
        };
        assert_eq!(chains(&heads), ["c99", "c98", "c97", "c96", "c0"]);
        for number in 100..200 {
            heads.learn(&sender(&number.to_string()), &chain(number), at(number));
        }
        let chains = chains(&heads);
        assert_eq!((chains.len(), &*chains[0]), (MOST_HEADS, "c199"));
        for invalid in [
            head("", 1),
            head("c\n", 1),
            head(&"c".repeat(MOST_ID + 1), 1),
            head("c", MOST + 1),
            RecordHead {
                hash: "A".repeat(HASH),
                ..head("c", 1)
            },
        ] {
            assert!(!is_valid(&invalid), "{invalid:?}");
        }
    }
}
