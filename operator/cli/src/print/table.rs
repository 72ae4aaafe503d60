//! Prints columns as kubectl does.

use std::borrow::Cow;

use super::plain;

/// Prints left-aligned columns, three spaces apart, without trailing spaces.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    aligned(std::iter::once(&header).chain(rows))
}

/// Does the same as [`table`] without a header.
pub fn columns(rows: &[Vec<String>]) -> String {
    aligned(rows)
}

fn aligned<'a>(rows: impl IntoIterator<Item = &'a Vec<String>>) -> String {
    let lines: Vec<Vec<Cow<'a, str>>> = rows
        .into_iter()
        .map(|row| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..lines.first().map_or(0, |first| first.len()))
        .filter_map(width)
        .collect();
    let mut text = String::new();
    for row in &lines {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}   "));
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["otter".into(), "dive".into()],
            vec!["a".into(), "b\nheron".into()],
        ];
        assert_eq!(
            table(&["AGENT", "TOOL"], &rows),
            "AGENT   TOOL\notter   dive\na       b\\nheron\n"
        );
    }
}
