//! `approve` and `deny`: one person's decision about one exact call.
//!
//! The decision names the user as the API server knows them, and the digest of the call that was printed.
//! The operator says whether it counts.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use toolcrib_compile::ObjectRef;
use toolcrib_compile::approval::Requirements;
use toolcrib_crds::{
    ApprovalPhase, ConditionType, DecisionVerdict, HasConditions as _, ObjectIdentity,
    ToolApproval, ToolDecisionSpec, UserIdentity,
};

use super::{say, shown};
use crate::args::{ClusterArgs, DecideArgs, OperatorArgs};
use crate::cluster::{Session, WithoutCluster};
use crate::failure::Failure;
use crate::print;

/// Time for the operator to say whether a decision counts.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn approve(args: &DecideArgs) -> Result<ExitCode, Failure> {
    decide(args, DecisionVerdict::Approve)
}

pub fn deny(args: &DecideArgs) -> Result<ExitCode, Failure> {
    decide(args, DecisionVerdict::Deny)
}

fn decide(args: &DecideArgs, verdict: DecisionVerdict) -> Result<ExitCode, Failure> {
    let cluster = ClusterArgs {
        namespace: args.namespace.clone(),
        all_namespaces: false,
        connection: args.connection.clone(),
    };
    let session = Session::open(&cluster, &OperatorArgs::default(), WithoutCluster::Nothing)?;
    let key = ObjectRef::new(session.default_namespace(), &*args.approval);
    let approval = session.approval(&key)?;
    say(&shown::whole(&approval, Timestamp::now()))?;
    let user = identity(&session, &approval)?;
    if let Some(why) = pointless(&key, &approval, &user) {
        return Err(Failure::Failed(anyhow::anyhow!("{why}")));
    }
    let spec = ToolDecisionSpec {
        approval: ObjectIdentity {
            name: key.name.clone(),
            uid: approval.metadata.uid.clone().unwrap_or_default(),
        },
        call_digest: approval.spec.call_digest.clone(),
        verdict,
        reason: args.reason.clone(),
        decided_by: user,
    };
    let decision = session.decide(&key.namespace, spec)?;
    let name = decision.metadata.name.unwrap_or_default();
    let decision = ObjectRef::new(key.namespace.clone(), name);
    let counted = session.counted(&decision, Instant::now() + PATIENCE)?;
    let (line, code) = match counted {
        None => (unconfirmed(&decision), 1),
        Some(counted) if counted.status == "True" => {
            let approval = session.approval(&key)?;
            (counts(&key, verdict, &approval), 0)
        }
        Some(counted) => (does_not_count(&key, &counted), 1),
    };
    say(&format!("{}\n", print::plain(&line)))?;
    Ok(ExitCode::from(code))
}

/// The user, with the groups by which they may decide and no others.
fn identity(session: &Session, approval: &ToolApproval) -> Result<UserIdentity, Failure> {
    let user = session.user()?;
    let groups = user.groups.unwrap_or_default();
    let groups = Requirements::of(&approval.spec).groups_of(&groups);
    Ok(UserIdentity {
        username: user.username.unwrap_or_default(),
        uid: user.uid.filter(|uid| !uid.is_empty()),
        groups: groups.into_iter().map(str::to_owned).collect(),
    })
}

/// Returns why a decision of this user could not count.
fn pointless(key: &ObjectRef, approval: &ToolApproval, user: &UserIdentity) -> Option<String> {
    let phase = shown::phase(approval);
    if phase != ApprovalPhase::Pending.name() {
        return Some(format!(
            "ToolApproval {key} is {phase} already; nothing is written"
        ));
    }
    let requirements = Requirements::of(&approval.spec);
    (!requirements.admit(&user.username, &user.groups)).then(|| {
        format!(
            "you are {}, and may not decide about ToolApproval {key}, which needs {requirements}; nothing is written",
            user.username
        )
    })
}

fn unconfirmed(decision: &ObjectRef) -> String {
    format!(
        "ToolDecision {decision} is created; the operator has not said in {} s whether it counts: `kubectl get tooldecision {} -n {}` shows COUNTED; if it stays empty, see whether the operator runs",
        PATIENCE.as_secs(),
        decision.name,
        decision.namespace
    )
}

fn counts(key: &ObjectRef, verdict: DecisionVerdict, approval: &ToolApproval) -> String {
    let what = match verdict {
        DecisionVerdict::Approve => "approval",
        DecisionVerdict::Deny => "denial",
    };
    let mut conditions = approval.conditions().iter();
    let is_decided =
        conditions.any(|it| it.type_ == ConditionType::Decided.as_str() && it.status == "True");
    let phase = shown::phase(approval);
    match (verdict, is_decided) {
        (DecisionVerdict::Approve, false) => format!(
            "your approval counts, and others are needed besides: ToolApproval {key} needs {}",
            Requirements::of(&approval.spec)
        ),
        (DecisionVerdict::Approve | DecisionVerdict::Deny, true) => {
            format!("your {what} counts: ToolApproval {key} is {phase}")
        }
        (DecisionVerdict::Deny, false) => format!("your {what} counts"),
    }
}

fn does_not_count(key: &ObjectRef, counted: &Condition) -> String {
    let Condition {
        reason, message, ..
    } = counted;
    let why = match message.is_empty() {
        true => reason.clone(),
        false => format!("{reason}: {message}"),
    };
    format!("your decision about ToolApproval {key} does not count: {why}")
}
