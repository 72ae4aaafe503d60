//! Runs the entry points named by its arguments, for callgrind. Prints a line for each run: entry
//! point, shape, scale and allocated bytes, separated by tabs.

use toolcrib_growth::entries;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let entries = entries::all().into_iter().chain(entries::by_bytes());
    for entry in entries {
        if wanted.iter().any(|name| name == entry.name) {
            toolcrib_growth::measure(&entry, entry.unit, |shape, scale, allocated| {
                println!("{}\t{shape}\t{scale}\t{allocated}", entry.name);
            });
        }
    }
}
