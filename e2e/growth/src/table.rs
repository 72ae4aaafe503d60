//! The table of entry points in `docs/bounds.md`.

use crate::entries::Entry;

/// The table's header and the line below it; the table ends at the next empty line.
const HEADER: &str = "| entry point | bound | inputs | worst input | instructions | bytes |\n|---|---|---|---|---|---|\n";

/// The largest growth among the inputs of one entry point.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstGrowth {
    pub shape: String,
    pub instructions: f64,
    pub allocated: f64,
}

/// Returns the row of an entry point, without the line break.
pub fn row(entry: &Entry, worst: &WorstGrowth) -> String {
    format!(
        "{} {} | {:.1} | {:.1} |",
        row_head(entry),
        worst.shape,
        worst.instructions,
        worst.allocated
    )
}

/// The first cells of a row, which need no measurement.
fn row_head(entry: &Entry) -> String {
    format!(
        "| {} | {} | {} |",
        entry.name,
        entry.bound,
        entry.shapes.len()
    )
}

/// Returns the row that the document has for an entry point, without the line break.
pub fn row_of(document: &str, entry: &Entry) -> Option<String> {
    let (_, rows, _) = split(document)?;
    let mut rows = rows.lines();
    rows.find(|row| figures(row, entry).is_some())
        .map(str::to_owned)
}

/// The document with new rows in its table. `None` if it has no table.
pub fn replaced(document: &str, rows: &[String]) -> Option<String> {
    let (before, old, after) = split(document)?;
    (!old.is_empty()).then(|| format!("{before}{HEADER}{}\n{after}", rows.join("\n")))
}

/// Reads the document's table. `Err` names the first row that belongs to no entry point, or has
/// another bound, other inputs or no figures.
pub fn read(document: &str, entries: &[Entry]) -> Result<Vec<WorstGrowth>, String> {
    let (_, rows, _) = split(document).ok_or("the table is missing")?;
    let rows: Vec<&str> = rows.lines().collect();
    if rows.len() != entries.len() {
        return Err(format!(
            "{} rows for {} entry points",
            rows.len(),
            entries.len()
        ));
    }
    rows.iter()
        .zip(entries)
        .map(|(row, entry)| {
            figures(row, entry).ok_or_else(|| format!("{row}\nis not the row of {}", entry.name))
        })
        .collect()
}

fn split(document: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = document.split_once(HEADER)?;
    let end = rest.find("\n\n").map_or(rest.len(), |at| at + 1);
    Some((before, &rest[..end], &rest[end..]))
}

fn figures(row: &str, entry: &Entry) -> Option<WorstGrowth> {
    let rest = row.strip_prefix(&row_head(entry))?.strip_suffix('|')?;
    let mut cells = rest.split('|').map(str::trim);
    let worst = WorstGrowth {
        shape: cells.next()?.to_owned(),
        instructions: cells.next()?.parse().ok()?,
        allocated: cells.next()?.parse().ok()?,
    };
    let is_known = entry.shapes.iter().any(|shape| shape.name == worst.shape);
    (is_known && cells.next().is_none()).then_some(worst)
}
