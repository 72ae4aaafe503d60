//! The webhook: its configurations exist, select every namespace with agents, and lead to running pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use toolcrib_compile::selector_matches;

use super::link::ready;
use crate::cluster::installation::{Facts, Object};
use crate::doctor::finding::{Check, Finding, Findings};

/// One webhook of a configuration.
struct Webhook<'a> {
    /// Kind and name of the configuration, and the name of the webhook.
    name: String,
    client: &'a WebhookClientConfig,
    namespaces: Option<&'a LabelSelector>,
    is_injecting: bool,
}

pub fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::of(Check::Webhook);
    let name = &facts.release.name;
    let mut webhooks = Vec::new();
    let kind = "MutatingWebhookConfiguration";
    if let Some(found) = existing(
        &facts.mutating_webhooks,
        kind,
        "no mediator is injected",
        facts,
        &mut findings,
    ) {
        webhooks.extend(found.webhooks.iter().flatten().map(|it| Webhook {
            name: format!("{kind} {name}: {}", it.name),
            client: &it.client_config,
            namespaces: it.namespace_selector.as_ref(),
            is_injecting: true,
        }));
    }
    let kind = "ValidatingWebhookConfiguration";
    let effect = "mistakes in objects show only in status";
    if let Some(found) = existing(
        &facts.validating_webhooks,
        kind,
        effect,
        facts,
        &mut findings,
    ) {
        webhooks.extend(found.webhooks.iter().flatten().map(|it| Webhook {
            name: format!("{kind} {name}: {}", it.name),
            client: &it.client_config,
            namespaces: it.namespace_selector.as_ref(),
            is_injecting: false,
        }));
    }
    let mut services = BTreeSet::new();
    for webhook in &webhooks {
        if webhook
            .client
            .ca_bundle
            .as_ref()
            .is_none_or(|bundle| bundle.0.is_empty())
        {
            findings.error(
                format!("{} has no caBundle, so the API server cannot call it", webhook.name),
                format!(
                    "find out whether a controller leads: it writes the field (`kubectl logs -n {} deployment/{}`)",
                    facts.release.namespace,
                    facts.controller()
                ),
            );
        }
        services.extend(webhook.client.service.iter().map(address));
        if webhook.is_injecting {
            excluded(facts, webhook, &mut findings);
        }
    }
    for service in services {
        endpoints(facts, service, &mut findings);
    }
    findings.finish(format!(
        "both configurations {name} lead to running pods, and select every namespace with agents"
    ))
}

fn address(service: &ServiceReference) -> (&str, &str) {
    (&service.namespace, &service.name)
}

fn existing<'a, T>(
    object: &'a Object<T>,
    kind: &str,
    effect: &str,
    facts: &Facts,
    findings: &mut Findings,
) -> Option<&'a T> {
    let name = &facts.release.name;
    match object {
        Ok(Some(found)) => return Some(found),
        Ok(None) => findings.absent(
            facts,
            format!("{kind} {name} does not exist: {effect}"),
            format!("install it again: {}", facts.release.upgrade()),
        ),
        Err(gap) => findings.gap(gap),
    }
    None
}

/// Namespaces with agents that the webhook's selector leaves out.
fn excluded(facts: &Facts, webhook: &Webhook<'_>, findings: &mut Findings) {
    let Some(selector) = webhook.namespaces else {
        return;
    };
    for name in facts.agent_namespaces() {
        match facts.namespaces.get(name) {
            Some(Ok(Some(namespace))) => {
                let none = BTreeMap::new();
                let labels = namespace.metadata.labels.as_ref().unwrap_or(&none);
                if selector_matches(selector, labels) == Some(false) {
                    findings.error(
                        format!("the namespaceSelector of {} leaves out namespace {name}, which has agents: their pods get no mediator, and are refused", webhook.name),
                        format!("change the labels of the namespace (`kubectl get namespace {name} --show-labels`), or the webhook's namespaceSelector, which the chart leaves empty"),
                    );
                }
            }
            Some(Err(gap)) => findings.gap(gap),
            Some(Ok(None)) | None => {}
        }
    }
}

fn endpoints(facts: &Facts, (namespace, service): (&str, &str), findings: &mut Findings) {
    if namespace != facts.release.namespace || service != facts.release.webhook_service {
        findings.absent(
            facts,
            format!("a webhook configuration calls Service {namespace}/{service}, and the operator's is {}/{}", facts.release.namespace, facts.release.webhook_service),
            format!("install the configuration again: {}", facts.release.upgrade()),
        );
        return;
    }
    match &facts.endpoints {
        Err(gap) => findings.gap(gap),
        Ok(slices) if ready(slices, service).is_empty() => findings.error(
            format!("Service {namespace}/{service} has no ready pod, so the API server reaches no webhook: agents' pods are refused"),
            format!("`kubectl get pods -n {namespace} -l app.kubernetes.io/component=webhook` shows the pods; if there is none, correct the Deployment or the Service's selector: {}", facts.release.upgrade()),
        ),
        Ok(_) => {}
    }
}
