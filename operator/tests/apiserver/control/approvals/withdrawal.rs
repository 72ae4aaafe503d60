//! What ends a question without a person, and whose question it is.

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use toolcrib_crds::{Agent, ToolDecision, ToolGrant};
use toolcrib_manifest::{ApprovalUse, QuestionRefusal, Verdict};

use super::{Desk, HERON};
use crate::control::link::{delete, ours};
use crate::support::pods;

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_with_its_pod_its_object_or_its_mediator() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let [first, second] = [
        desk.mediator("otter-0").await,
        desk.mediator("otter-1").await,
    ];
    let ask = async |mediator: &super::Mediator, number| {
        let question = mediator.question(number, "{\"depth\":40}");
        let asked = mediator.asked(harness, &question).await;
        (question, asked.name)
    };
    // Two pods ask the same, and each has an approval of its own.
    let (of_first, first_name) = ask(&first, 1).await;
    let (of_second, second_name) = ask(&second, 2).await;
    assert_ne!(first_name, second_name);
    let approval = desk.approval(&second_name).await.unwrap();
    desk.decide(&approval, HERON, "Approve").await;
    assert_eq!(
        second.decision(harness, &of_second).await.verdict,
        Verdict::Approved
    );
    // A pod is told nothing about another pod's question.
    assert_eq!(
        first
            .report(harness, &[(&of_first, None), (&of_second, None)])
            .await,
        []
    );

    pods::remove(harness, &first.pod).await;
    let withdrawn = desk.phase(&first_name, "Withdrawn").await;
    let message = &withdrawn.status.unwrap().conditions[0].message;
    assert!(message.contains("PodGone"), "{message}");
    // Approved, and the pod goes before it reports: nobody knows whether the call was made.
    pods::remove(harness, &second.pod).await;
    desk.phase(&second_name, "Unknown").await;

    let third = desk.mediator("otter-2").await;
    let (question, name) = ask(&third, 3).await;
    assert_eq!(third.report(harness, &[(&question, None)]).await, []);
    desk.delete(&name).await;
    let told = third.decision(harness, &question).await;
    assert_eq!((told.verdict, told.approval), (Verdict::Withdrawn, None));
    assert_eq!(
        third.refused(harness, &question).await,
        QuestionRefusal::NotGranted
    );
    assert!(desk.approval(&name).await.is_none());

    // The mediator does not hold it open any more, as after a lost volume.
    let (_, name) = ask(&third, 4).await;
    harness
        .eventually("it is withdrawn", || async {
            third.report(harness, &[]).await;
            let phase = desk.approval(&name).await?.status?.phase?;
            (phase.name() == "Withdrawn").then_some(())
        })
        .await;
    // It refused the call after the yes.
    let (question, name) = ask(&third, 5).await;
    let approval = desk.approval(&name).await.unwrap();
    desk.decide(&approval, HERON, "Approve").await;
    assert_eq!(
        third.decision(harness, &question).await.verdict,
        Verdict::Approved
    );
    third
        .report(harness, &[(&question, Some(ApprovalUse::Refused))])
        .await;
    desk.phase(&name, "Withdrawn").await;
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_with_the_access_to_its_tool() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let ask = async |number| {
        let question = mediator.question(number, "{\"depth\":40}");
        let asked = mediator.asked(harness, &question).await;
        (question, asked.name)
    };
    // One of two rules is gone: its approvers count no more.
    let (question, name) = ask(1).await;
    delete(
        harness,
        &ours("ToolGrant", &harness.pond, "deep", json!({})),
    )
    .await;
    let approval = desk.approval(&name).await.unwrap();
    let told = harness.eventually("heron is no approver", || async {
        let decision = desk.decide(&approval, HERON, "Approve").await;
        match &*desk.counted(&decision).await {
            "NotAnApprover" => Some(()),
            other => panic!("{other}"),
        }
    });
    // The revocation is published within milliseconds, and the decision is created after it.
    harness
        .eventually("the revocation is published", || async {
            let answer = mediator.try_report(&[(&question, None)], 0, 0).await.ok()?;
            let rules = answer.allowlist?.rules.get(super::DIVE)?.rules.len();
            (rules == 1).then_some(())
        })
        .await;
    told.await;
    // The other one asks for three persons now, which is another rule.
    let grants: Api<ToolGrant> = harness.api(&harness.pond);
    let entry = json!({"surface": {"name": "kelp"}, "allow": ["*"],
        "approval": {"approvers": {"groups": ["wardens"]}, "minimum": 3}});
    let patch = Patch::Merge(json!({"spec": {"tools": [entry]}}));
    grants
        .patch("wide", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        mediator.decision(harness, &question).await.verdict,
        Verdict::Withdrawn
    );
    let withdrawn = desk.phase(&name, "Withdrawn").await;
    let message = &withdrawn.status.unwrap().conditions[0].message;
    assert!(message.contains("Revoked"), "{message}");
    // The mediator's files are from before.
    let stale = mediator.question(2, "{}");
    assert_eq!(
        mediator.refused(harness, &stale).await,
        QuestionRefusal::NotGranted
    );

    let files = harness
        .files("otter", "the new rule", |files| {
            let rules = &files["tools.json"]["tools"][0]["x-toolcrib"]["rules"];
            rules.as_array().is_some_and(|rules| {
                rules.len() == 1 && rules[0]["digest"] != mediator.tool.extension.rules[1].digest
            })
        })
        .await;
    let mediator = super::Mediator::new(harness, "otter", mediator.pod.clone(), &files).await;
    let question = mediator.question(3, "{}");
    let asked = mediator.asked(harness, &question).await;
    let agents: Api<Agent> = harness.api(&harness.pond);
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    agents
        .patch("otter", &PatchParams::default(), &suspend)
        .await
        .unwrap();
    assert_eq!(
        mediator.decision(harness, &question).await.verdict,
        Verdict::Withdrawn
    );
    let stale = mediator.question(4, "{}");
    assert_eq!(
        mediator.refused(harness, &stale).await,
        QuestionRefusal::NotGranted
    );
    // The garbage collector deletes the approvals of a deleted Agent.
    delete(harness, &ours("Agent", &harness.pond, "otter", json!({}))).await;
    harness
        .eventually("the approval is gone", || async {
            desk.approval(&asked.name).await.is_none().then_some(())
        })
        .await;
    assert!(mediator.pod.uid().is_some());
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_finished_is_deleted_with_its_decisions() {
    let mut desk = Desk::idle().await;
    desk.harness.approvals_kept = jiff::SignedDuration::from_secs(3);
    desk.harness.start("heron-0");
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let question = mediator.question(1, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.approval(&asked.name).await.unwrap();
    let decision = desk.decide(&approval, HERON, "Deny").await;
    assert_eq!(
        mediator.decision(harness, &question).await.verdict,
        Verdict::Denied
    );
    let about_nothing = json!({"approval": {"name": "otter-nothing", "uid": "x"},
        "callDigest": "c1:x", "verdict": "Approve", "decidedBy": {"username": HERON}});
    let heron = crate::support::accounts::as_user(HERON).await;
    let nothing = desk.create_decision(heron, "nothing", about_nothing).await;
    let decisions: Api<ToolDecision> = harness.api(&harness.pond);
    harness
        .eventually("all are deleted", || async {
            let approval = desk.approval(&asked.name).await;
            let [own, other] = [decisions.get_opt(&decision), decisions.get_opt(&nothing)];
            let is_left = approval.is_some()
                || own.await.unwrap().is_some()
                || other.await.unwrap().is_some();
            (!is_left).then_some(())
        })
        .await;
    desk.end().await;
}
