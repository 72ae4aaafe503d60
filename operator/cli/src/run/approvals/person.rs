//! The person at the terminal: a decision on each question, one after the other.

use std::sync::Arc;

use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout_at;
use toolcrib_bounds::escaped;
use toolcrib_compile::{CallRequirements, ObjectRef};
use toolcrib_manifest::{ApprovalRef, Decision, LONGEST_REASON, Question, Tier, Verdict};

use super::terminal::{Answer, Terminal};
use super::{Decisions, WaitingQuestion};
use crate::print;

/// Stands for the ToolApproval, of which there is none.
const APPROVAL: &str = "terminal";

/// The name of the approval of a question, for the record.
pub fn approval(question: &Question) -> ApprovalRef {
    ApprovalRef {
        name: APPROVAL.to_owned(),
        uid: question.id.clone(),
    }
}

/// Decides on the questions in their order, for as long as any can come.
pub async fn decide_in_turn(
    agent: ObjectRef,
    mut questions: mpsc::Receiver<WaitingQuestion>,
    decisions: Arc<watch::Sender<Decisions>>,
) {
    while let Some(waiting) = questions.recv().await {
        let decision = decide(&agent, &waiting).await;
        decisions.send_modify(|all| all.push(decision));
    }
}

async fn decide(agent: &ObjectRef, waiting: &WaitingQuestion) -> Decision {
    let WaitingQuestion {
        question,
        requirements,
        until,
    } = waiting;
    let denied = |reason: &str| (Verdict::Denied, reason.to_owned());
    // It could be used when the question came; this may be long after.
    let (verdict, reason) = match Terminal::open() {
        Err(why) => (Verdict::Withdrawn, why.to_string()),
        Ok(terminal) => {
            let text = prompt(agent, question, requirements);
            match timeout_at(*until, terminal.ask(&text)).await {
                Ok(Ok(Answer::Yes)) => (Verdict::Approved, String::new()),
                Ok(Ok(Answer::No)) => denied(""),
                Ok(Ok(Answer::End)) => denied("the input of the terminal ended without an answer"),
                Ok(Err(error)) => denied(&format!("the terminal failed: {error}")),
                Err(_) => (Verdict::Expired, String::new()),
            }
        }
    };
    let decided_by = match verdict {
        Verdict::Approved | Verdict::Denied => vec![user().await],
        Verdict::Expired | Verdict::Withdrawn => Vec::new(),
    };
    Decision {
        id: question.id.clone(),
        call_digest: question.call_digest.clone(),
        verdict,
        approval: Some(approval(question)),
        decided_by,
        reason: toolcrib_bounds::cut(&reason, LONGEST_REASON).into_owned(),
    }
}

/// The call, who would have to approve it in a cluster, and the question.
fn prompt(agent: &ObjectRef, question: &Question, requirements: &CallRequirements) -> String {
    let CallRequirements { tier, .. } = requirements;
    let mut lines = vec![
        "toolcrib: a call waits for your approval".to_owned(),
        print::labelled("agent", &agent.to_string()),
        print::labelled("tool", &format!("{} ({})", question.tool, tier.name())),
        print::labelled("asked by", &askers(requirements)),
        print::labelled(
            "needs",
            &format!(
                "{} in a cluster; for this run, you",
                requirements.requirements()
            ),
        ),
    ];
    let arguments = escaped(&question.arguments);
    lines.extend(print::call_arguments(&arguments, &question.redacted));
    let lines: Vec<_> = lines.iter().map(|line| print::plain(line)).collect();
    format!("\n{}\nRun this call once? [y/N] ", lines.join("\n"))
}

/// The tier, rules and policies that ask for the approval.
fn askers(requirements: &CallRequirements) -> String {
    let elevated = (requirements.tier == Tier::Elevated).then(|| "the tool's tier".to_owned());
    let rules = requirements.rules.iter();
    let rules = rules.map(|rule| format!("a rule of {} {}", rule.kind.name(), rule.grant));
    let policies = requirements.policies.iter();
    let policies = policies.map(|asked| format!("ClusterToolPolicy {}", asked.policy));
    let all: Vec<String> = elevated.into_iter().chain(rules).chain(policies).collect();
    all.join(", ")
}

/// The name of the user of this process, as `id -un` prints it; without a name, `uid` and the number.
async fn user() -> String {
    let output = Command::new("id")
        .arg("-un")
        .kill_on_drop(true)
        .output()
        .await;
    let name = output.ok().filter(|output| output.status.success());
    let name = name.and_then(|output| String::from_utf8(output.stdout).ok());
    match name.as_deref().map(str::trim) {
        Some(name) if !name.is_empty() => name.to_owned(),
        Some(_) | None => format!("uid {}", rustix::process::getuid().as_raw()),
    }
}
