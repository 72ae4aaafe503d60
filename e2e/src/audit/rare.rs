//! Objects whose ways are rarely gone, so that a run in which a right is not used proves that
//! nothing needs it: a descriptor in a ConfigMap, a surface by its address, one of another
//! namespace, defaults, and a NetworkPolicy that comes, changes and goes.
//!
//! Applied step by step: each has been acted on when its right was used.

/// What to apply, and which right must be used then.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    manifest: &'static str,
    pub verb: &'static str,
    pub resource: &'static str,
}

impl Step {
    /// For a namespace in which agents may live.
    pub fn manifest(&self, namespace: &str) -> String {
        let here = format!("namespace: {namespace}");
        self.manifest.replace("namespace: HERE", &here)
    }
}

const fn step(manifest: &'static str, verb: &'static str, resource: &'static str) -> Step {
    Step {
        manifest,
        verb,
        resource,
    }
}

pub const STEPS: [Step; 4] = [
    step(
        include_str!("rare/1-surfaces.yaml"),
        "patch",
        "tooldefaults/status",
    ),
    step(
        include_str!("rare/2-declared.yaml"),
        "create",
        "networkpolicies",
    ),
    step(
        include_str!("rare/3-changed.yaml"),
        "patch",
        "networkpolicies",
    ),
    step(
        include_str!("rare/4-unrestricted.yaml"),
        "delete",
        "networkpolicies",
    ),
];
