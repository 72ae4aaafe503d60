//! The index, and what a pod's answer says.

use futures::FutureExt as _;
use kube_runtime::watcher::Event;
use serde_json::{Value, json};
use toolcrib_manifest::ApprovalUse;

use super::*;
use crate::approvals::stored::tests::{approval, decided, read};
use crate::objects::store::StoreWriter;

const ID: &str = "00112233445566778899aabbccddeeff";
const POD: &str = "uid-otter-0";

fn otter() -> ObjectRef {
    ObjectRef::new("pond", "otter")
}

struct World {
    approvals: Arc<Approvals>,
    writer: StoreWriter<StoredApproval>,
    object: Value,
    version: u64,
}

impl World {
    fn new() -> Self {
        let approvals = Arc::<Approvals>::default();
        approvals.begin();
        let writer = StoreWriter::new(approvals.approvals.clone());
        approvals.set_protection(Protection::Holds);
        Self {
            approvals,
            writer,
            object: approval(&name("otter", ID)),
            version: 1,
        }
    }

    fn key(&self) -> ObjectRef {
        ObjectRef::new("pond", name("otter", ID))
    }

    fn apply(&mut self, event: Event<StoredApproval>) {
        for change in self.writer.apply(event) {
            self.approvals.approval_changed(&change);
        }
    }

    /// The object's next version, with this status.
    fn next(&mut self, status: Value) -> StoredApproval {
        self.object["status"] = status;
        self.version += 1;
        self.object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        read(&self.object)
    }

    fn with_status(&mut self, status: Value) {
        let next = self.next(status);
        self.apply(Event::Apply(next));
    }

    fn reports(&self, used: Option<ApprovalUse>) -> Vec<ObjectRef> {
        let id = ID.to_owned();
        self.approvals.report(
            &otter(),
            POD,
            &[OpenQuestion {
                id,
                used,
                code: None,
            }],
        )
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let decisions = self.approvals.decisions_for(&otter(), POD);
        decisions.into_iter().map(|it| it.verdict).collect()
    }

    fn is_woken(&self) -> bool {
        self.approvals
            .decided(&otter(), POD)
            .now_or_never()
            .is_some()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_woken_by_the_status_and_answered_until_it_has_used_the_yes() {
    let mut world = World::new();
    world.with_status(Value::Null);
    assert_eq!(world.reports(None), []);
    assert_eq!((world.verdicts(), world.is_woken()), (vec![], false));

    let (approvals, agent) = (Arc::clone(&world.approvals), otter());
    let waiting = approvals.decided(&agent, POD);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    let mut status = decided("Approved");
    status["decisions"] = json!([
        {"name": "d0", "username": "heron", "verdict": "Approve", "at": "2026-11-27T09:01:00Z"}]);
    let next = world.next(status);
    let change = world.writer.apply(Event::Apply(next)).remove(0);
    world.approvals.approval_changed(&change);
    waiting.as_mut().await;

    let decision = world.approvals.decisions_for(&otter(), POD).remove(0);
    assert_eq!(
        decision,
        Decision {
            id: ID.into(),
            call_digest: "c1:call".into(),
            verdict: Verdict::Approved,
            approval: Some(ApprovalRef {
                name: world.key().name,
                uid: format!("uid-{}", world.key().name),
            }),
            decided_by: vec!["heron".into()],
            reason: String::new(),
        }
    );
    // The answer may be lost: it is repeated, once a second.
    world.reports(None);
    assert_eq!(
        (world.verdicts(), world.is_woken()),
        (vec![Verdict::Approved], false)
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(world.is_woken());

    // It was used: the answer goes on until the status has it.
    assert_eq!(world.reports(Some(ApprovalUse::Succeeded)), [world.key()]);
    assert_eq!(
        (world.verdicts(), world.is_woken()),
        (vec![Verdict::Approved], false)
    );
    let mut status = decided("Approved");
    let used = json!({"type": "Used", "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-11-27T09:02:00Z"});
    status["conditions"]
        .as_array_mut()
        .expect("a list")
        .push(used);
    world.with_status(status);
    assert_eq!(world.verdicts(), []);
    assert_eq!(world.reports(Some(ApprovalUse::Succeeded)), []);
}

#[tokio::test(start_paused = true)]
async fn without_policies_a_pod_gets_no_yes() {
    let mut world = World::new();
    world.with_status(decided("Approved"));
    world.reports(None);
    for protection in [Protection::Unknown, Protection::Missing("none".into())] {
        world.approvals.set_protection(protection);
        assert_eq!((world.verdicts(), world.is_woken()), (vec![], false));
    }
    world.with_status(decided("Denied"));
    assert_eq!(world.verdicts(), [Verdict::Denied]);
}

#[tokio::test(start_paused = true)]
async fn another_pod_gets_no_decision() {
    let mut world = World::new();
    world.with_status(decided("Approved"));
    let question = OpenQuestion {
        id: ID.to_owned(),
        used: None,
        code: None,
    };
    world.approvals.report(&otter(), "uid-otter-1", &[question]);
    assert_eq!(world.approvals.decisions_for(&otter(), "uid-otter-1"), []);
    // It never had a ToolApproval of its own.
    tokio::time::advance(Duration::from_secs(30)).await;
    let decisions = world.approvals.decisions_for(&otter(), "uid-otter-1");
    assert_eq!(decisions[0].verdict, Verdict::Withdrawn);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_approval_is_withdrawn_and_a_finished_one_is_forgotten() {
    let mut world = World::new();
    world.with_status(Value::Null);
    world.reports(None);
    world.apply(Event::Delete(read(&world.object)));
    assert!(world.is_woken() && world.approvals.was_deleted(&world.key()));
    let decision = world.approvals.decisions_for(&otter(), POD).remove(0);
    assert_eq!(
        (decision.verdict, decision.approval, &*decision.call_digest),
        (Verdict::Withdrawn, None, "c1:call")
    );
    assert_eq!(world.approvals.pod_gone(POD), []);
    assert!(!world.approvals.was_deleted(&world.key()));

    let mut world = World::new();
    world.with_status(decided("Expired"));
    world.apply(Event::Delete(read(&world.object)));
    assert!(!world.approvals.was_deleted(&world.key()));
    assert!(world.approvals.memory.lock().agents.is_empty());
}

#[test]
fn a_question_counts_until_it_is_finished() {
    let mut world = World::new();
    let key = world.key();
    let entry = Entry {
        pod: POD.into(),
        agent: otter(),
        bytes: 7,
    };
    assert_eq!(world.approvals.reserve(&key, entry.clone()), Ok(()));
    world.with_status(Value::Null);
    assert_eq!(world.approvals.gauges.pending.get(), 1);
    // The request ended without knowing that the object exists.
    world.approvals.release(&key);
    assert_eq!(
        (
            world.approvals.gauges.pending.get(),
            world.approvals.open_of(&otter())
        ),
        (1, vec![key.clone()])
    );
    assert_eq!(world.approvals.pod_gone(POD), std::slice::from_ref(&key));
    world.with_status(decided("Denied"));
    assert_eq!(
        (
            world.approvals.gauges.pending.get(),
            world.approvals.open_of(&otter())
        ),
        (0, vec![])
    );
    // A reservation whose object never came.
    let other = ObjectRef::new("pond", "otter-other");
    assert_eq!(world.approvals.reserve(&other, entry), Ok(()));
    world.approvals.release(&other);
    assert_eq!(world.approvals.gauges.pending.get(), 0);
    // The next leader begins with the same objects.
    world.with_status(Value::Null);
    world.approvals.begin();
    assert_eq!(world.approvals.gauges.pending.get(), 1);
    assert_eq!(world.approvals.protection(), Protection::Unknown);
}

#[test]
fn the_decisions_of_a_namespace_are_counted() {
    let approvals = Approvals::default();
    let mut writer = StoreWriter::new(approvals.decisions.clone());
    let decision = |number: usize| {
        let object = json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
            "metadata": {"name": format!("d{number}"), "namespace": "pond",
                "uid": format!("d{number}"), "resourceVersion": "1"},
            "spec": {"approval": {"name": format!("nothing-{number}"), "uid": "x"},
                "callDigest": "c1:x", "verdict": "Deny", "decidedBy": {"username": "heron"}},
        });
        read::<StoredDecision>(&object)
    };
    let mut apply = |event| {
        for change in writer.apply(event) {
            approvals.decision_changed(&change);
        }
    };
    for number in 0..=MOST_IN_NAMESPACE {
        apply(Event::Apply(decision(number)));
        // A later version counts once.
        apply(Event::Apply(decision(number)));
        let is_last = number == MOST_IN_NAMESPACE;
        assert_eq!(approvals.has_too_many_decisions("pond"), is_last);
    }
    assert!(!approvals.has_too_many_decisions("reef"));
    for number in 0..=MOST_IN_NAMESPACE {
        apply(Event::Delete(decision(number)));
        assert!(!approvals.has_too_many_decisions("pond"));
    }
    let memory = approvals.memory.lock();
    assert!(memory.decisions.is_empty() && memory.decision_counts.is_empty());
}

#[test]
fn only_a_leader_reports_metrics() {
    let mut world = World::new();
    world.with_status(Value::Null);
    world.approvals.set_protection(Protection::Unknown);
    let gauges = world.approvals.gauges.clone();
    assert_eq!((gauges.pending.get(), gauges.off.get()), (1, 1));
    world.approvals.end();
    assert_eq!((gauges.pending.get(), gauges.off.get()), (0, 0));
    // The watch goes on, and a task of the tenure may end a moment later.
    world.with_status(Value::Null);
    world.approvals.release(&world.key());
    world
        .approvals
        .set_protection(Protection::Missing("none".into()));
    assert_eq!((gauges.pending.get(), gauges.off.get()), (0, 0));
    world.approvals.begin();
    assert_eq!((gauges.pending.get(), gauges.off.get()), (1, 0));
}

#[test]
fn denials_within_an_hour_and_finished_approvals_are_counted() {
    let mut world = World::new();
    let mut put = |number: usize, minute: usize| {
        let mut object = approval(&format!("otter-{number}"));
        object["status"] = decided("Denied");
        let at = format!("2026-11-27T09:{minute:02}:00Z");
        object["status"]["conditions"][0]["lastTransitionTime"] = json!(at);
        world.apply(Event::Apply(read(&object)));
    };
    (0..4).for_each(|number| put(number, 10));
    put(4, 40);
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    assert!(
        world
            .approvals
            .is_denied(&otter(), at("2026-11-27T10:09:59Z"))
    );
    assert!(
        !world
            .approvals
            .is_denied(&otter(), at("2026-11-27T10:10:00Z"))
    );
    assert_eq!(world.approvals.surplus(&otter()), []);
    let mut put = |number: usize| {
        let mut object = approval(&format!("otter-{number:03}"));
        object["status"] = decided("Expired");
        world.apply(Event::Apply(read(&object)));
    };
    (100..100 + MOST_FINISHED).for_each(&mut put);
    let surplus = world.approvals.surplus(&otter());
    assert_eq!(surplus.len(), 5);
    // All of them are from 09:02; the denials are younger.
    assert_eq!(surplus[0].name, "otter-100");
}
