//! Persons decide: who counts, what the pod is told, and what is written.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use toolcrib_crds::ToolDecision;
use toolcrib_manifest::{ApprovalUse, QuestionRefusal, Verdict};

use super::{Desk, HERON, NEWT, WARDENS};
use crate::support::accounts::{apply_all, as_user, remove};
use crate::support::approvals::objects;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_asked_approved_and_used() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let question = mediator.question(1, "{\"depth\":40,\"note\":\"p\u{430}y\"}");
    let asked = mediator.asked(harness, &question).await;
    // Asked again, it is the same object.
    assert_eq!(mediator.asked(harness, &question).await, asked);
    let [approval] = &desk.approvals().await[..] else {
        panic!("one approval")
    };
    assert_eq!(
        (approval.name_any(), approval.uid()),
        (asked.name.clone(), Some(asked.uid))
    );
    let spec = &approval.spec;
    assert_eq!(spec.arguments, r#"{"depth":40,"note":"p\u0430y"}"#);
    assert_eq!(
        (&spec.call_digest, &spec.request_id),
        (&question.call_digest, &question.id)
    );
    assert_eq!(spec.pod.uid, mediator.pod.uid().unwrap());
    let grants: Vec<&str> = spec.rules.iter().map(|rule| &*rule.grant).collect();
    assert_eq!(grants, ["deep", "wide"]);
    let owner = &approval.owner_references()[0];
    assert_eq!(
        (&*owner.kind, &owner.uid, owner.block_owner_deletion),
        ("Agent", &spec.agent.uid, None)
    );
    let note = harness.event("otter", "ApprovalNeeded").await;
    assert!(note.contains(&asked.name), "{note}");

    // The waiting request of the pod is answered as soon as the decision is in the status.
    let open = [(&question, None)];
    let first = mediator.try_report(&open, 0, 0).await.unwrap();
    assert_eq!(first.decisions, []);
    let waiting = async { mediator.try_report(&open, first.seq, 60_000).await };
    let deciding = async {
        harness
            .eventually("it waits", || async {
                (harness.metric("link_held").await == 1.0).then_some(())
            })
            .await;
        desk.decide(approval, HERON, "Approve").await
    };
    let (answer, decision) = tokio::join!(waiting, deciding);
    let told = answer.unwrap().decisions.remove(0);
    assert_eq!(
        (told.id, told.call_digest),
        (question.id.clone(), question.call_digest.clone())
    );
    assert_eq!(
        (told.verdict, told.decided_by),
        (Verdict::Approved, vec![HERON.to_owned()])
    );
    assert_eq!(desk.counted(&decision).await, "Counted");
    let decisions: Api<ToolDecision> = harness.api(&harness.pond);
    harness
        .eventually("the approval owns the decision", || async {
            let found = decisions.get(&decision).await.unwrap();
            let owner = found.owner_references().first().cloned()?;
            (Some(owner.uid) == approval.uid()).then_some(())
        })
        .await;

    // The use is answered until it is in the status.
    let used = [(&question, Some(ApprovalUse::Succeeded))];
    harness
        .eventually("the use is noted", || async {
            mediator
                .report(harness, &used)
                .await
                .is_empty()
                .then_some(())
        })
        .await;
    let approval = desk.phase(&asked.name, "Succeeded").await;
    let status = approval.status.as_ref().unwrap();
    assert_eq!(status.decided_by.as_deref(), Some(HERON));
    assert_eq!(status.decisions[0].reason, "heron says so");
    // Another one is too late.
    let late = desk.decide(&approval, HERON, "Deny").await;
    assert_eq!(desk.counted(&late).await, "AlreadyDecided");
    desk.phase(&asked.name, "Succeeded").await;
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_wardens_approve_one_denies_and_others_do_not_count() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let ask = async |number: u32| {
        let question = mediator.question(number, &format!("{{\"depth\":{number}}}"));
        let asked = mediator.asked(harness, &question).await;
        (question, desk.approval(&asked.name).await.unwrap())
    };
    let (question, approval) = ask(1).await;
    let other = desk.decide(&approval, NEWT, "Approve").await;
    assert_eq!(desk.counted(&other).await, "NotAnApprover");
    let other = desk.decide(&approval, NEWT, "Deny").await;
    assert_eq!(desk.counted(&other).await, "NotAnApprover");
    let one = desk.decide(&approval, WARDENS[0], "Approve").await;
    assert_eq!(desk.counted(&one).await, "Counted");
    let again = desk.decide(&approval, WARDENS[0], "Approve").await;
    assert_eq!(desk.counted(&again).await, "Counted");
    assert_eq!(mediator.report(harness, &[(&question, None)]).await, []);
    desk.decide(&approval, WARDENS[1], "Approve").await;
    let told = mediator.decision(harness, &question).await;
    assert_eq!(told.verdict, Verdict::Approved);
    assert_eq!(told.decided_by, ["perch", "pike"]);

    let (question, approval) = ask(2).await;
    desk.decide(&approval, WARDENS[1], "Approve").await;
    desk.decide(&approval, WARDENS[0], "Deny").await;
    let told = mediator.decision(harness, &question).await;
    assert_eq!(
        (told.verdict, &*told.reason),
        (Verdict::Denied, "pike says so")
    );
    assert_eq!(told.decided_by, ["pike"]);

    // A decision about another call, a copied one, and one about nothing.
    let (question, approval) = ask(3).await;
    let by = json!({"username": HERON});
    for (reason, name, uid, digest) in [
        (
            "OtherDigest",
            approval.name_any(),
            approval.uid(),
            "c1:other".to_owned(),
        ),
        (
            "Gone",
            approval.name_any(),
            Some("uid-of-before".into()),
            question.call_digest.clone(),
        ),
        (
            "Gone",
            "otter-nothing".into(),
            approval.uid(),
            question.call_digest.clone(),
        ),
    ] {
        let spec = json!({"approval": {"name": name, "uid": uid}, "callDigest": digest,
            "verdict": "Approve", "decidedBy": by});
        let decision = desk
            .create_decision(as_user(HERON).await, "forged", spec)
            .await;
        assert_eq!(desk.counted(&decision).await, reason);
    }
    assert_eq!(mediator.report(harness, &[(&question, None)]).await, []);
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policies_nothing_is_asked_and_nothing_counts() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let question = mediator.question(1, "{}");
    let asked = mediator.asked(harness, &question).await;
    let approval = desk.approval(&asked.name).await.unwrap();
    let policies = objects(&[]);
    let is_of_decisions = |it: &&serde_json::Value| {
        it["kind"] == "ValidatingAdmissionPolicyBinding"
            && it["metadata"]["name"] == "toolcrib-decisions"
    };
    let binding = policies.iter().find(is_of_decisions).unwrap().clone();
    remove(harness, std::slice::from_ref(&binding)).await;
    // The user can say to be somebody else now, and it is worth nothing.
    let forged: ToolDecision = serde_json::from_value(json!({
        "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
        "metadata": {"name": "forged", "namespace": harness.pond},
        "spec": {"approval": {"name": approval.name_any(), "uid": approval.uid()},
            "callDigest": question.call_digest, "verdict": "Approve", "decidedBy": {"username": HERON}},
    }))
    .unwrap();
    harness
        .eventually("the controller sees that the policy is gone", || async {
            (harness.metric("approvals_off").await == 1.0).then_some(())
        })
        .await;
    let api: Api<ToolDecision> = Api::namespaced(as_user(NEWT).await, &harness.pond);
    harness
        .eventually("the API server forgets the policy", || async {
            api.create(&PostParams::default(), &forged).await.ok()
        })
        .await;
    assert_eq!(desk.counted("forged").await, "NotProtected");
    let other = mediator.question(2, "{}");
    assert_eq!(
        mediator.refused(harness, &other).await,
        QuestionRefusal::NotProtected
    );
    assert_eq!(mediator.report(harness, &[(&question, None)]).await, []);
    let status = desk.approval(&asked.name).await.unwrap().status.unwrap();
    assert_eq!(status.conditions[0].reason, "NotProtected");

    apply_all(harness, &[binding]).await;
    harness
        .eventually("the controller sees that the policy is back", || async {
            (harness.metric("approvals_off").await == 0.0).then_some(())
        })
        .await;
    desk.decide(&approval, HERON, "Approve").await;
    assert_eq!(
        mediator.decision(harness, &question).await.verdict,
        Verdict::Approved
    );
    desk.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_nobody_decides_expires() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    let mut question = mediator.question(1, "{}");
    question.open_for_ms = 1_500;
    let asked = mediator.asked(harness, &question).await;
    let told = mediator.decision(harness, &question).await;
    assert_eq!((told.verdict, told.decided_by), (Verdict::Expired, vec![]));
    let approval = desk.phase(&asked.name, "Expired").await;
    let late = desk.decide(&approval, HERON, "Approve").await;
    assert_eq!(desk.counted(&late).await, "AlreadyDecided");
    desk.end().await;
}

/// A minute too late or too early by the clock of the pod's node.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_open_for_as_long_whatever_clock_its_pod_has() {
    let desk = Desk::new().await;
    let harness = &desk.harness;
    let mediator = desk.mediator("otter-0").await;
    for (number, skew) in [(1, -60), (2, 60)] {
        let mut question = mediator.question(number, "{}");
        let clock = Timestamp::now() + SignedDuration::from_secs(skew);
        question.asked_at = clock.to_string();
        question.open_for_ms = 5_000;
        let asked = mediator.asked(harness, &question).await;
        let approval = desk.approval(&asked.name).await.unwrap();
        let requested = approval.spec.requested_at.0;
        let created = approval.metadata.creation_timestamp.unwrap().0;
        let apart = created.duration_since(requested).abs();
        assert!(apart < SignedDuration::from_secs(30), "{apart}");
        let open = approval.spec.expires_at.0.duration_since(requested);
        assert_eq!(open, SignedDuration::from_secs(5));
        let told = mediator.decision(harness, &question).await;
        assert_eq!(told.verdict, Verdict::Expired);
    }
    desk.end().await;
}
