//! Upgrading and uninstalling: nothing is left but what the chart says it keeps, and nothing
//! is blocked by what is gone.
//!
//! A target of its own: after it, Toolcrib is not installed any more.

#[path = "governed/support.rs"]
#[allow(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use anyhow::{Result, ensure};
use toolcrib_e2e::platform::{NAMESPACE, Platform, Seen};

#[test]
fn uninstall_leaves_the_definitions_and_blocks_nobody() -> Result<()> {
    let platform = support::platform()?;
    // The namespaces' own rights come from the install; an upgrade keeps them.
    let upgraded = platform.helm_upgrade(&["trading"])?;
    ensure!(upgraded.contains("deployed"), "{upgraded}");

    platform.helm_uninstall()?;
    for kind in [
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "clusterroles",
        "clusterrolebindings",
    ] {
        let left = names(
            &platform,
            &[kind, "--selector=app.kubernetes.io/instance=toolcrib"],
        )?;
        assert_eq!(left, [""; 0], "{kind} left behind");
    }
    // Pods may take their grace period, the webhook drains.
    platform.eventually(
        "everything in the operator's namespace to be gone",
        support::START,
        || {
            let left = names(&platform, &["all,secrets,leases", "--namespace", NAMESPACE])?;
            Ok(Seen::when(left.is_empty(), left.join(", ")))
        },
    )?;
    let left = names(&platform, &["roles,rolebindings", "--namespace", "trading"])?;
    assert_eq!(left, [""; 0], "rights left in trading");

    // Kept: the kinds, and so every user's objects.
    let kept = names(&platform, &["customresourcedefinitions"])?;
    for kind in [
        "agents",
        "modelproviders",
        "surfaces",
        "tooldefaults",
        "toolgrants",
    ] {
        ensure!(
            kept.contains(&format!("{kind}.toolcrib.dev")),
            "{kind} is kept: {kept:?}"
        );
    }
    // Nothing is wedged: an Agent goes at once, and a labelled pod is just a pod now.
    platform.kubectl(&[
        "delete",
        "agents",
        "--all",
        "--namespace",
        "trading",
        "--timeout=30s",
    ])?;
    platform.apply(
        "apiVersion: v1
kind: Pod
metadata: {name: just-a-pod, namespace: toolcrib-system, labels: {toolcrib.dev/agent: analyst}}
spec:
  containers:
  - {name: runner, image: docker.io/toolcrib/runner-python:dev, imagePullPolicy: IfNotPresent, command: [sleep, infinity]}
",
    )?;
    platform.kubectl(&[
        "delete",
        "pod",
        "just-a-pod",
        "--namespace",
        NAMESPACE,
        "--wait=false",
    ])?;
    Ok(())
}

fn names(platform: &Platform, arguments: &[&str]) -> Result<Vec<String>> {
    let list = platform.get(arguments)?;
    Ok(list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str().map(String::from))
        .collect())
}
