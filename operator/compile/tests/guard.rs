//! The guard policy of the chart contains no name itself: its template is filled in from
//! `charts/toolcrib/guard.json`, which injection uses too. To write it: `UPDATE_EXPECT=1 cargo
//! test -p toolcrib-compile --test guard`.

#![expect(
    clippy::disallowed_methods,
    reason = "a test reads its cases from files"
)]

use std::fs;
use std::path::{Path, PathBuf};

use toolcrib_compile::inject::invariants;
use toolcrib_compile::names;
use toolcrib_golden::{expect, here};

fn chart(file: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/toolcrib"
    ))
    .join(file)
}

#[test]
fn the_charts_copy_of_the_invariants_is_current() {
    let text = serde_json::to_string_pretty(&invariants()).expect("plain data") + "\n";
    expect(here!(), &chart("guard.json"), &text);
}

#[test]
fn the_template_contains_none_of_the_names() {
    let template = fs::read_to_string(chart("templates/guard.yaml")).expect("guard.yaml");
    let spelled = [
        names::AGENT_LABEL,
        names::MEDIATOR_CONTAINER,
        names::LINK_AUDIENCE,
        names::CONFIG_DIR,
        names::HISTORY_DIR,
        names::LINK_TOKEN_DIR,
        names::API_TOKEN_DIR,
        names::DROPPED_CAPABILITY,
    ];
    let names = names::VOLUMES
        .iter()
        .chain(&names::ALLOWED_CAPABILITIES)
        .chain(&names::ALLOWED_HOST_PATHS)
        .chain(&names::ALLOWED_SELINUX_TYPES)
        .chain(&names::MESH_SETUP_REFUSED_VARIABLES)
        .chain(&names::REFUSED_VARIABLES)
        .chain(&spelled);
    for name in names {
        assert!(!template.contains(name), "{name}");
    }
}
