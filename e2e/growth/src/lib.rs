//! Measures how the work on untrusted bytes grows with their number.
//!
//! Here: the entry points that read them, hostile inputs of any size, and the test of whether a
//! series of counts is linear. The operator and the command line export their functions in their
//! modules `foreign`. `readers.txt` says which rows count the work of which file. Nothing measures
//! time: instructions and allocated bytes are the same on a busy machine.

pub mod entries;
pub mod judge;
pub mod shapes;
pub mod table;

use allocation_counter::AllocationInfo;
use entries::Entry;

/// The sizes of an input, as multiples of its entry point's smallest one.
pub const SCALES: [usize; 4] = [1, 2, 4, 8];

/// Runs one entry point with each shape at each scale of `unit` bytes, in this order. `visit` gets
/// the shape's name, the scale, and the bytes that the run allocated.
pub fn measure(entry: &Entry, unit: usize, mut visit: impl FnMut(&'static str, usize, u64)) {
    let run = (entry.prepare)();
    for shape in &entry.shapes {
        // The first run fills caches, whose cost must not count for any input.
        run(&(shape.make)(unit));
        for scale in SCALES {
            let input = (shape.make)(unit * scale);
            let mut allocated = AllocationInfo::default();
            growth_measured(&mut || allocated = allocation_counter::measure(|| run(&input)));
            visit(shape.name, scale, allocated.bytes_total);
        }
    }
}

/// The function whose instructions callgrind counts: `tests/instructions.rs` names it.
#[inline(never)]
fn growth_measured(work: &mut dyn FnMut()) {
    work();
}
