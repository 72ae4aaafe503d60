//! Rows of figures, for people and for programs.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use crate::machine::Machine;

/// One figure, with its reference if it has one.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: Cow<'static, str>,
    pub measure: &'static str,
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    pub measured: f64,
    /// The measured figure divided by the reference's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Smallest and largest ratio of one pair of slices, which shows the precision of `ratio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

/// The documented target. A figure equal to the target meets it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    RatioAtMost(f64),
    AtMost(f64),
}

impl Row {
    pub fn beside(
        case: &'static str,
        measure: &'static str,
        unit: &'static str,
        reference: f64,
        measured: f64,
    ) -> Self {
        Self {
            case: case.into(),
            measure,
            unit,
            reference: Some(reference),
            measured,
            ratio: (reference > 0.0).then(|| measured / reference),
            spread: None,
            target: None,
        }
    }

    pub fn alone(
        case: &'static str,
        measure: &'static str,
        unit: &'static str,
        measured: f64,
    ) -> Self {
        Self {
            case: case.into(),
            measure,
            unit,
            reference: None,
            measured,
            ratio: None,
            spread: None,
            target: None,
        }
    }

    /// Takes the median of the ratios of all pairs, and notes the smallest and the largest.
    pub fn with_ratios(self, ratios: Vec<f64>) -> Self {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            ratio: Some(median(ratios)),
            spread: Some((least, greatest)),
            ..self
        }
    }

    pub fn at_most(mut self, bound: f64) -> Self {
        self.target = Some(Target::AtMost(bound));
        self
    }

    pub fn ratio_at_most(mut self, bound: f64) -> Self {
        self.target = Some(Target::RatioAtMost(bound));
        self
    }

    fn verdict(&self) -> &'static str {
        let kept = match self.target {
            None => return "",
            Some(Target::AtMost(bound)) => self.measured <= bound,
            Some(Target::RatioAtMost(bound)) => self.ratio.is_some_and(|ratio| ratio <= bound),
        };
        if kept { "pass" } else { "MISS" }
    }
}

/// The upper median of figures, of which there is at least one.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub fn json(machine: &Machine, rows: &[Row]) -> Result<String> {
    let report = serde_json::json!({"machine": machine, "rows": rows});
    Ok(serde_json::to_string_pretty(&report)?)
}

/// Formats the rows as Markdown, for the documentation.
pub fn table(machine: &Machine, rows: &[Row]) -> String {
    let mut out = format!(
        "{} × {}, Linux {}, load before the run {}\n\n",
        machine.cores, machine.cpu, machine.kernel, machine.load
    );
    let head = [
        "case",
        "measure",
        "reference",
        "measured",
        "ratio",
        "pairs",
        "target",
        "",
    ];
    let lines: Vec<[String; 8]> = rows.iter().map(cells).collect();
    let mut widths = head.map(|title| title.chars().count());
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut write = |cells: &[String; 8]| {
        for (cell, width) in cells.iter().zip(widths) {
            out.push_str(&format!("| {cell:width$} "));
        }
        out.push_str("|\n");
    };
    write(&head.map(str::to_string));
    write(&widths.map(|width| "-".repeat(width)));
    lines.iter().for_each(write);
    out
}

fn cells(row: &Row) -> [String; 8] {
    let number = |value: f64| match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let unit = |value: f64| format!("{} {}", number(value), row.unit);
    let mut spread = String::new();
    if let Some((least, greatest)) = row.spread {
        // Writing to a String cannot fail.
        write!(spread, "{}–{}", number(least), number(greatest)).ok();
    }
    [
        row.case.to_string(),
        row.measure.to_string(),
        row.reference.map(unit).unwrap_or_default(),
        unit(row.measured),
        row.ratio
            .map(|ratio| format!("{ratio:.2}"))
            .unwrap_or_default(),
        spread,
        match row.target {
            None => String::new(),
            Some(Target::AtMost(bound)) => format!("≤ {}", unit(bound)),
            Some(Target::RatioAtMost(bound)) => format!("≤ {} ×", number(bound)),
        },
        row.verdict().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_compares_the_figure_with_its_target() {
        let check = |row: Row, verdict: &str| assert_eq!(row.verdict(), verdict);
        let row = || Row::beside("otter", "CPU", "µs", 50.0, 100.0);
        check(row(), "");
        check(row().ratio_at_most(2.0), "pass");
        check(row().ratio_at_most(1.9), "MISS");
        check(row().at_most(100.0), "pass");
        check(row().at_most(99.0), "MISS");
        check(
            Row::beside("otter", "CPU", "µs", 0.0, 1.0).ratio_at_most(2.0),
            "MISS",
        );
    }
}
