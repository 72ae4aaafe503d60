//! The operator: its Deployments are available, and one controller leads.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use toolcrib_bounds::count;

use crate::cluster::installation::{CONTROLLER, Facts, WEBHOOK};
use crate::doctor::finding::{Check, Finding, Findings};

/// How far the clocks of this machine and of the controller's node may differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);
/// The validity of a Lease that says none: the controller's own.
const LEASE_SECONDS: i32 = 12;

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Operator);
    let namespace = &facts.release.namespace;
    match &facts.deployments {
        Err(gap) => findings.gap(gap),
        Ok(none) if none.is_empty() => findings.error(
            format!("there is no operator in namespace {namespace}"),
            "install the chart, or name the operator's namespace with --operator-namespace",
        ),
        Ok(_) => {
            for component in [CONTROLLER, WEBHOOK] {
                match facts.deployment(component) {
                    Some(found) => available(component, found, &mut findings),
                    None => findings.error(
                        format!("the Deployment of the {component} does not exist in namespace {namespace}"),
                        format!("install it again: {}", facts.release.upgrade()),
                    ),
                }
            }
        }
    }
    let ready = |component| {
        facts
            .deployment(component)
            .map_or(0, |it| replicas(it).1.max(0) as usize)
    };
    findings.finish(format!(
        "{} and {} available in namespace {namespace}",
        count(ready(CONTROLLER), "controller pod"),
        count(ready(WEBHOOK), "webhook pod")
    ))
}

/// The wanted and the available replicas.
fn replicas(deployment: &Deployment) -> (i32, i32) {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let status = deployment.status.as_ref();
    let available = status.and_then(|status| status.available_replicas);
    (wanted.unwrap_or(1), available.unwrap_or(0))
}

fn available(component: &str, deployment: &Deployment, findings: &mut Findings) {
    let (name, namespace) = (
        deployment.name_any(),
        deployment.namespace().unwrap_or_default(),
    );
    let (wanted, available) = replicas(deployment);
    let effect = match component {
        WEBHOOK => "no agent's pod is admitted",
        _ => "no change is compiled, and status is out of date",
    };
    let look = format!(
        "`kubectl describe pods -n {namespace} -l app.kubernetes.io/component={component}` and `kubectl logs -n {namespace} deployment/{name}` show why"
    );
    if wanted == 0 {
        findings.error(
            format!("Deployment {namespace}/{name} is scaled to 0: {effect}"),
            format!("kubectl scale deployment/{name} -n {namespace} --replicas=2"),
        );
    } else if available == 0 {
        let message = format!("no pod of Deployment {namespace}/{name} is available: {effect}");
        findings.error(message, look);
    } else if available < wanted {
        let message =
            format!("{available} of {wanted} pods of Deployment {namespace}/{name} are available");
        findings.warning(message, look);
    }
}

pub fn leader(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Leader);
    let (namespace, name) = (&facts.release.namespace, &facts.release.lease);
    let look = format!(
        "`kubectl logs -n {namespace} deployment/{}` shows why no controller leads",
        facts.controller()
    );
    let effect = "no change is compiled, and no revocation is published";
    let lease = match &facts.lease {
        Ok(Some(lease)) => lease.spec.clone().unwrap_or_default(),
        Ok(None) => {
            findings.absent(
                facts,
                format!("Lease {namespace}/{name} does not exist: {effect}"),
                look,
            );
            return findings.finish("");
        }
        Err(gap) => {
            findings.gap(gap);
            return findings.finish("");
        }
    };
    let holder = lease.holder_identity.unwrap_or_default();
    let renewed = lease.renew_time.map(|time| time.0);
    let valid = lease.lease_duration_seconds.unwrap_or(LEASE_SECONDS);
    let valid = SignedDuration::from_secs(valid.into()) + CLOCK_SKEW;
    let is_old = |renewed: Timestamp| facts.now.duration_since(renewed) > valid;
    if holder.is_empty() {
        findings.error(
            format!("Lease {namespace}/{name} has no holder: {effect}"),
            look,
        );
    } else if renewed.is_none_or(is_old) {
        let since = renewed.map_or(String::new(), |renewed| format!(" since {renewed}"));
        findings.error(
            format!("{holder} has not renewed Lease {namespace}/{name}{since}: {effect}"),
            format!("{look}; compare this machine's clock if a controller runs"),
        );
    }
    findings.finish(format!("{holder} leads"))
}
