//! The suspension of an agent, as its compiled files carry it.

use std::borrow::Cow;

use toolcrib_bounds::{cut, is_hidden};
use toolcrib_crds::Agent;
use toolcrib_manifest::Suspension;

use crate::{Code, Diagnostics, Kind, ObjectRef, Subject, names};

/// Limits the bytes of a suspension's reason.
pub const MAX_SUSPEND_REASON: usize = 256;

/// Returns a suspension's reason as users read it: one line of visible characters, cut at
/// [`MAX_SUSPEND_REASON`]. The same text if it is one already.
pub fn suspend_reason(text: &str) -> Cow<'_, str> {
    let separates = |c: char| c.is_whitespace() || c.is_control() || is_hidden(c);
    let is_line = !text.contains(|c: char| c != ' ' && separates(c));
    if is_line && text.len() <= MAX_SUSPEND_REASON && text.trim_matches(' ').len() == text.len() {
        return Cow::Borrowed(text);
    }
    let words: Vec<&str> = text
        .split(separates)
        .filter(|word| !word.is_empty())
        .collect();
    Cow::Owned(cut(&words.join(" "), MAX_SUSPEND_REASON).into_owned())
}

/// Returns the suspension of an agent, and reports it. `None`: the agent is not suspended.
pub(crate) fn suspension(
    key: &ObjectRef,
    agent: &Agent,
    found: &mut Diagnostics,
) -> Option<Suspension> {
    if !agent.spec.is_suspended() {
        return None;
    }
    let annotations = agent.metadata.annotations.as_ref();
    let written = annotations.and_then(|all| all.get(names::SUSPEND_REASON_ANNOTATION));
    let reason = written.map(|written| suspend_reason(written));
    let subject = Subject::new(Kind::Agent, key);
    if let (Some(written), Some(reason)) = (written, &reason)
        && written != reason
    {
        found.add(
            &subject,
            format!("metadata.annotations[{}]", names::SUSPEND_REASON_ANNOTATION),
            Code::SuspendReasonCut,
            format!(
                "is not one line of at most {MAX_SUSPEND_REASON} bytes: write one short line; users read {reason:?}"
            ),
        );
    }
    let reason = reason.map(Cow::into_owned).filter(|it| !it.is_empty());
    let suspension = Suspension { reason };
    found.add(
        &subject,
        "spec.suspend",
        Code::AgentSuspended,
        format!(
            "{}: `kubectl toolcrib resume agent/{} -n {}` gives it back",
            sentence(key, &suspension),
            key.name,
            key.namespace
        ),
    );
    Some(suspension)
}

/// `agent pond/otter is suspended (REASON): serves nothing`.
pub(crate) fn sentence(agent: &ObjectRef, suspension: &Suspension) -> String {
    match &suspension.reason {
        Some(reason) => format!("agent {agent} is suspended ({reason}): it serves nothing"),
        None => format!("agent {agent} is suspended: it serves nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
        let line = "runaway loop, see INC-7";
        assert!(matches!(suspend_reason(line), Cow::Borrowed(same) if same == line));
        assert_eq!(suspend_reason(" runaway\n\tloop\u{202e} "), "runaway loop");
        assert_eq!(suspend_reason("\n"), "");
        let long = suspend_reason(&"é".repeat(200)).into_owned();
        assert!(
            long.len() <= MAX_SUSPEND_REASON && long.ends_with(" …"),
            "{long}"
        );
    }
}
