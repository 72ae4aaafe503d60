//! Parts of an agent's files: `agent.json`, the CA bundles of its services, the bounds on all files,
//! and the digest.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_manifest::names::MAX_POLICIES;
use toolcrib_manifest::{AgentFile, Context, Digests, ServiceSettings, Suspension, Tls, VERSION};

use super::context;
use super::effective::Effective;
use super::reach::Reach;
use super::work::Work;
use crate::compilation::bounds;
use crate::compilation::files::Files;
use crate::{Kind, ObjectRef, Objects, Subject, manifest_digest};

/// Returns `agent.json`, without its digest. `policies`: names of those that match the agent.
pub(crate) fn agent_file(
    objects: &dyn Objects,
    key: &ObjectRef,
    effective: &Effective,
    policies: &[String],
    suspension: Option<Suspension>,
) -> AgentFile {
    // The files of a suspended agent serve nothing, so older mediators may read them.
    let budgets = match &suspension {
        None => effective.budgets.clone().into_files(),
        Some(_) => Vec::new(),
    };
    let mut requires = effective.requires.clone();
    if !budgets.is_empty() {
        requires.push(toolcrib_manifest::names::BUDGETS.to_owned());
    }
    AgentFile {
        version: VERSION,
        budgets,
        agent: key.name.clone(),
        namespace: key.namespace.clone(),
        claw_id: key.name.clone(),
        identity: effective.identity,
        tokens: Vec::new(),
        models: effective.models.clone(),
        streaming: effective.streaming,
        max_tier: effective.max_tier,
        context: effective.context,
        digest: None,
        dns: objects.settings().dns.clone(),
        files: None,
        link: objects.settings().link.clone(),
        mode: effective.mode,
        native: effective.native,
        policies: policies.iter().take(MAX_POLICIES).cloned().collect(),
        prompt: None,
        provider_tools: effective.provider_tools,
        requires,
        suspension,
    }
}

/// Returns the CA bundles of the surfaces that have a tool or a feed in the files.
pub(crate) fn services(reach: &[Reach<'_>], files: &Files) -> BTreeMap<String, ServiceSettings> {
    let of_tools = files.tools.tools.iter().map(|tool| &tool.execution.service);
    let of_feeds = files.feeds.0.iter().map(|feed| &feed.source);
    let used: BTreeSet<&String> = of_tools.chain(of_feeds).collect();
    reach
        .iter()
        .filter(|reach| used.contains(&reach.alias))
        .filter_map(|reach| {
            let ca = reach.resolved.ca.as_ref().ok()?.clone()?.pem;
            let settings = ServiceSettings {
                tls: Some(Tls { ca: Some(ca) }),
                proxy: None,
            };
            Some((reach.alias.clone(), settings))
        })
        .collect()
}

/// Removes from the files the tools, feeds and providers that do not fit, and withholds them.
pub(crate) fn fit(key: &ObjectRef, context: Context, files: &mut Files, work: &mut Work) {
    // In the files, the document's newlines and quotes take two bytes each.
    let prompt = match context {
        Context::Prompt => 2 * context::MAX_PROMPT,
        Context::Mount | Context::None => 0,
    };
    for excess in bounds::enforce(files, prompt) {
        let subject = Subject::new(Kind::Agent, key);
        work.found.add(
            &subject,
            "spec.surfaces",
            excess.code,
            excess.message.clone(),
        );
        work.withhold(excess.what, excess.code, excess.message);
    }
}

/// Writes the digest of the files into them.
pub(crate) fn seal(files: &mut Files) -> String {
    let manifest = manifest_digest(files);
    files.agent.digest = Some(Digests {
        manifest: manifest.clone(),
        credentials: String::new(),
    });
    manifest
}
