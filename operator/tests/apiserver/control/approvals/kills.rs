//! The controller is killed, or a response is lost, at each write between a question and its end.

use kube::ResourceExt as _;
use toolcrib_manifest::{ApprovalUse, Verdict};
use toolcrib_operator::leadership::lease::Timing;

use super::{Desk, HERON, Mediator};
use crate::support::faults::{Fault, Faults};
use crate::support::harness::{Controller, free_port};

/// Bound on the writes of one question; none has nearly as many.
const MOST_WRITES: usize = 40;

/// A controller, and the fault layer between it and the API server.
struct Process {
    faults: Faults,
    controller: Controller,
}

impl Desk {
    fn faults(&self) -> Faults {
        Faults::new(self.harness.account.clone().unwrap())
    }

    async fn process(&self, pod: &str, faults: Faults) -> Process {
        self.harness.vacate().await;
        let health = self.harness.health;
        let controller = self
            .harness
            .launch(faults.client(), pod, Timing::default(), health);
        Process { faults, controller }
    }

    /// Asks, approves and uses, whatever happens to the controller; each yes must be the same.
    async fn flow(&self, mediator: &Mediator, number: u32) -> String {
        let harness = &self.harness;
        let question = mediator.question(number, "{\"depth\":40}");
        let asked = mediator.asked(harness, &question).await;
        let approval = self.approval(&asked.name).await.unwrap();
        self.decide(&approval, HERON, "Approve").await;
        let told = mediator.decision(harness, &question).await;
        assert_eq!(told.verdict, Verdict::Approved, "{told:?}");
        assert_eq!(told.call_digest, question.call_digest);
        let used = [(&question, Some(ApprovalUse::Succeeded))];
        harness
            .eventually("the use is noted", || async {
                let told = mediator.report(harness, &used).await;
                // No leader takes the yes back.
                assert!(
                    told.iter().all(|it| it.verdict == Verdict::Approved),
                    "{told:?}"
                );
                told.is_empty().then_some(())
            })
            .await;
        asked.name
    }

    /// One approval, used once, with one decision that counts.
    async fn check(&self, name: &str, number: usize, what: &str) {
        let approval = self.phase(name, "Succeeded").await;
        let status = approval.status.as_ref().unwrap();
        assert_eq!(status.decided_by.as_deref(), Some(HERON), "{what}");
        assert_eq!(status.decisions.len(), 1, "{what}");
        assert_eq!(
            self.counted(&status.decisions[0].name).await,
            "Counted",
            "{what}"
        );
        assert_eq!(self.approvals().await.len(), number, "{what}");
        assert_eq!(approval.name_any(), name);
    }
}

/// Kills the process once its fault has happened, and starts the next.
async fn replace(desk: &Desk, process: &mut Option<Process>) {
    loop {
        let is_struck = process.as_ref().is_some_and(|it| it.faults.struck());
        if is_struck && let Some(struck) = process.take() {
            struck.controller.kill().await;
            *process = Some(desk.process("newt-0", desk.faults()).await);
            return std::future::pending().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_survives_a_kill_or_lost_response_at_any_write() {
    let desk = Desk::idle().await;
    let mut process = Some(desk.process("heron-0", desk.faults()).await);
    let mediator = desk.mediator("otter-0").await;
    let first = desk.flow(&mediator, 0).await;
    desk.check(&first, 1, "undisturbed").await;
    let mut number = 1;
    let mut struck = 0;
    for fault in [Fault::Kill, Fault::Lose] {
        // The first write labels the controller's own pod.
        for write in 2.. {
            assert!(write < MOST_WRITES, "it writes without end");
            let what = format!("{fault:?} at write {write}");
            if let Some(before) = process.take() {
                before.controller.kill().await;
            }
            process = Some(
                desk.process("heron-0", desk.faults().at(write, fault))
                    .await,
            );
            let asked = number as u32;
            let name = if fault == Fault::Kill {
                tokio::select! {
                    name = desk.flow(&mediator, asked) => name,
                    () = replace(&desk, &mut process) => unreachable!("it waits for ever"),
                }
            } else {
                desk.flow(&mediator, asked).await
            };
            number += 1;
            desk.check(&name, number, &what).await;
            let is_over = process
                .as_ref()
                .is_some_and(|it| !it.faults.struck() && it.faults.writes() < write);
            if is_over {
                break;
            }
            struck += 1;
        }
    }
    // A dry run of each policy, the object, its status twice, the decision twice, two Events.
    assert!(struck >= 2 * 7, "{struck}");
    if let Some(last) = process.take() {
        last.controller.kill().await;
    }
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_of_a_paused_leader_comes_too_late() {
    let desk = Desk::idle().await;
    let harness = &desk.harness;
    let first = desk.process("heron-0", desk.faults()).await;
    let mediator = desk.mediator("otter-0").await;
    let question = mediator.question(1, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.phase(&asked.name, "Pending").await;
    first.controller.kill().await;

    // The next leader is paused while its yes is on the way.
    desk.decide(&approval, HERON, "Approve").await;
    let status = format!("/toolapprovals/{}/status", asked.name);
    let faults = desk.faults().at_path(status, Fault::Pause);
    let paused = desk.process("newt-0", faults).await;
    harness
        .eventually("it is paused", || async {
            paused.faults.struck().then_some(())
        })
        .await;
    desk.decide(&approval, super::WARDENS[0], "Deny").await;
    harness.vacate().await;
    // It has no link of its own that the mediator could reach.
    let other = free_port();
    let account = harness.account.clone().unwrap();
    let last = harness.launch(account, "pike-0", Timing::default(), other);
    desk.phase(&asked.name, "Denied").await;
    paused.faults.resume();
    paused.controller.kill().await;
    desk.phase(&asked.name, "Denied").await;
    last.kill().await;
    let end = desk.process("perch-0", desk.faults()).await;
    let told = mediator.decision(harness, &question).await;
    assert_eq!(
        (told.verdict, told.decided_by),
        (Verdict::Denied, vec!["pike".to_owned()])
    );
    end.controller.kill().await;
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_events_are_recovered_by_a_list() {
    let desk = Desk::idle().await;
    let harness = &desk.harness;
    let process = desk.process("heron-0", desk.faults()).await;
    let mediator = desk.mediator("otter-0").await;
    let heal = |resource: &str| process.faults.gone(&[resource.to_owned()].into());

    let question = mediator.question(1, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.phase(&asked.name, "Pending").await;
    process.faults.lose_events(["tooldecisions"]);
    desk.decide(&approval, HERON, "Approve").await;
    heal("tooldecisions");
    let told = mediator.decision(harness, &question).await;
    assert_eq!(told.verdict, Verdict::Approved);

    // The decision is known before the approval that it names: it waits for it.
    process.faults.lose_events(["toolapprovals"]);
    let question = mediator.question(2, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.approval(&asked.name).await.unwrap();
    let decision = desk.decide(&approval, HERON, "Approve").await;
    let log = || process.faults.log().into_iter();
    harness
        .eventually("it looks the approval up", || async {
            let mut reads = log().filter(|seen| seen.path.ends_with("/toolapprovals"));
            reads
                .any(|seen| {
                    !seen.watch && seen.method == "GET" && seen.path.contains(&harness.pond)
                })
                .then_some(())
        })
        .await;
    heal("toolapprovals");
    let told = mediator.decision(harness, &question).await;
    assert_eq!(told.verdict, Verdict::Approved);
    assert_eq!(desk.counted(&decision).await, "Counted");
    process.controller.kill().await;
    desk.end().await;
}
