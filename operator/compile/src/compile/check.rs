//! Checks one object by itself, for the status of kinds other than Agent and for the CLI.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_crds::{Agent, ToolGrant};
use toolcrib_manifest::Tier;

use super::authority::policies::{Policies, policy_matches};
use super::authority::selection;
use super::reach::consent::{consents, is_missing, open, other_in};
use super::tools::notices::needs_approval;
use super::tools::offer::Offer;
use crate::compile::authority::{self, Rule, Verb, includes_defaults};
use crate::compile::credential::{self, Sources};
use crate::compile::models;
use crate::diagnostics::finding::Finding;
use crate::diagnostics::report::{GrantReport, PolicyReport, ProviderReport, SurfaceReport};
use crate::reference::surface_key;
use crate::surface::{self, ResolvedSurface};
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, Presence, SecretKeyRef, Subject, names};

/// Checks one Surface. `None`: it does not exist.
pub fn check_surface(objects: &dyn Objects, surface: &ObjectRef) -> Option<SurfaceReport> {
    let resolved = surface::resolve(objects, surface, objects.surface(surface)?);
    let mut found = Diagnostics::default();
    resolved.report(&mut found);
    let mut sources = Sources::default();
    check_credentials(objects, &resolved, &mut sources, &mut found);
    let consumers = objects
        .agents_using(surface)
        .iter()
        .filter(|(key, _)| consents(objects, surface, &resolved.surface, &key.namespace))
        .count();
    let descriptor = resolved.descriptor();
    let usable = |descriptor: &crate::surface::descriptor::Descriptor| {
        descriptor
            .tools
            .values()
            .filter(|tool| tool.is_ok())
            .count()
    };
    Some(SurfaceReport {
        tools: count(descriptor.map_or(0, usable)),
        descriptor_digest: descriptor.map(|descriptor| descriptor.digest.clone()),
        consumers: count(consumers),
        diagnostics: found.into_sorted(),
        unread: unread(objects, &sources),
    })
}

/// Returns the source Secrets that could not be read, with the reason.
fn unread(objects: &dyn Objects, sources: &Sources) -> BTreeMap<ObjectRef, String> {
    let secrets = sources.0.keys().map(|reference| &reference.secret);
    secrets
        .filter_map(|secret| match objects.secret(secret) {
            Presence::Unknown(why) => Some((secret.clone(), why)),
            Presence::Present(_) | Presence::Absent => None,
        })
        .collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Checks every Secret that the surface names, even without an agent that uses it.
fn check_credentials(
    objects: &dyn Objects,
    resolved: &ResolvedSurface,
    sources: &mut Sources,
    found: &mut Diagnostics,
) {
    let described = resolved.descriptor().and_then(|found| found.auth.as_ref());
    let Some(auth) = &resolved.surface.spec.auth else {
        if let Some(kind) = described.and_then(|auth| auth.kind.as_deref())
            && kind != "none"
        {
            found.add(
                &resolved.subject,
                "spec.auth",
                Code::NoCredential,
                format!("is missing, and the descriptor asks for {kind}: set secretKeyRef, else calls go without a credential"),
            );
        }
        return;
    };
    let Ok(address) = &resolved.address else {
        return;
    };
    let kind = match credential::auth_type(Some(auth), described) {
        Ok(kind) => kind,
        Err(finding) => return finding.report(&resolved.subject, found),
    };
    // The surface's own findings report a wrong CA.
    if resolved.ca.is_err() {
        return;
    }
    let route = match credential::route(objects, resolved, address, kind) {
        Ok(route) => route,
        Err(finding) => return finding.report(&resolved.subject, found),
    };
    let shared = auth
        .secret_key_ref
        .iter()
        .map(|secret| ("spec.auth.secretKeyRef".to_owned(), secret));
    let single = auth.per_agent.iter().enumerate().map(|(index, entry)| {
        (
            format!("spec.auth.perAgent[{index}].secretKeyRef"),
            &entry.secret_key_ref,
        )
    });
    for (field, secret) in shared.chain(single) {
        let keys = credential::secret_keys(kind, secret, described).map_err(|message| {
            Finding::new(format!("{field}.key"), Code::SecretKeyUnspecified, message)
        });
        let checked = keys.and_then(|keys| {
            let name = ObjectRef::new(resolved.subject.key.namespace.clone(), secret.name.clone());
            let values = keys
                .into_iter()
                .map(|key| {
                    let reference = SecretKeyRef::new(name.clone(), key);
                    credential::allow(objects, &reference, &route, &field, sources)
                        .map(|()| reference.placeholder())
                })
                .collect::<Result<Vec<_>, Finding>>()?;
            credential::auth(kind, values, Some(auth), described)
        });
        if let Err(finding) = checked {
            finding.report(&resolved.subject, found);
        }
    }
}

/// Checks one ToolGrant. `None`: it does not exist.
pub fn check_grant(objects: &dyn Objects, grant: &ObjectRef) -> Option<GrantReport> {
    let (key, grant) = (grant, objects.grant(grant)?);
    let subject = Subject::new(Kind::ToolGrant, key);
    let mut found = Diagnostics::default();
    let mut agents = 0;
    let mut reached = BTreeSet::new();
    let mut elevated = BTreeSet::new();
    // Surfaces that no agent declares, although an agent declares a surface of this name in another
    // namespace.
    let mut elsewhere = BTreeSet::new();
    let rules = authority::of_grant(key, &grant);
    let named: BTreeSet<&ObjectRef> = rules.iter().map(|rule| &rule.surface).collect();
    // Reported once, with the rules.
    let missing: BTreeSet<&ObjectRef> = named
        .iter()
        .copied()
        .filter(|surface| is_missing(objects, surface, &key.namespace))
        .collect();
    let selected = selection::agents_selected(objects, key, &grant);
    selection::report(objects, &subject, &grant, &selected, &mut found);
    let names = selection::agent_names(&grant, &selected);
    let mut own = named_agents(objects, &subject, &grant, &mut found);
    own.extend(selected);
    for (agent_key, agent) in own {
        agents += 1;
        let declared: BTreeSet<ObjectRef> = agent
            .spec
            .surfaces
            .iter()
            .map(|entry| surface_key(&agent_key, entry))
            .collect();
        let misplaced = named
            .iter()
            .copied()
            .filter(|surface| !declared.contains(surface))
            .filter(|surface| authority::namesakes(surface, &declared).next().is_some());
        let misplaced: BTreeSet<&ObjectRef> = misplaced.collect();
        for rule in rules.iter().filter(|rule| {
            !declared.contains(&rule.surface)
                && (!missing.contains(&rule.surface) || misplaced.contains(&rule.surface))
        }) {
            if found.is_full() {
                break;
            }
            let (code, message) =
                rule.not_declared_by(&agent_key, &declared, &mut found.suggestions);
            found.add(&subject, rule.surface_field(), code, message);
        }
        if takes_elevated(objects, &agent_key, &agent) {
            elevated.extend(declared.iter().cloned());
        }
        elsewhere.extend(misplaced);
        reached.extend(declared);
    }
    elsewhere.retain(|surface| !reached.contains(*surface));
    let mut tools = check_rules(objects, &rules, &elevated, &elsewhere, &mut found);
    tools.retain(|surface, _| reached.contains(surface));
    Some(GrantReport {
        agents,
        agent_names: names,
        tools: count(tools.values().sum()),
        diagnostics: found.into_sorted(),
    })
}

/// Returns the agents that a grant names, and reports those that do not exist.
fn named_agents(
    objects: &dyn Objects,
    subject: &Subject,
    grant: &ToolGrant,
    found: &mut Diagnostics,
) -> BTreeMap<ObjectRef, Arc<Agent>> {
    let mut agents = BTreeMap::new();
    for (index, name) in grant.spec.agents.iter().enumerate() {
        let key = ObjectRef::new(subject.key.namespace.clone(), name.clone());
        if let Some(agent) = objects.agent(&key) {
            agents.insert(key, agent);
            continue;
        }
        // The Agent itself reports why it cannot be decoded.
        if objects.unusable(Kind::Agent, &key).is_some() || found.is_full() {
            continue;
        }
        let meant = other_in(objects, Kind::Agent, &key, &mut found.suggestions);
        found.add(
            subject,
            format!("spec.agents[{index}]"),
            Code::AgentNotFound,
            format!("agent {key} not found{meant}: create it, or correct the name"),
        );
    }
    agents
}

/// Checks one ToolDefaults. `None`: it does not exist.
pub fn check_defaults(objects: &dyn Objects, defaults: &ObjectRef) -> Option<GrantReport> {
    let (key, defaults) = (defaults, objects.defaults(defaults)?);
    let mut found = Diagnostics::default();
    if key.name != names::TOOL_DEFAULTS {
        found.add(
            &Subject::new(Kind::ToolDefaults, key),
            "metadata.name",
            Code::InvalidName,
            "must be \"default\": a namespace has one ToolDefaults, and no agent uses this one: rename it",
        );
    }
    let mut agents = 0;
    let mut reached = BTreeSet::new();
    let mut elevated = BTreeSet::new();
    for (agent_key, agent) in objects.agents_in(&key.namespace) {
        if !includes_defaults(&agent) {
            continue;
        }
        agents += 1;
        let declared = agent.spec.surfaces.iter();
        let declared: BTreeSet<ObjectRef> = declared
            .map(|entry| surface_key(&agent_key, entry))
            .collect();
        if takes_elevated(objects, &agent_key, &agent) {
            elevated.extend(declared.iter().cloned());
        }
        reached.extend(declared);
    }
    let rules = authority::of_defaults(key, &defaults);
    let mut tools = check_rules(objects, &rules, &elevated, &BTreeSet::new(), &mut found);
    tools.retain(|surface, _| reached.contains(surface));
    Some(GrantReport {
        agents,
        agent_names: Vec::new(),
        tools: count(tools.values().sum()),
        diagnostics: found.into_sorted(),
    })
}

/// Whether the agent's maximum tier lets it have Elevated tools.
fn takes_elevated(objects: &dyn Objects, key: &ObjectRef, agent: &Agent) -> bool {
    let mut unused = Diagnostics::default();
    // Policies only take away, so the agent's own settings say whether it would take them.
    let none = Policies::default();
    let effective = crate::compile::effective::merge(objects, key, agent, &none, &mut unused);
    effective.max_tier == Tier::Elevated
}

/// Returns the number of existing tools that the rules of one object name, by surface, and reports
/// the other names. `elevated` are the surfaces whose Elevated tools are offered to an agent. The
/// surfaces of `elsewhere` are not reported as missing or without consent: their namespace is
/// wrong, which the caller has reported.
fn check_rules(
    objects: &dyn Objects,
    rules: &[Rule<'_>],
    elevated: &BTreeSet<ObjectRef>,
    elsewhere: &BTreeSet<&ObjectRef>,
    found: &mut Diagnostics,
) -> BTreeMap<ObjectRef, usize> {
    let mut by_surface: BTreeMap<&ObjectRef, Vec<&Rule<'_>>> = BTreeMap::new();
    for rule in rules {
        by_surface.entry(&rule.surface).or_default().push(rule);
    }
    let mut tools = BTreeMap::new();
    for (surface, rules) in by_surface {
        let namespace = &rules[0].source.key.namespace;
        match open(objects, surface, namespace, &mut found.suggestions) {
            Ok(resolved) => {
                let offers_elevated = elevated.contains(surface);
                let named = check_rules_of(&resolved, &rules, offers_elevated, found);
                tools.insert(surface.clone(), named);
            }
            Err(_) if elsewhere.contains(surface) => {}
            Err(closed) => {
                for rule in rules {
                    let message = closed.message.clone();
                    found.add(&rule.subject(), rule.surface_field(), closed.code, message);
                }
            }
        }
    }
    tools
}

/// [`check_rules`] for the rules about one surface.
fn check_rules_of(
    resolved: &ResolvedSurface,
    rules: &[&Rule<'_>],
    offers_elevated: bool,
    found: &mut Diagnostics,
) -> usize {
    let mut tools: BTreeSet<&str> = BTreeSet::new();
    // Digests of the rules whose `*` was expanded. Many rules may have the same conditions, so each
    // digest is expanded once.
    let mut expanded: BTreeSet<&str> = BTreeSet::new();
    for rule in rules {
        let subject = rule.subject();
        let offer = match Offer::to(rule, resolved) {
            Ok(offer) => offer,
            Err(finding) => {
                finding.report(&subject, found);
                continue;
            }
        };
        let is_tool = rule.verb == Verb::Tool;
        let digest = rule.conditions.as_ref().map(|it| it.rule.digest.as_str());
        let all = match rule.allows_all() && is_tool && expanded.insert(digest.unwrap_or("")) {
            true => offer.names(),
            false => Vec::new(),
        };
        for name in all {
            match offer.suits(rule, name) {
                Ok(()) => drop(tools.insert(name)),
                Err(finding) => finding.report(&subject, found),
            }
        }
        for (index, name) in rule.names() {
            if offer.has(name) {
                match offer.suits(rule, name) {
                    Ok(()) => tools.extend(is_tool.then_some(name)),
                    Err(finding) => finding.report(&subject, found),
                }
            } else if !found.is_full() {
                let field = rule.name_field(index);
                offer
                    .not_found(field, name, &mut found.suggestions)
                    .report(&subject, found);
            }
        }
    }
    if offers_elevated {
        for name in tools.iter().filter(|name| is_elevated(resolved, name)) {
            let tool = format!("{}.{name}", resolved.subject.key.name);
            // The rules are those of one object.
            needs_approval("spec.tools", &tool).report(&rules[0].subject(), found);
        }
    }
    tools.len()
}

fn is_elevated(resolved: &ResolvedSurface, tool: &str) -> bool {
    let described = resolved
        .descriptor()
        .and_then(|descriptor| descriptor.tools.get(tool)?.as_ref().ok());
    described.is_some_and(|described| resolved.tier(tool, described) == Tier::Elevated)
}

/// Checks one ModelProvider. `None`: it does not exist.
pub fn check_provider(objects: &dyn Objects, provider: &ObjectRef) -> Option<ProviderReport> {
    let (key, provider) = (provider, objects.provider(provider)?);
    let subject = Subject::new(Kind::ModelProvider, key);
    let mut found = Diagnostics::default();
    let mut sources = Sources::default();
    let compiled = models::provider_of(objects, &subject, &provider, &mut sources, &mut found);
    let consumers = objects
        .agents_in(&key.namespace)
        .iter()
        .filter(|(agent_key, agent)| {
            let mut unused = Diagnostics::default();
            let policies = Policies::of(objects, agent_key);
            let mut effective =
                crate::compile::effective::merge(objects, agent_key, agent, &policies, &mut unused);
            let subject = effective.models_subject.clone();
            policies.restrict_models(
                objects,
                agent_key,
                &mut effective.models,
                &subject,
                &mut unused,
            );
            models::selected(effective.models.as_ref())(&key.name)
        })
        .count();
    Some(ProviderReport {
        keys: count(compiled.map_or(0, |compiled| compiled.keys.len())),
        consumers: count(consumers),
        diagnostics: found.into_sorted(),
        unread: unread(objects, &sources),
    })
}

/// Counts the agents of a ClusterToolPolicy. `None`: it does not exist, or no form of it can be read.
pub fn check_policy(objects: &dyn Objects, policy: &ObjectRef) -> Option<PolicyReport> {
    let all = objects.policies();
    let (_, policy) = all.iter().find(|(key, _)| key == policy)?;
    let agents = objects.all_agents();
    let matched = agents.iter().filter(|agent| {
        policy_matches(&policy.spec, agent, || {
            objects.namespace_labels(&agent.namespace)
        })
    });
    Some(PolicyReport {
        agents: count(matched.count()),
        is_tried_out: policy.spec.is_tried_out(),
        would_deny: None,
        diagnostics: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, Settings, load, plan_agent};

    const WORLD: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: reed, namespace: pond}
spec:
  url: https://reed.example
  auth: {secretKeyRef: {name: keys, key: token}}
  descriptor: {version: 2, tools: [{name: read, inputSchema: {type: object}, http: {method: GET, path: /}}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ModelProvider
metadata: {name: reef, namespace: pond}
spec:
  endpoints: [{dialect: OpenAI, url: https://reef.example/v1}]
  apiKeys: [{secretKeyRef: {name: keys, key: model}}]
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: reed}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: reads, namespace: pond}
spec: {agents: [otter], tools: [{surface: {name: reed}, allow: [read]}]}
"#;

    #[test]
    fn an_unreadable_secret_is_reported_with_the_gain_that_depends_on_it() {
        let texts = [("world.yaml".to_owned(), WORLD.to_owned())];
        let mut inputs = load(texts, Settings::default()).inputs;
        let keys = ObjectRef::new("pond", "keys");
        let why = "pond is not served".to_owned();
        inputs.set_secret(keys.clone(), Presence::Unknown(why.clone()));
        let unread = BTreeMap::from([(keys.clone(), why)]);
        let surface = check_surface(&inputs, &ObjectRef::new("pond", "reed")).expect("a surface");
        assert_eq!(surface.unread, unread);
        let provider = check_provider(&inputs, &ObjectRef::new("pond", "reef")).expect("one");
        assert_eq!(provider.unread, unread);

        let otter = ObjectRef::new("pond", "otter");
        let before = Inputs::offline(Settings::default());
        let plan = plan_agent(&before, &inputs, &otter).expect("a new agent");
        let lines: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "gains tool reed.read (ToolGrant pond/reads; if Secret pond/keys may be used)",
                "gains model reef/*",
                "gains provider reef (if Secret pond/keys may be used)",
            ]
        );

        inputs.set_secret(keys, Presence::Absent);
        let surface = check_surface(&inputs, &ObjectRef::new("pond", "reed")).expect("a surface");
        assert!(surface.unread.is_empty());
        assert_eq!(surface.diagnostics[0].code, Code::SecretNotFound);
    }
}
