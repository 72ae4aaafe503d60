//! ToolApprovals for people.
//!
//! Invariant: arguments are shown as the object has them, escaped, and never shortened where a person
//! decides by them.

use jiff::{Timestamp, Unit};
use toolcrib_bounds::cut;
use toolcrib_compile::approval::Requirements;
use toolcrib_crds::{
    ApprovalPhase, ConditionType, DecisionVerdict, HasConditions as _, ToolApproval,
};

use crate::print;

/// Limits the bytes of the arguments in a line of the list.
const SHORT: usize = 60;
/// Width of the labels before the lines of one ToolApproval.
const LABEL: usize = 12;

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
    lines.push("arguments".to_owned());
    lines.extend(
        arguments(&spec.arguments)
            .lines()
            .map(|line| format!("  {line}")),
    );
    if !spec.redacted.is_empty() {
        let places = spec.redacted.join(", ");
        lines.push(labelled(
            "redacted",
            &format!("{places}: a known secret is not shown"),
        ));
    }
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

fn labelled(label: &str, text: &str) -> String {
    format!("{label:LABEL$}{text}")
}

/// JSON with a line for each member and element. All other bytes stay: digits of numbers, and escapes of
/// characters that could be mistaken. A text that is no JSON is shown as it is.
fn arguments(text: &str) -> String {
    if serde_json::from_str::<&serde_json::value::RawValue>(text).is_err() {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    let mut last = ' ';
    for c in text.chars() {
        if in_text {
            shown.push(c);
            in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            last = c;
            continue;
        }
        match c {
            ' ' | '\n' | '\r' | '\t' => continue,
            '{' | '[' => {
                start_line(&mut shown, depth, last);
                shown.push(c);
                depth += 1;
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !matches!(last, '{' | '[') {
                    shown.push('\n');
                    indent(&mut shown, depth);
                }
                shown.push(c);
            }
            ':' => shown.push_str(": "),
            ',' => shown.push(c),
            _ => {
                start_line(&mut shown, depth, last);
                shown.push(c);
                in_text = c == '"';
            }
        }
        last = c;
    }
    shown
}

/// Begins a line before a member or an element.
fn start_line(shown: &mut String, depth: usize, last: char) {
    if matches!(last, '{' | '[' | ',') {
        shown.push('\n');
        indent(shown, depth);
    }
}

/// Deeper levels than a screen has are not told apart, so that the text stays linear in the arguments.
fn indent(shown: &mut String, depth: usize) {
    const DEEPEST: usize = 16;
    for _ in 0..depth.min(DEEPEST) {
        shown.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_a_line_each_and_keep_their_bytes() {
        let text = r#"{"a":12345678901234567890123.50,"b":{},"c":[1,{"d":"x,{\"\u0430"}],"e":[]}"#;
        let expected = r#"{
  "a": 12345678901234567890123.50,
  "b": {},
  "c": [
    1,
    {
      "d": "x,{\"\u0430"
    }
  ],
  "e": []
}"#;
        assert_eq!(arguments(text), expected);
        assert_eq!(arguments("{}"), "{}");
        assert_eq!(arguments("{no json"), "{no json");
    }

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
