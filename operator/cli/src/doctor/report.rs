//! The report: a line for each finding, with the cure below, and a last line with the result.

use std::process::ExitCode;

use toolcrib_bounds::count;

use super::finding::{Finding, Level};
use crate::print::plain;

/// Widths of the first two columns.
const LEVEL: usize = 11;
const CHECK: usize = 12;

/// The findings as text.
pub fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let (level, check) = (finding.level.name(), finding.check.name());
        text += &format!(
            "{level:LEVEL$}  {check:CHECK$}  {}\n",
            plain(&finding.message)
        );
        for (index, line) in finding.cure.lines().enumerate() {
            let mark = if index == 0 { "->" } else { "  " };
            text += &format!("{:LEVEL$}  {mark} {}\n", "", plain(line));
        }
    }
    text + &result(findings)
}

fn result(findings: &[Finding]) -> String {
    let number = |level| findings.iter().filter(|it| it.level == level).count();
    let parts = [
        (Level::Error, count(number(Level::Error), "error")),
        (Level::Warning, count(number(Level::Warning), "warning")),
        (
            Level::NotChecked,
            format!("{} not checked", number(Level::NotChecked)),
        ),
    ];
    let parts = parts.into_iter().filter(|(level, _)| number(*level) > 0);
    let parts: Vec<String> = parts.map(|(_, text)| text).collect();
    match parts.is_empty() {
        true => "\neverything is in order\n".to_owned(),
        false => format!("\n{}\n", parts.join(", ")),
    }
}

/// 1 if something is wrong, else 3 if something could not be checked.
pub fn exit_code(findings: &[Finding]) -> ExitCode {
    let has = |level| findings.iter().any(|finding| finding.level == level);
    if has(Level::Error) {
        ExitCode::from(1)
    } else if has(Level::NotChecked) {
        ExitCode::from(3)
    } else {
        ExitCode::SUCCESS
    }
}
