//! Conditions: one verdict each, and when it last changed.
//!
//! Here: building a condition and putting it among the others, and the two that every kind
//! but Agent has. Not here: what an Agent's say.
//!
//! Invariant: a condition that says the same stays as it is, with its time.

use std::collections::BTreeMap;

use crate::objects::decode::Undecodable;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use toolcrib_compile::{Code, Diagnostic, ObjectRef, Subject, not_accepted, not_resolved};
use toolcrib_crds::{ConditionStatus, ConditionType, ReasonName, StateReason, condition, set};

/// Status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict(
    pub(super) ConditionStatus,
    pub(super) ReasonName,
    pub(super) String,
);

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

/// The API server keeps whole seconds; more would make an unchanged status differ.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// `Kind namespace/name: field: what is wrong`.
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

/// Right, or not for what was found.
pub(super) fn verdict_on(found: Option<&Diagnostic>, right: StateReason) -> Verdict {
    match found {
        Some(found) => verdict(ConditionStatus::False, code(found.code), sentence(found)),
        None => verdict(ConditionStatus::True, right, ""),
    }
}

/// `Accepted` and `Resolved`, from what was found about the object itself.
pub(super) fn own_conditions(
    mut conditions: Vec<Condition>,
    subject: &Subject,
    diagnostics: &[Diagnostic],
    unread: Option<&BTreeMap<ObjectRef, String>>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let accepted = verdict_on(not_accepted(diagnostics, subject), StateReason::Accepted);
    let unread = unread.and_then(BTreeMap::first_key_value);
    let resolved = match (not_resolved(diagnostics, subject), unread) {
        // Not False, since the Secret may be as it should be.
        (None, Some((secret, why))) => verdict(
            ConditionStatus::Unknown,
            code(Code::SecretUnknown),
            format!("Secret {secret} could not be read: {why}"),
        ),
        (found, _) => verdict_on(found, StateReason::Resolved),
    };
    for (type_, verdict) in [
        (ConditionType::Accepted, accepted),
        (ConditionType::Resolved, resolved),
    ] {
        put(&mut conditions, type_, verdict, generation, now);
    }
    conditions
}

/// The one condition that can be given for an object that cannot be read. `before`: the conditions
/// that its status has.
pub fn undecodable(
    before: &[Condition],
    why: &Undecodable,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    conditions.retain(|condition| condition.type_ == ConditionType::Accepted.as_str());
    let what = if why.is_too_expensive() {
        "it is over a memory budget"
    } else {
        "it cannot be read as its kind"
    };
    let state = verdict(
        ConditionStatus::False,
        code(why.code),
        format!("{what}, so it gives nothing: {}", why.reason),
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

/// The conditions of a status with one that says that the operator failed on the object: what it
/// was compiled to stands, and nobody knows what it should be.
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
pub const INTERNAL_ERROR: &str = "the operator failed on this object, by a mistake of its own, and tries again: what was in force before stays, and all other objects go on; please report it with the operator's log";

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Diagnostics, Kind};

    use super::*;

    #[test]
    fn an_object_whose_secret_could_not_be_read_is_not_resolved() {
        let now = Timestamp::UNIX_EPOCH;
        let secret = ObjectRef::new("pond", "keys");
        let subject = Subject::new(Kind::Surface, &ObjectRef::new("pond", "reed"));
        let resolved = |found: &[Diagnostic], unread: &BTreeMap<ObjectRef, String>| {
            let all = own_conditions(Vec::new(), &subject, found, Some(unread), Some(1), now);
            let Condition {
                status,
                reason,
                message,
                ..
            } = &all[1];
            format!("{status} {reason} {message}")
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

    #[test]
    fn an_internal_error_replaces_one_condition_and_leaves_the_others() {
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
