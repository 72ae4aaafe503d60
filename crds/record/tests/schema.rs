//! The published JSON schema of the lines.

use schemars::schema_for;
use toolcrib_record::{Line, VERSION};

#[test]
fn the_published_schema_is_current() {
    let mut schema = schema_for!(Line<'static>);
    schema.insert("title".into(), "A line of Toolcrib's record".into());
    let id = format!("https://toolcrib.dev/schema/record/v{VERSION}.json");
    schema.insert("$id".into(), id.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    let path = format!("{}/schema/v{VERSION}.json", env!("CARGO_MANIFEST_DIR"));
    let command = toolcrib_golden::here!().command();
    if let Err(stale) = toolcrib_golden::compare(path.as_ref(), &text, &command) {
        panic!("{stale}");
    }
}
