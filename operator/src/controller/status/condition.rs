//! Builds conditions and sets them in a status.
//!
//! Here: a single condition, and the conditions that every kind except Agent has. Not here: the
//! conditions of Agents.
//!
//! Invariant: an unchanged condition keeps its transition time.

use std::collections::BTreeMap;

use crate::objects::decode::Undecodable;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use toolcrib_compile::{
    Code, Diagnostic, ObjectRef, Severity, Subject, not_accepted, not_resolved,
};
use toolcrib_crds::{ConditionStatus, ConditionType, ReasonName, StateReason, condition, set};

/// Status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict(
    pub(super) ConditionStatus,
    pub(super) ReasonName,
    pub(super) String,
);

impl Verdict {
    pub(super) fn is_false(&self) -> bool {
        self.0 == ConditionStatus::False
    }
}

pub(super) fn verdict(
    status: ConditionStatus,
    reason: impl Into<ReasonName>,
    message: impl Into<String>,
) -> Verdict {
    Verdict(status, reason.into(), message.into())
}

pub(super) fn code(code: Code) -> ReasonName {
    ReasonName(code.name())
}

pub(super) fn put(
    conditions: &mut Vec<Condition>,
    type_: ConditionType,
    Verdict(status, reason, message): Verdict,
    generation: Option<i64>,
    now: Timestamp,
) {
    let now = Time(whole_second(now));
    set(
        conditions,
        condition(type_, status, reason, message, generation, now),
    );
}

/// Truncates to whole seconds, like the API server. A fraction would make an unchanged status
/// differ.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// A diagnostic as text: `Kind namespace/name: field: message`.
pub fn sentence(diagnostic: &Diagnostic) -> String {
    let Diagnostic {
        object,
        field,
        message,
        ..
    } = diagnostic;
    if field.is_empty() {
        format!("{object}: {message}")
    } else {
        format!("{object}: {field}: {message}")
    }
}

/// False for a diagnostic; True with the reason `good` if there is none.
pub(super) fn verdict_on(found: Option<&Diagnostic>, good: StateReason) -> Verdict {
    match found {
        Some(found) => verdict(ConditionStatus::False, code(found.code), sentence(found)),
        None => verdict(ConditionStatus::True, good, ""),
    }
}

/// `Accepted` and `Resolved`, from the diagnostics of the object itself, and `Ready`: both are
/// True. Tools like Argo CD and Flux read `Ready`.
pub(super) fn own_conditions(
    mut conditions: Vec<Condition>,
    subject: &Subject,
    diagnostics: &[Diagnostic],
    unread: Option<&BTreeMap<ObjectRef, String>>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let accepted = match not_accepted(diagnostics, subject) {
        Some(found) => verdict_on(Some(found), StateReason::Accepted),
        None => verdict(
            ConditionStatus::True,
            StateReason::Accepted,
            warnings(diagnostics, subject).unwrap_or_default(),
        ),
    };
    let unread = unread.and_then(BTreeMap::first_key_value);
    let resolved = match (not_resolved(diagnostics, subject), unread) {
        // Unknown and not False, since the Secret may be correct.
        (None, Some((secret, why))) => verdict(
            ConditionStatus::Unknown,
            code(Code::SecretUnknown),
            format!("Secret {secret} could not be read: {why}"),
        ),
        (found, _) => verdict_on(found, StateReason::Resolved),
    };
    let ready = [&accepted, &resolved]
        .into_iter()
        .find(|Verdict(status, ..)| *status != ConditionStatus::True)
        .cloned()
        .unwrap_or_else(|| verdict(ConditionStatus::True, StateReason::Ready, ""));
    for (type_, verdict) in [
        (ConditionType::Accepted, accepted),
        (ConditionType::Resolved, resolved),
        (ConditionType::Ready, ready),
    ] {
        put(&mut conditions, type_, verdict, generation, now);
    }
    conditions
}

/// The number of warnings about the object itself, and the first of them. The Events have the rest.
fn warnings(diagnostics: &[Diagnostic], subject: &Subject) -> Option<String> {
    let mut warnings = diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Warning && found.object == *subject);
    let first = sentence(warnings.next()?);
    match warnings.count() {
        0 => Some(format!("1 warning: {first}")),
        more => Some(format!("{} warnings; first: {first}", more + 1)),
    }
}

/// The conditions `Accepted` and `Ready` of an object that cannot be decoded or is over a budget; it
/// has no others. `before`: the conditions of its status.
pub fn undecodable(
    before: &[Condition],
    why: &Undecodable,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    const KEPT: [ConditionType; 2] = [ConditionType::Accepted, ConditionType::Ready];
    conditions.retain(|condition| KEPT.iter().any(|kept| condition.type_ == kept.as_str()));
    let problem = if why.is_too_expensive() {
        "over a memory budget"
    } else {
        "cannot be decoded"
    };
    let state = verdict(
        ConditionStatus::False,
        code(why.code),
        format!("object ignored, {problem}: {}", why.reason),
    );
    for type_ in KEPT {
        put(&mut conditions, type_, state.clone(), generation, now);
    }
    conditions
}

/// Sets the condition of an internal error. The objects compiled earlier stay in force.
pub fn internal_error(
    mut conditions: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let state = verdict(
        ConditionStatus::Unknown,
        StateReason::InternalError,
        INTERNAL_ERROR,
    );
    put(
        &mut conditions,
        ConditionType::Accepted,
        state,
        generation,
        now,
    );
    conditions
}

/// The message of the condition and the Event after an internal error.
pub const INTERNAL_ERROR: &str = "internal error of the operator on this object, retried: the earlier result stays in force, and other objects are not affected; please report it with the operator's log";

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Diagnostics, Kind};

    use super::*;

    #[test]
    fn resolved_is_unknown_while_a_secret_cannot_be_read() {
        let now = Timestamp::UNIX_EPOCH;
        let secret = ObjectRef::new("pond", "keys");
        let subject = Subject::new(Kind::Surface, &ObjectRef::new("pond", "reed"));
        let resolved = |found: &[Diagnostic], unread: &BTreeMap<ObjectRef, String>| {
            let all = own_conditions(Vec::new(), &subject, found, Some(unread), Some(1), now);
            let shown = |condition: &Condition| {
                let Condition {
                    status,
                    reason,
                    message,
                    ..
                } = condition;
                format!("{status} {reason} {message}")
            };
            let (resolved, ready) = (shown(&all[1]), shown(&all[2]));
            match resolved.starts_with("True") {
                true => assert_eq!(ready, "True Ready "),
                false => assert_eq!(ready, resolved),
            }
            resolved
        };
        let unread = BTreeMap::from([(secret, "namespace pond is not served".to_owned())]);
        assert_eq!(resolved(&[], &BTreeMap::new()), "True Resolved ");
        assert_eq!(
            resolved(&[], &unread),
            "Unknown SecretUnknown Secret pond/keys could not be read: namespace pond is not served"
        );
        let mut found = Diagnostics::default();
        found.add(
            &subject,
            "spec.service",
            Code::ServiceNotFound,
            "is missing",
        );
        assert_eq!(
            resolved(&found.into_sorted(), &unread),
            "False ServiceNotFound Surface pond/reed: spec.service: is missing"
        );
    }

    /// Tools in a descriptor of an earlier version are ignored: the Surface is accepted without them.
    #[test]
    fn accepted_has_the_first_warning() {
        let subject = Subject::new(Kind::Surface, &ObjectRef::new("pond", "reed"));
        let other = Subject::new(Kind::Agent, &ObjectRef::new("pond", "otter"));
        let accepted = |fields: &[(&Subject, &str)]| {
            let mut found = Diagnostics::default();
            for (subject, field) in fields {
                let message = "is ignored: set version: 2";
                found.add(subject, *field, Code::DescriptorFieldIgnored, message);
            }
            let found = found.into_sorted();
            let now = Timestamp::UNIX_EPOCH;
            let mut all = own_conditions(Vec::new(), &subject, &found, None, Some(1), now);
            let accepted = all.swap_remove(0);
            format!("{} {}", accepted.status, accepted.message)
        };
        assert_eq!(accepted(&[(&other, "spec")]), "True ");
        assert_eq!(
            accepted(&[(&subject, "tools")]),
            "True 1 warning: Surface pond/reed: tools: is ignored: set version: 2"
        );
        assert_eq!(
            accepted(&[(&subject, "mcp"), (&subject, "tools")]),
            "True 2 warnings; first: Surface pond/reed: mcp: is ignored: set version: 2"
        );
    }

    #[test]
    fn an_internal_error_replaces_accepted_only() {
        let now = Timestamp::UNIX_EPOCH;
        let mut before = Vec::new();
        for type_ in [ConditionType::Accepted, ConditionType::Ready] {
            let state = verdict(ConditionStatus::True, StateReason::Ready, "");
            put(&mut before, type_, state, Some(1), now);
        }
        let after = internal_error(before.clone(), Some(2), now);
        assert_eq!(after[1], before[1]);
        assert_eq!(
            (&*after[0].type_, &*after[0].status, &*after[0].reason),
            ("Accepted", "Unknown", "InternalError")
        );
        assert_eq!(internal_error(after.clone(), Some(2), now), after);
    }
}
