//! The guard policy of the chart checks what injection makes: both spell the same
//! arguments, mounts and volumes, or every injected pod is denied.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its cases from files"
)]

use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod};
use toolcrib_compile::names;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn guard() -> String {
    fs::read_to_string(root().join("charts/toolcrib/templates/guard.yaml")).expect("guard.yaml")
}

fn mediator() -> Container {
    let path = root().join("operator/compile/tests/inject/bare-pod/expected.yaml");
    let text = fs::read_to_string(path).expect("expected.yaml");
    let pod: Pod = serde_yaml::from_str(&text).expect("a pod");
    pod.spec
        .and_then(|spec| spec.init_containers)
        .into_iter()
        .flatten()
        .find(|container| container.name == names::MEDIATOR_CONTAINER)
        .expect("the mediator")
}

#[test]
fn every_argument_is_one_that_the_guard_knows() {
    let guard = guard();
    for argument in mediator().args.expect("arguments") {
        let (flag, _) = argument.split_once('=').unwrap_or((&argument, ""));
        let whole = guard.contains(&format!("'{argument}'"));
        let open = guard.contains(&format!("startsWith('{flag}=')"));
        assert!(whole || open, "{argument}");
    }
}

#[test]
fn every_mount_is_one_that_the_guard_demands() {
    let guard = guard();
    for mount in mediator().volume_mounts.expect("mounts") {
        let pair = format!("'{}': '{}'", mount.mount_path, mount.name);
        assert!(guard.contains(&pair), "{pair}");
    }
}

#[test]
fn every_volume_of_ours_but_the_context_is_reserved() {
    let guard = guard();
    let line = guard
        .lines()
        .skip_while(|line| !line.contains("name: reserved"))
        .nth(1)
        .expect("the variable's expression");
    for volume in names::VOLUMES {
        let reserved = line.contains(&format!("'{volume}'"));
        assert_eq!(reserved, volume != names::CONTEXT_VOLUME, "{volume}");
    }
}

#[test]
fn the_guard_spells_names_as_they_are() {
    let guard = guard();
    for name in [names::AGENT_LABEL, names::MEDIATOR_CONTAINER] {
        assert!(guard.contains(name), "{name}");
    }
    assert_eq!(
        names::mediator_secret("otter"),
        format!("toolcrib-{}-mediator", "otter"),
        "the guard's expression builds this name"
    );
}
