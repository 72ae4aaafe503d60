//! ToolApprovals for people.
//!
//! Invariant: arguments are shortened in the list alone, never where a person decides by them.

use jiff::{Timestamp, Unit};
use toolcrib_bounds::cut;
use toolcrib_compile::approval::Requirements;
use toolcrib_crds::{
    ApprovalPhase, ConditionType, DecisionVerdict, HasConditions as _, ToolApproval,
};

use crate::print::{self, labelled};

/// Limits the bytes of the arguments in a line of the list.
const SHORT: usize = 60;

/// Pending ones first, then those that were asked last.
pub fn order(approval: &ToolApproval) -> (bool, std::cmp::Reverse<Timestamp>) {
    let is_pending = phase(approval) == ApprovalPhase::Pending.name();
    (!is_pending, std::cmp::Reverse(approval.spec.requested_at.0))
}

pub fn phase(approval: &ToolApproval) -> String {
    let phase = approval.status.as_ref().and_then(|status| status.phase);
    phase.unwrap_or(ApprovalPhase::Pending).name().to_owned()
}

pub fn table(approvals: &[ToolApproval], with_namespace: bool, now: Timestamp) -> String {
    const HEADER: [&str; 7] = [
        "NAMESPACE",
        "NAME",
        "AGENT",
        "TOOL",
        "PHASE",
        "EXPIRES",
        "ARGUMENTS",
    ];
    let rows: Vec<Vec<String>> = approvals
        .iter()
        .map(|approval| cells(approval, with_namespace, now))
        .collect();
    print::table(&HEADER[usize::from(!with_namespace)..], &rows)
}

/// One line of the list, for a list that goes on.
pub fn line(approval: &ToolApproval, with_namespace: bool, now: Timestamp) -> String {
    print::columns(&[cells(approval, with_namespace, now)])
}

fn cells(approval: &ToolApproval, with_namespace: bool, now: Timestamp) -> Vec<String> {
    let metadata = &approval.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let spec = &approval.spec;
    let decided_by = approval
        .status
        .as_ref()
        .and_then(|it| it.decided_by.as_ref());
    let phase = match decided_by.filter(|names| !names.is_empty()) {
        Some(names) => format!("{} by {names}", phase(approval)),
        None => phase(approval),
    };
    let mut cells = vec![
        text(&metadata.namespace),
        text(&metadata.name),
        spec.agent.name.clone(),
        spec.tool.clone(),
        phase,
        left(spec.expires_at.0, now),
        cut(&spec.arguments, SHORT).into_owned(),
    ];
    if !with_namespace {
        cells.remove(0);
    }
    cells
}

/// `in 42m`, or `over`.
fn left(end: Timestamp, now: Timestamp) -> String {
    let seconds = end
        .since(now)
        .ok()
        .and_then(|left| left.total(Unit::Second).ok());
    match seconds.unwrap_or(0.0) {
        left if left <= 0.0 => "over".to_owned(),
        left if left < 120.0 => format!("in {left:.0}s"),
        left => format!("in {:.0}m", left / 60.0),
    }
}

/// Everything by which a person decides.
pub fn whole(approval: &ToolApproval, now: Timestamp) -> String {
    let spec = &approval.spec;
    let metadata = &approval.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut lines = vec![
        labelled("approval", &format!("{namespace}/{name}")),
        labelled("agent", &spec.agent.name),
        labelled(
            "pod",
            &format!("{}: the approval ends with this pod", spec.pod.name),
        ),
        labelled("tool", &format!("{} ({})", spec.tool, print_tier(approval))),
        labelled("phase", &phase_line(approval)),
        labelled("asked", &spec.requested_at.0.to_string()),
        labelled(
            "expires",
            &format!("{}, {}", spec.expires_at.0, left(spec.expires_at.0, now)),
        ),
        labelled("needs", &Requirements::of(spec).to_string()),
    ];
    let counted = approval.status.iter().flat_map(|status| &status.decisions);
    lines.extend(counted.map(|decision| {
        let verdict = match decision.verdict {
            DecisionVerdict::Approve => "approved by",
            DecisionVerdict::Deny => "denied by",
        };
        let reason = match decision.reason.is_empty() {
            true => String::new(),
            false => format!(": {}", decision.reason),
        };
        labelled(
            "decision",
            &format!(
                "{verdict} {} at {}{reason}",
                decision.username, decision.at.0
            ),
        )
    }));
    lines.extend(print::call_arguments(&spec.arguments, &spec.redacted));
    let lines: Vec<_> = lines.iter().map(|line| print::plain(line)).collect();
    lines.join("\n") + "\n"
}

fn print_tier(approval: &ToolApproval) -> &'static str {
    toolcrib_manifest::Tier::from(approval.spec.tier).name()
}

fn phase_line(approval: &ToolApproval) -> String {
    let mut conditions = approval.conditions().iter();
    let decided = conditions.find(|it| it.type_ == ConditionType::Decided.as_str());
    match decided.filter(|condition| !condition.message.is_empty()) {
        Some(condition) => format!("{}: {}", phase(approval), condition.message),
        None => phase(approval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_shown_in_words() {
        let now: Timestamp = "2026-11-27T09:00:00Z".parse().unwrap();
        for (end, expected) in [
            ("2026-11-27T09:42:10Z", "in 42m"),
            ("2026-11-27T09:01:30Z", "in 90s"),
            ("2026-11-27T09:00:00Z", "over"),
            ("2026-11-27T08:00:00Z", "over"),
        ] {
            assert_eq!(left(end.parse().unwrap(), now), expected);
        }
    }
}
