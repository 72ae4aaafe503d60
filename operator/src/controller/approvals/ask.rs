//! A mediator's question becomes a ToolApproval.
//!
//! Here: the checks, their order, and the creation. Not here: the request ([`crate::link::questions`]).
//!
//! Invariants: nothing is created for a call that the agent's compiled files do not give, for a digest
//! that is not that of the shown arguments, or while no decision could be trusted. A question that is
//! asked again has the same ToolApproval, whichever leader it asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource as _;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::time::Instant;
use toolcrib_bounds::{chain, cut, escaped};
use toolcrib_compile::{CallRequirements, ObjectRef, names};
use toolcrib_crds::{Agent, ObjectIdentity, Tier, ToolApproval, ToolApprovalSpec};
use toolcrib_manifest::{
    self as manifest, ApprovalRef, LONGEST_QUESTION_ARGUMENTS, MOST_ASKING_RULES, MOST_REDACTED,
    Question, QuestionAnswer, QuestionRefusal,
};
use toolcrib_rules::CallIdentity;

use super::check::Schedule;
use super::notify;
use super::pace::Pace;
use super::write::{WriteError, Writer};
use crate::approvals::open::Entry;
use crate::approvals::plan::Protection;
use crate::approvals::state::{Approvals, name};
use crate::approvals::stored::StoredApproval;
use crate::controller::context::Context;
use crate::controller::queue::work::ApprovalWork;
use crate::link::questions::{AskError, Asker};
use crate::objects::store::StoreObject as _;

/// The longest time for which a question is open.
const LONGEST_OPEN: Duration = Duration::from_secs(3600);
const SHORTEST_OPEN: Duration = Duration::from_secs(1);
/// The deadline of one request to the API server.
const CREATE: Duration = Duration::from_secs(5);
/// The time after which a creation whose result is not known is looked at again.
const UNCERTAIN: Duration = Duration::from_secs(60);
/// The hex digits of an id.
const ID: usize = 32;
/// Limits the bytes of names and digests in a question.
const LONGEST_TOOL: usize = 256;
const LONGEST_DIGEST: usize = 80;
/// Limits the bytes of a place in which a secret was replaced.
const LONGEST_POINTER: usize = 1024;

/// Takes the questions of mediators.
pub struct Questions {
    context: Arc<Context>,
    checks: Arc<Schedule>,
    pace: Mutex<Pace>,
}

impl Questions {
    pub fn new(context: Arc<Context>, checks: Arc<Schedule>) -> Self {
        Self {
            context,
            checks,
            pace: Mutex::default(),
        }
    }

    /// Creates the ToolApproval of a question, or finds it.
    pub async fn ask(
        &self,
        asker: &Asker,
        question: &Question,
    ) -> Result<QuestionAnswer, AskError> {
        let context = &self.context;
        check_shape(question)?;
        if !context.approvals.synced() {
            return Err(AskError::NotSynced);
        }
        context
            .approvals
            .note_question(&asker.pod_uid, &question.id);
        let key = ObjectRef::new(
            &*asker.agent.namespace,
            name(&asker.agent.name, &question.id),
        );
        if let Some(known) = context.approvals.get(&key) {
            return existing(&known, asker, question);
        }
        if context.approvals.was_deleted(&key) {
            let message =
                "was asked about before, and somebody deleted its ToolApproval".to_owned();
            return Ok(refused(QuestionRefusal::NotGranted, message));
        }
        let of_agent = context.approvals.requirements(&asker.agent);
        let of_agent = of_agent.ok_or(AskError::NotCompiled)?;
        let requirements = match of_agent.for_question(question) {
            Ok(requirements) => requirements,
            Err(message) => return Ok(refused(QuestionRefusal::NotGranted, message)),
        };
        check_digest(asker, question)?;
        if context.approvals.is_denied(&asker.agent, Timestamp::now()) {
            let message = "needs an approval, and persons have denied several calls of the agent within an hour";
            return Ok(refused(QuestionRefusal::TooManyDenied, message.to_owned()));
        }
        self.checks.fresh().await;
        match context.approvals.protection() {
            Protection::Holds => {}
            Protection::Unknown => return Err(AskError::Unavailable),
            Protection::Missing(why) => {
                let message =
                    format!("cannot be approved, since no decision could be trusted: {why}");
                return Ok(refused(QuestionRefusal::NotProtected, message));
            }
        }
        let arguments = escaped(&question.arguments);
        let entry = Entry {
            pod: asker.pod_uid.clone(),
            agent: asker.agent.clone(),
            bytes: arguments.len(),
        };
        if let Err(full) = context.approvals.reserve(&key, entry) {
            return Ok(refused(QuestionRefusal::TooManyPending, full.message()));
        }
        let reservation = Reservation {
            approvals: &context.approvals,
            key: &key,
            is_kept: false,
        };
        self.wait(&asker.agent).await?;
        let approval = self.object(&key, asker, question, requirements, arguments)?;
        self.create(&approval, reservation, asker, question).await
    }

    /// Waits for a slot of the agent, and for one of all agents.
    async fn wait(&self, agent: &ObjectRef) -> Result<(), AskError> {
        let at = self.pace.lock().of_agent(agent, Instant::now());
        tokio::time::sleep_until(at.ok_or(AskError::Busy)?).await;
        let at = self.pace.lock().of_all(Instant::now());
        tokio::time::sleep_until(at.ok_or(AskError::Busy)?).await;
        Ok(())
    }

    async fn create(
        &self,
        approval: &ToolApproval,
        mut reservation: Reservation<'_>,
        asker: &Asker,
        question: &Question,
    ) -> Result<QuestionAnswer, AskError> {
        let context = &self.context;
        let key = reservation.key;
        let leads = || context.leading();
        let writer = Writer {
            client: &context.client,
            leads: &leads,
        };
        let created = tokio::time::timeout(CREATE, writer.create(key, approval)).await;
        let answer = match created {
            Ok(Ok(created)) => {
                context.metrics.wrote("ToolApproval", "create");
                reservation.is_kept = true;
                notify::asked(context, &created).await;
                existing(&created, asker, question)
            }
            Ok(Err(WriteError::NotLeading)) => Err(AskError::NotLeading),
            Ok(Err(WriteError::Exists(_))) => {
                // An earlier leader created it, or this one, and the watch has not delivered it.
                match tokio::time::timeout(CREATE, writer.read(key)).await {
                    Ok(Ok(Some(known))) => existing(&known, asker, question),
                    Ok(Ok(None) | Err(_)) | Err(_) => Err(AskError::Unavailable),
                }
            }
            Ok(Err(error)) => {
                let error = chain(&error);
                tracing::warn!(approval = %key, error, "ToolApproval not created");
                Err(AskError::Unavailable)
            }
            Err(_) => {
                tracing::warn!(approval = %key, "creation of the ToolApproval timed out");
                // It may exist all the same.
                reservation.is_kept = true;
                let work = ApprovalWork(key.clone());
                context.approval_queue.add_after(work, UNCERTAIN);
                Err(AskError::Unavailable)
            }
        };
        // A report that is on its way may be older than the ToolApproval.
        context
            .approvals
            .note_question(&asker.pod_uid, &question.id);
        answer
    }

    /// The ToolApproval of a question. Its times are those of this leader's clock, so that a pod on a node
    /// with another time cannot be asked for longer.
    fn object(
        &self,
        key: &ObjectRef,
        asker: &Asker,
        question: &Question,
        requirements: CallRequirements,
        arguments: String,
    ) -> Result<ToolApproval, AskError> {
        let agents = &self.context.stores.agents;
        let agent = agents.get(&asker.agent.namespace, &asker.agent.name);
        let agent = agent.ok_or(AskError::NotCompiled)?;
        let uid = agent.id().uid.ok_or(AskError::NotCompiled)?.to_owned();
        let now = Timestamp::now();
        let open = Duration::from_millis(question.open_for_ms).clamp(SHORTEST_OPEN, LONGEST_OPEN);
        let open = SignedDuration::try_from(open).unwrap_or(SignedDuration::from_hours(1));
        let second = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
        let metadata = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(BTreeMap::from([(
                names::MANAGED_BY_LABEL.to_owned(),
                names::FIELD_MANAGER.to_owned(),
            )])),
            owner_references: Some(vec![OwnerReference {
                api_version: Agent::api_version(&()).into_owned(),
                kind: Agent::kind(&()).into_owned(),
                name: asker.agent.name.clone(),
                uid: uid.clone(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        };
        let spec = ToolApprovalSpec {
            agent: ObjectIdentity {
                name: asker.agent.name.clone(),
                uid,
            },
            pod: ObjectIdentity {
                name: asker.pod.clone(),
                uid: asker.pod_uid.clone(),
            },
            tool: question.tool.clone(),
            tier: tier(requirements.tier),
            arguments,
            redacted: question
                .redacted
                .iter()
                .map(|pointer| cut(pointer, LONGEST_POINTER).into_owned())
                .collect(),
            call_digest: question.call_digest.clone(),
            entry_digest: question.entry.clone(),
            rules: requirements.rules,
            policies: requirements.policies,
            requested_at: Time(second(now)),
            expires_at: Time(second(now + open)),
            request_id: question.id.clone(),
        };
        Ok(ToolApproval {
            metadata,
            spec,
            status: None,
        })
    }
}

/// A question that counts as open while its ToolApproval is being created.
struct Reservation<'a> {
    approvals: &'a Approvals,
    key: &'a ObjectRef,
    /// The question still counts when this value is dropped.
    is_kept: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.approvals.release(self.key);
        }
    }
}

/// The answer about a ToolApproval that exists.
fn existing(
    known: &StoredApproval,
    asker: &Asker,
    question: &Question,
) -> Result<QuestionAnswer, AskError> {
    let is_same = known.body.as_deref().is_some_and(|body| {
        body.request_id == question.id
            && body.call_digest == question.call_digest
            && body.pod.uid == asker.pod_uid
    });
    if !is_same {
        tracing::error!(approval = %known.key(), "another question has the name of this one");
        return Err(AskError::Unavailable);
    }
    Ok(QuestionAnswer::Asked(ApprovalRef {
        name: known.key().name,
        uid: known.uid().to_owned(),
    }))
}

fn refused(why: QuestionRefusal, message: String) -> QuestionAnswer {
    QuestionAnswer::Refused { why, message }
}

fn check_shape(question: &Question) -> Result<(), AskError> {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let is_id = question.id.len() == ID && question.id.chars().all(is_hex);
    let is_short = |text: &str, longest: usize| !text.is_empty() && text.len() <= longest;
    let is_digest = |text: &str| is_short(text, LONGEST_DIGEST);
    let is_bounded = is_short(&question.tool, LONGEST_TOOL)
        && is_digest(&question.call_digest)
        && is_digest(&question.entry)
        && question.arguments.len() <= LONGEST_QUESTION_ARGUMENTS
        && question.rules.len() <= MOST_ASKING_RULES
        && question.redacted.len() <= MOST_REDACTED;
    let is_json = is_bounded && serde_json::from_str::<IgnoredAny>(&question.arguments).is_ok();
    (is_id && is_json).then_some(()).ok_or(AskError::Malformed)
}

/// Checks that the digest is that of the arguments that persons are shown. It cannot be checked if a
/// known secret was replaced, which `redacted` says.
fn check_digest(asker: &Asker, question: &Question) -> Result<(), AskError> {
    let call = CallIdentity {
        question: &question.id,
        namespace: &asker.agent.namespace,
        agent: &asker.agent.name,
        pod: &asker.pod_uid,
        tool: &question.tool,
        entry: &question.entry,
        arguments: &question.arguments,
    };
    let is_of_call = !question.redacted.is_empty() || call.digest() == question.call_digest;
    is_of_call.then_some(()).ok_or(AskError::Malformed)
}

fn tier(tier: manifest::Tier) -> Tier {
    match tier {
        manifest::Tier::ReadOnly => Tier::ReadOnly,
        manifest::Tier::Workspace => Tier::Workspace,
        manifest::Tier::System => Tier::System,
        manifest::Tier::Elevated => Tier::Elevated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker() -> Asker {
        Asker {
            pod: "otter-0".into(),
            pod_uid: "uid-otter-0".into(),
            agent: ObjectRef::new("pond", "otter"),
        }
    }

    fn question() -> Question {
        let mut question = Question {
            id: "00112233445566778899aabbccddeeff".into(),
            call_digest: String::new(),
            tool: "kelp.dive".into(),
            entry: "v1:entry".into(),
            arguments: r#"{"depth":40}"#.into(),
            redacted: Vec::new(),
            rules: Vec::new(),
            asked_at: String::new(),
            open_for_ms: 1,
        };
        question.call_digest = CallIdentity {
            question: &question.id,
            namespace: "pond",
            agent: "otter",
            pod: "uid-otter-0",
            tool: &question.tool,
            entry: &question.entry,
            arguments: &question.arguments,
        }
        .digest();
        question
    }

    #[track_caller]
    fn refuse(change: impl FnOnce(&mut Question)) {
        let mut question = question();
        change(&mut question);
        let checked = check_shape(&question).and_then(|()| check_digest(&asker(), &question));
        assert_eq!(checked, Err(AskError::Malformed));
    }

    #[test]
    fn a_question_is_about_the_arguments_that_it_shows() {
        let question = question();
        let checked = check_shape(&question).and_then(|()| check_digest(&asker(), &question));
        assert_eq!(checked, Ok(()));
        refuse(|it| it.arguments = r#"{"depth":41}"#.into());
        refuse(|it| it.tool = "kelp.cut".into());
        refuse(|it| it.entry = "v1:other".into());
        refuse(|it| it.id = it.id.replace('0', "1"));
        refuse(|it| it.call_digest = "c1:00".into());
    }

    #[test]
    fn a_question_of_another_shape_is_refused() {
        refuse(|it| it.id = "../../secrets".into());
        refuse(|it| it.id = it.id.to_uppercase());
        refuse(|it| it.arguments = "{".into());
        refuse(|it| it.arguments = "[".repeat(200) + &"]".repeat(200));
        refuse(|it| it.arguments = format!("\"{}\"", "x".repeat(LONGEST_QUESTION_ARGUMENTS)));
        refuse(|it| it.tool = String::new());
        refuse(|it| it.redacted = vec![String::new(); MOST_REDACTED + 1]);
    }
}
