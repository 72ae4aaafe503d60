//! Compares the committed reference with the code.

#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod boards;
mod chart;
mod codes;
mod descriptor;
mod diagnostics;
mod flags;
mod kinds;
mod metrics;
mod names;
mod objects;

use toolcrib_docs::compare;

#[test]
fn reference() {
    let pages = [
        ("kinds.md", kinds::page()),
        ("descriptor.md", descriptor::page()),
        ("names.md", names::page()),
        ("diagnostics.md", diagnostics::page()),
        ("operator.md", flags::operator()),
        ("mediator.md", flags::mediator()),
        ("mcp-stdio.md", flags::mcp_stdio()),
        ("operator-metrics.md", metrics::page()),
        ("errors.md", codes::page()),
        ("chart.md", chart::page()),
    ];
    let wrong: Vec<String> = pages
        .iter()
        .filter_map(|(name, text)| compare(name, text).err())
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
