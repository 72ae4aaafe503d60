//! Every entry point allocates bytes linear in its input, and `docs/bounds.md` has a row for it.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use toolcrib_growth::entries::{self, Entry};
use toolcrib_growth::{judge, measure, shapes, table};

/// A step below this is noise, such as the reallocation of a hash table.
const FEW_BYTES: u64 = 16 * 1024;

/// Sizes of the inputs, as multiples of the inputs whose instructions are counted. The small inputs
/// stay within the bounds of a pattern or a schema; the large ones make growth more visible.
const ENLARGED: [usize; 2] = [1, 16];

#[test]
fn allocated_bytes_grow_linearly() {
    let entries = entries::all().into_iter().chain(entries::by_bytes());
    let failures: Vec<String> = entries.flat_map(|entry| too_fast(&entry)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn an_entry_point_that_copies_each_prefix_is_rejected() {
    let entry = Entry {
        name: "prefixes",
        bound: "none",
        unit: 1024,
        shapes: vec![shapes::repeated("letters", "a")],
        prepare: Box::new(|| {
            Box::new(|text| (0..text.len()).for_each(|end| drop(black_box(text[..end].to_owned()))))
        }),
    };
    assert_eq!(too_fast(&entry).len(), ENLARGED.len());
}

/// A message for each shape for which the allocated bytes grow too fast.
fn too_fast(entry: &Entry) -> Vec<String> {
    let mut failures = Vec::new();
    for enlarged in ENLARGED {
        let mut shapes: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        measure(entry, entry.unit * enlarged, |shape, _, allocated| {
            shapes.entry(shape).or_default().push(allocated);
        });
        // Equal names would join two series.
        assert_eq!(shapes.len(), entry.shapes.len(), "{}", entry.name);
        for (shape, counts) in shapes {
            let counts = counts.try_into().expect("a count for each scale");
            let growth = judge::growth(counts, FEW_BYTES);
            if growth > judge::MOST {
                let name = entry.name;
                failures.push(format!("{name}: {shape}: ×{growth:.2}: {counts:?}"));
            }
        }
    }
    failures
}

#[test]
fn the_documented_table_names_every_entry_point() {
    let entries = entries::all();
    let names: BTreeSet<_> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), entries.len(), "two entry points of one name");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bounds.md");
    let document = std::fs::read_to_string(path).expect("docs/bounds.md");
    let rows = table::read(&document, &entries)
        .unwrap_or_else(|error| panic!("{error}\nWrite it anew: UPDATE_EXPECT=1 ./e2e/run growth"));
    for row in rows {
        assert!(
            row.instructions.max(row.allocated) <= judge::MOST,
            "{row:?}"
        );
    }
}
