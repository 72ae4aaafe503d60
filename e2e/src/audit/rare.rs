//! Objects that make the operator use its rarely used rights: a descriptor in a ConfigMap, a
//! surface by address, a surface of another namespace, defaults, a ClusterToolPolicy, and a
//! NetworkPolicy that is created, changed and deleted. After these uses, a right that is still
//! unused is not needed.
//!
//! The objects are applied step by step. A step is done once its right was used.

/// Objects to apply, and the right that must be used after that.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    manifest: &'static str,
    pub verb: &'static str,
    pub resource: &'static str,
}

impl Step {
    /// Returns the objects for a namespace in which agents may live.
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
