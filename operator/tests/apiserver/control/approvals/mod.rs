//! Approvals: the real controller with the chart's policies and rights, persons, and a double of the
//! mediator that asks, reports and uses.

// clippy.toml allows unwrap in test functions, but not in their helpers.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod decisions;
mod kills;
mod limits;
mod withdrawal;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use toolcrib_crds::{ToolApproval, ToolDecision};
use toolcrib_manifest::{
    ApprovalRef, ApprovalUse, AskingRule, Decision, GrantRef, LinkDown, Question, QuestionAnswer,
    QuestionRefusal, Tool, ToolsFile,
};
use toolcrib_rules::CallIdentity;

use super::link::ours;
use crate::support::accounts::{apply, apply_all, as_member, binding, remove};
use crate::support::approvals::{APPROVER, approval, decision, objects};
use crate::support::harness::Harness;
use crate::support::pods::{self, AUDIENCE};
use crate::support::selectors::restrict;

const HERON: &str = "heron";
const NEWT: &str = "newt";
/// Who are in group `wardens`.
const WARDENS: [&str; 2] = ["pike", "perch"];
const DIVE: &str = "kelp.dive";

/// A harness with the chart's policies, and agent `otter`, whose tool needs the approval of `heron`, or
/// of two wardens.
struct Desk {
    harness: Harness,
    installed: Vec<Value>,
}

impl Desk {
    /// With a running controller.
    async fn new() -> Self {
        let mut desk = Self::idle().await;
        desk.harness.start("heron-0");
        desk
    }

    /// Without a controller.
    async fn idle() -> Self {
        let mut harness = Harness::new().await;
        let mut installed = objects(&[]);
        apply_all(&harness, &installed).await;
        installed.extend(restrict(&mut harness).await);
        policies_hold(&harness).await;
        for user in [HERON, NEWT, WARDENS[0], WARDENS[1]] {
            apply(&harness, &binding(&harness.pond, user, APPROVER)).await;
        }
        let tool = |name: &str| {
            json!({"name": name, "inputSchema": {"type": "object"},
                "http": {"method": "POST", "path": format!("/{name}"), "body": "json"}})
        };
        let surface = json!({"url": "https://kelp.example",
            "descriptor": {"version": 2, "tools": [tool("dive")]}});
        for (kind, name, spec) in [
            ("Surface", "kelp", surface),
            ("Agent", "otter", json!({"surfaces": [{"name": "kelp"}]})),
        ] {
            harness.apply(ours(kind, &harness.pond, name, spec)).await;
        }
        for (name, approval) in [
            ("deep", json!({"approvers": {"users": [HERON]}})),
            (
                "wide",
                json!({"approvers": {"groups": ["wardens"]}, "minimum": 2}),
            ),
        ] {
            let entry = json!({"surface": {"name": "kelp"}, "allow": ["*"], "approval": approval});
            let grant = json!({"agents": ["otter"], "tools": [entry]});
            harness
                .apply(ours("ToolGrant", &harness.pond, name, grant))
                .await;
        }
        Self { harness, installed }
    }

    async fn end(self) {
        remove(&self.harness, &self.installed).await;
        self.harness.end().await;
    }

    async fn approval(&self, name: &str) -> Option<ToolApproval> {
        let api: Api<ToolApproval> = self.harness.api(&self.harness.pond);
        api.get_opt(name).await.unwrap()
    }

    async fn approvals(&self) -> Vec<ToolApproval> {
        let api: Api<ToolApproval> = self.harness.api(&self.harness.pond);
        api.list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until an approval has this phase.
    async fn phase(&self, name: &str, expected: &str) -> ToolApproval {
        let what = format!("{name} is {expected}");
        self.harness
            .eventually(&what, || async {
                let found = self.approval(name).await?;
                let phase = found.status.as_ref()?.phase?;
                (phase.name() == expected).then_some(found)
            })
            .await
    }

    /// Creates a decision of a user; returns its name.
    async fn decide(&self, approval: &ToolApproval, user: &str, verdict: &str) -> String {
        let groups: &[&str] = match WARDENS.contains(&user) {
            true => &["wardens"],
            false => &[],
        };
        let client = as_member(user, groups).await;
        let spec = json!({
            "approval": {"name": approval.name_any(), "uid": approval.uid()},
            "callDigest": approval.spec.call_digest, "verdict": verdict,
            "reason": format!("{user} says so"),
            "decidedBy": {"username": user, "groups": groups},
        });
        self.create_decision(client, &format!("{user}-{}", verdict.to_lowercase()), spec)
            .await
    }

    async fn create_decision(&self, client: Client, prefix: &str, spec: Value) -> String {
        let decision: ToolDecision = serde_json::from_value(json!({
            "apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolDecision",
            "metadata": {"generateName": format!("{prefix}-"), "namespace": self.harness.pond},
            "spec": spec,
        }))
        .unwrap();
        let api: Api<ToolDecision> = Api::namespaced(client, &self.harness.pond);
        // The rights of the user are known a moment after they were given.
        let created = self
            .harness
            .eventually("the decision is created", || async {
                api.create(&PostParams::default(), &decision).await.ok()
            })
            .await;
        created.name_any()
    }

    /// Waits until the controller has counted a decision; returns the reason.
    async fn counted(&self, name: &str) -> String {
        let api: Api<ToolDecision> = self.harness.api(&self.harness.pond);
        self.harness
            .eventually(&format!("{name} is counted"), || async {
                let found = api.get(name).await.unwrap();
                Some(found.status?.conditions.first()?.reason.clone())
            })
            .await
    }

    /// Deletes an approval as its namespace's owner would.
    async fn delete(&self, name: &str) {
        let api: Api<ToolApproval> = self.harness.api(&self.harness.pond);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn mediator(&self, pod: &str) -> Mediator {
        self.mediator_of("otter", pod).await
    }

    async fn mediator_of(&self, agent: &str, pod: &str) -> Mediator {
        let files = self
            .harness
            .files(agent, "the tool", |files| crate::tools(files) == [DIVE])
            .await;
        let pod = pods::create(&self.harness, pod, agent).await;
        Mediator::new(&self.harness, agent, pod, &files).await
    }

    /// Adds agents with the tool of `otter`, whose calls `heron` approves.
    async fn add_agents(&self, names: &[String]) {
        let entry = json!({"surface": {"name": "kelp"}, "allow": ["*"],
            "approval": {"approvers": {"users": [HERON]}}});
        let grant = json!({"agents": names, "tools": [entry]});
        let pond = &self.harness.pond;
        self.harness
            .apply(ours("ToolGrant", pond, "many", grant))
            .await;
        for name in names {
            let spec = json!({"surfaces": [{"name": "kelp"}]});
            self.harness.apply(ours("Agent", pond, name, spec)).await;
        }
    }
}

/// Waits until the API server has learnt of the policies.
async fn policies_hold(harness: &Harness) {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = approval(&harness.pond, "otter-probe");
    let forged = decision(&object, "probe", "x", json!({"username": HERON}));
    let object: ToolApproval = serde_json::from_value(object).unwrap();
    let forged: ToolDecision = serde_json::from_value(forged).unwrap();
    let approvals: Api<ToolApproval> = harness.api(&harness.pond);
    let decisions: Api<ToolDecision> = harness.api(&harness.pond);
    harness
        .eventually("the policies refuse", || async {
            let made = approvals.create(&dry_run, &object).await;
            let decided = decisions.create(&dry_run, &forged).await;
            (made.is_err() && decided.is_err()).then_some(())
        })
        .await;
}

/// A double of the mediator: it asks what it is told to.
struct Mediator {
    agent: String,
    pod: Pod,
    namespace: String,
    tool: Tool,
    token: String,
    http: reqwest::Client,
    url: String,
    epoch: String,
}

impl Mediator {
    async fn new(
        harness: &Harness,
        agent: &str,
        pod: Pod,
        files: &BTreeMap<String, Value>,
    ) -> Self {
        let tools: ToolsFile = serde_json::from_value(files["tools.json"].clone()).unwrap();
        let link = &files["agent.json"]["link"];
        Self {
            agent: agent.to_owned(),
            token: pods::token(harness, &pod, AUDIENCE).await,
            namespace: harness.pond.clone(),
            tool: tools.tools.into_iter().find(|it| it.name == DIVE).unwrap(),
            http: harness.https("link", harness.link, &link["ca"]),
            url: link["url"].as_str().unwrap().to_owned(),
            epoch: pod.name_any(),
            pod,
        }
    }

    /// A question with an id of this number.
    fn question(&self, number: u32, arguments: &str) -> Question {
        let extension = &self.tool.extension;
        let id = format!("{number:032x}");
        let uid = self.pod.uid().unwrap();
        let entry = extension.entry_digest.clone().unwrap();
        let call_digest = CallIdentity {
            question: &id,
            namespace: &self.namespace,
            agent: &self.agent,
            pod: &uid,
            tool: DIVE,
            entry: &entry,
            arguments,
        }
        .digest();
        let rules = extension.rules.iter().map(|rule| AskingRule {
            grant: GrantRef {
                name: rule.grant.name.clone(),
                namespace: rule.grant.namespace.clone(),
            },
            rule: rule.digest.clone(),
        });
        Question {
            call_digest,
            tool: DIVE.into(),
            entry,
            arguments: arguments.into(),
            redacted: Vec::new(),
            rules: rules.collect(),
            asked_at: "2026-11-27T09:00:00Z".into(),
            open_for_ms: 3_600_000,
            id,
        }
    }

    /// Asks once; returns the status and the body.
    async fn try_ask(&self, question: &Question) -> Result<QuestionAnswer, (u16, String)> {
        let request = self.http.post(format!("{}/v1/questions", self.url));
        let body = serde_json::to_string(question).unwrap();
        let sent = request.bearer_auth(&self.token).body(body).send().await;
        let answer = sent.map_err(|error| (0, error.to_string()))?;
        let status = answer.status().as_u16();
        let text = answer
            .text()
            .await
            .map_err(|error| (0, error.to_string()))?;
        match status {
            200 => Ok(serde_json::from_str(&text).unwrap()),
            _ => Err((status, text)),
        }
    }

    /// Asks until a leader has answered.
    async fn ask(&self, harness: &Harness, question: &Question) -> QuestionAnswer {
        harness
            .eventually("the question is answered", || async {
                match self.try_ask(question).await {
                    Ok(answer) => Some(answer),
                    Err((0 | 403 | 503, _)) => None,
                    Err(other) => panic!("{other:?}"),
                }
            })
            .await
    }

    async fn asked(&self, harness: &Harness, question: &Question) -> ApprovalRef {
        match self.ask(harness, question).await {
            QuestionAnswer::Asked(approval) => approval,
            refused => panic!("{refused:?}"),
        }
    }

    async fn refused(&self, harness: &Harness, question: &Question) -> QuestionRefusal {
        match self.ask(harness, question).await {
            QuestionAnswer::Refused { why, .. } => why,
            asked => panic!("{asked:?}"),
        }
    }

    /// Reports these questions once, to be answered within `hold_ms`.
    async fn try_report(
        &self,
        questions: &[(&Question, Option<ApprovalUse>)],
        seen: u64,
        hold_ms: u64,
    ) -> Result<LinkDown, String> {
        let questions = questions.iter().map(|(question, used)| match used {
            Some(used) => json!({"id": question.id, "used": used}),
            None => json!({"id": question.id}),
        });
        let questions: Vec<Value> = questions.collect();
        let report = json!({"epoch": self.epoch, "version": "0", "seen": seen,
            "hold_ms": hold_ms, "questions": questions});
        let request = self.http.post(format!("{}/v1/link", self.url));
        let body = report.to_string();
        let sent = request.bearer_auth(&self.token).body(body).send().await;
        let answer = sent.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        match status.is_success() {
            true => serde_json::from_str(&text).map_err(|error| error.to_string()),
            false => Err(text),
        }
    }

    /// Reports these questions until a leader answers.
    async fn report(
        &self,
        harness: &Harness,
        questions: &[(&Question, Option<ApprovalUse>)],
    ) -> Vec<Decision> {
        let answer = harness.eventually("the report is answered", || async {
            self.try_report(questions, 0, 0).await.ok()
        });
        answer.await.decisions
    }

    /// Reports a question as open until it is decided.
    async fn decision(&self, harness: &Harness, question: &Question) -> Decision {
        harness
            .eventually("a decision", || async {
                self.report(harness, &[(question, None)]).await.pop()
            })
            .await
    }
}
