//! The answer as text.

use toolcrib_bounds::cut;
use toolcrib_manifest::names::MAX_POLICIES;

use super::Answer;
use super::grant::GrantState;
use crate::args::WhyArgs;
use crate::print;
use crate::record::Outcome;

/// Longest arguments that are shown, in bytes.
const SHOWN: usize = 500;

pub(super) fn text(answer: &Answer, args: &WhyArgs) -> String {
    let mut lines = call_lines(answer);
    lines.extend(grant_lines(answer));
    lines.extend(policies(answer).map(|policies| ("policies", policies)));
    let credential = answer.credential.iter();
    lines.extend(credential.map(|kind| ("credential", kind.clone())));
    lines.extend(writer_lines(answer, args));
    lines.extend(answer.to_allow.iter().map(|why| ("to allow", why.clone())));
    lines
        .into_iter()
        .map(|(name, value)| format!("{name:<12}{}\n", print::plain(&value)))
        .collect()
}

/// The ClusterToolPolicies that matched the agent by the record, and those of now if they are others.
/// Lines of earlier releases name none.
fn policies(answer: &Answer) -> Option<String> {
    let words = |names: &[String]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    match (&answer.call.policies, &answer.policies) {
        (None, None) => None,
        (None, Some(now)) => Some(format!("{} now", words(now))),
        (Some(then), None) => Some(format!("{} in the record", words(then))),
        (Some(then), Some(now)) if now.iter().take(MAX_POLICIES).eq(then) => Some(words(now)),
        (Some(then), Some(now)) => {
            Some(format!("{} in the record, {} now", words(then), words(now)))
        }
    }
}

type TextLine = (&'static str, String);

fn call_lines(answer: &Answer) -> Vec<TextLine> {
    let call = &answer.call;
    let agent = match call.namespace.is_empty() {
        true => call.agent.clone(),
        false => format!("{}/{}", call.namespace, call.agent),
    };
    let mut outcome = match (&call.code, call.outcome) {
        (Some(code), Outcome::Denied) => format!("denied: {code}"),
        (Some(code), _) => code.clone(),
        (None, outcome) => outcome.name().to_owned(),
    };
    if let Some(ms) = call.latency_ms.filter(|_| call.executed == Some(true)) {
        outcome += &format!(" after {ms} ms");
    }
    if let Some(message) = &call.message {
        outcome += &format!(": {message}");
    }
    let mut lines = vec![
        ("call", format!("{}: {}", call.call_id, call.tool)),
        (
            "made by",
            format!("agent {agent} in pod {}, at {}", call.pod, call.when),
        ),
        ("arguments", cut(call.arguments.get(), SHOWN).into_owned()),
        ("outcome", outcome),
    ];
    let settled = call.settled_by.iter();
    lines.extend(settled.map(|later| {
        let settled =
            format!("{later}, a later attempt with the same idempotency key that succeeded");
        ("settled by", settled)
    }));
    let would_deny = call.would_deny.iter();
    lines.extend(would_deny.map(|why| ("would deny", why.clone())));
    if let Some(approval) = &call.approval {
        let mut words = approval.words();
        if let Some(name) = &approval.name {
            words += &format!(" (ToolApproval {}/{name})", call.namespace);
        }
        if let Some(reason) = &approval.reason {
            words += &format!(": {reason}");
        }
        lines.push(("approval", words));
    }
    lines
}

fn grant_lines(answer: &Answer) -> Vec<TextLine> {
    let is_denied = answer.call.outcome == Outcome::Denied;
    let Some(grant) = &answer.grant else {
        let known = match is_denied {
            true => "nothing: no object gave the agent this tool",
            false => "not known: the record names no grant",
        };
        return vec![("allowed by", known.to_owned())];
    };
    let state = match grant.state {
        GrantState::Unchanged => "unchanged since the call",
        GrantState::Changed => {
            "changed since the call: it does not give the tool by the same rule now"
        }
        GrantState::Gone => "gone: the object does not exist now",
        GrantState::NotCompared => "not compared with the object of now",
    };
    let name = match answer.call.outcome {
        Outcome::Denied | Outcome::Waiting => "given by",
        Outcome::Ok | Outcome::Failed | Outcome::Unknown => "allowed by",
    };
    let state = match (is_denied, grant.state) {
        (true, GrantState::NotCompared) => String::new(),
        (_, _) => format!(", {state}"),
    };
    let mut lines = vec![(name, format!("{}{state}", grant.name()))];
    match (&grant.limits, &grant.rule) {
        (Some(limits), _) => lines.push(("rule", limits.clone())),
        (None, Some(digest)) => lines.push(("rule", digest.clone())),
        (None, None) => {}
    }
    lines
}

/// Who wrote the grant, as far as it is known.
fn writer_lines(answer: &Answer, args: &WhyArgs) -> Vec<TextLine> {
    if answer.grant.is_none() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let Some(place) = &answer.file {
        let commit = match &place.commit {
            Some(commit) => format!(
                ", commit {} of {} by {}: {}",
                commit.id, commit.time, commit.author, commit.subject
            ),
            None => String::new(),
        };
        lines.push(("in files", format!("{}:{}{commit}", place.path, place.line)));
    }
    for write in &answer.written {
        let time = write.time.as_deref().unwrap_or("an unknown time");
        lines.push((
            "written by",
            format!(
                "{}, {} at {time} (the program's own name, which proves nothing)",
                write.manager, write.operation
            ),
        ));
    }
    let is_committed = answer.file.as_ref().is_some_and(|it| it.commit.is_some());
    match &answer.user {
        Some(write) => {
            let impersonated = match &write.impersonated {
                Some(user) => format!(" as {user}"),
                None => String::new(),
            };
            let user = &write.user;
            let (verb, time) = (&write.verb, &write.time);
            lines.push((
                "user",
                format!("{user}{impersonated}, {verb} at {time} (the API server's audit log)"),
            ));
        }
        None if !args.audit_log.is_empty() => lines.push((
            "user",
            "not known: the audit log has no write of the grant before the call".to_owned(),
        )),
        None if !is_committed => lines.push((
            "user",
            "not known: --audit-log FILE (the API server's) names the user, --files PATH in a git checkout the author".to_owned(),
        )),
        None => {}
    }
    lines
}
