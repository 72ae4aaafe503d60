//! One agent's compilation, step by step, and the checks of each kind of object.
//!
//! [`compile`] runs the steps in this order: the agent's settings ([`effective`], [`budgets`]), the policies above
//! it ([`authority::policies`]), its suspension ([`authority::suspension`]), the rules that name it
//! ([`authority`]), the surfaces that it may use ([`reach`], with the owner's consent), its tools and
//! feeds ([`tools`], [`credential`]), its providers ([`models`]), bounds on the result
//! ([`crate::compilation::bounds`]), its network ([`egress`]), its context, and the digest.

pub(crate) mod authority;
pub(crate) mod budgets;
pub(crate) mod check;
pub(crate) mod context;
pub(crate) mod credential;
pub(crate) mod effective;
pub(crate) mod egress;
pub(crate) mod models;
pub(crate) mod reach;
pub(crate) mod tools;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_crds::{Agent, Egress};
use toolcrib_manifest::{
    AgentFile, Context, Digests, FeedsFile, Mode, ProvidersFile, ServiceSettings, Suspension, Tls,
    ToolsExtension, ToolsFile, VERSION,
};

use self::authority::policies::Policies;
use self::authority::policies::models::DeniedModels;
use self::authority::{Authority, Rule, Verb};
use self::context::ContextSurface;
use self::effective::Effective;
use self::models::Providers;
use self::reach::Reach;
use self::tools::lower::FeedEntry;
use self::tools::rules::ToolEntry;
use self::work::Work;
use crate::compilation::bounds;
use crate::compilation::files::Files;
use crate::compilation::network::Network;
use crate::compilation::secrets::references_in;
use crate::diagnostics::{self, located};
use crate::names::feed_name;
use crate::objects::{Recorder, Unusable};
use crate::reference::surface_key;
use crate::{
    Code, Compilation, Diagnostic, Diagnostics, Inputs, Kind, ObjectRef, Objects, Severity,
    Subject, ToolSummary, manifest_digest, names,
};

/// Compiles one agent. `None`: the Agent does not exist or cannot be decoded.
pub fn compile(objects: &dyn Objects, agent: &ObjectRef) -> Option<Compilation> {
    let recorder = Recorder::new(objects);
    let objects = &recorder;
    let (key, agent) = (agent, &*objects.agent(agent)?);
    let mut work = Work::default();
    let mut effective = effective::merge(objects, key, agent, &mut work.found);
    let policies = Policies::of(objects, key);
    if let Some(most) = policies.max_tier() {
        effective.max_tier = effective.max_tier.min(most);
    }
    policies.lower_budgets(&mut effective.budgets);
    let suspension = authority::suspension::suspension(key, agent, &mut work.found)
        .or_else(|| policies.suspension(key, &mut work.found));
    // A suspended agent has nothing that a policy could withhold.
    let blocked = match &suspension {
        Some(_) => None,
        None => policies.blocks(key),
    };
    work.found.extend(blocked.clone());
    // A suspended agent is compiled as if it had no grants, surfaces and providers, so its
    // suspension waits for no other object. A blocked agent's files are not written.
    let is_idle = suspension.is_some() || blocked.is_some();
    let denied_models = match is_idle {
        true => DeniedModels::default(),
        false => policies.restrict_models(
            objects,
            key,
            &mut effective.models,
            &effective.models_subject,
            &mut work.found,
        ),
    };
    let authority = (!is_idle).then(|| Authority::of(objects, key, agent));
    let rules = authority.as_ref().map(Authority::rules).unwrap_or_default();
    let selectors = authority.as_ref().map(|it| it.by_selector(key));
    let reach = match is_idle {
        true => Vec::new(),
        false => reach::reach(objects, key, agent, &rules, &mut work),
    };
    report_unreached(objects, key, agent, &rules, &mut work);

    let mut lowered: Vec<ToolEntry<'_>> = reach
        .iter()
        .flat_map(|reach| {
            let rules = rules
                .get(&reach.resolved.subject.key)
                .map_or(&[][..], Vec::as_slice);
            tools::lower::tools(
                objects,
                key,
                reach,
                rules,
                effective.max_tier,
                &policies,
                &mut work,
            )
        })
        .collect();
    withhold_rules(key, &mut lowered, &mut work);
    let mut feeds: Vec<FeedEntry> = reach
        .iter()
        .flat_map(|reach| {
            let rules = rules
                .get(&reach.resolved.subject.key)
                .map_or(&[][..], Vec::as_slice);
            tools::lower::feeds(objects, key, reach, rules, &policies, &mut work)
        })
        .collect();
    if feeds.len() > bounds::MAX_FEEDS {
        let message = bounds::too_many_feeds();
        let subject = Subject::new(Kind::Agent, key);
        work.found.add(
            &subject,
            "spec.surfaces",
            Code::TooManyFeeds,
            message.clone(),
        );
        for FeedEntry { feed, .. } in feeds.drain(bounds::MAX_FEEDS..) {
            let name = feed_name(&feed.source, &feed.name);
            work.withhold(name, Code::TooManyFeeds, message.clone());
        }
    }
    let (tools, summaries): (Vec<_>, Vec<_>) = lowered
        .into_iter()
        .map(|lowered| (lowered.tool, lowered.summary))
        .unzip();
    let (feeds, mut feed_summaries): (Vec<_>, Vec<_>) = feeds
        .into_iter()
        .map(|lowered| (lowered.feed, lowered.summary))
        .unzip();

    // A surface that a policy denies is neither shown to the model nor opened for the pod.
    let reach: Vec<_> = reach
        .into_iter()
        .filter(|reach| !policies.over(objects, &reach.resolved).denies_all())
        .collect();

    let Providers {
        usable: providers,
        unserved,
    } = match is_idle {
        true => Providers::default(),
        false => models::providers(
            objects,
            &key.namespace,
            effective.models.as_ref(),
            &effective.models_subject,
            denied_models.cause.as_deref(),
            &mut work.sources,
            &mut work.found,
        ),
    };
    let mut files = Files {
        agent: agent_file(objects, key, &effective, suspension),
        tools: ToolsFile {
            version: VERSION,
            tools,
            policy: effective.policy,
            extension: ToolsExtension::default(),
        },
        providers: ProvidersFile {
            version: VERSION,
            providers,
        },
        feeds: FeedsFile(feeds),
    };
    files.tools.extension.services = services(&reach, &files);
    // In the files, the document's newlines and quotes take two bytes each.
    let prompt = match effective.context {
        Context::Prompt => 2 * context::MAX_PROMPT,
        Context::Mount | Context::None => 0,
    };
    for excess in bounds::enforce(&mut files, prompt) {
        let subject = Subject::new(Kind::Agent, key);
        work.found.add(
            &subject,
            "spec.surfaces",
            excess.code,
            excess.message.clone(),
        );
        work.withhold(excess.what, excess.code, excess.message);
    }
    let tools = remaining(summaries, &files);
    let given: BTreeSet<String> = files
        .feeds
        .0
        .iter()
        .map(|feed| format!("{}/{}", feed.source, feed.name))
        .collect();
    feed_summaries.retain(|summary| given.contains(&summary.name));
    let too_expensive = too_expensive(objects, key, &mut work.found);
    let refusal = too_expensive
        .clone()
        .or_else(|| blocked.clone())
        .or_else(|| no_model_provider(key, &files, unserved.as_deref(), &mut work.found));

    let egress = effective
        .egress
        // An Agent over its budget has no spec, so its network settings are unknown.
        .filter(|_| too_expensive.is_none());
    let network = match egress {
        Some(Egress::Unrestricted) => Network::Unrestricted,
        Some(Egress::Declared) => Network::Declared(egress::declared(
            objects,
            key,
            agent,
            &reach,
            &files.providers,
            &mut work.found,
        )),
        None => Network::Undecided,
    };
    let context = context_data(key, &effective, &reach, &mut files, &mut work.found);
    let manifest_digest = manifest_digest(&files);
    files.agent.digest = Some(Digests {
        manifest: manifest_digest.clone(),
        credentials: String::new(),
    });
    let used = references_in(&files);
    work.sources
        .0
        .retain(|reference, _| used.contains(reference));
    work.withheld.sort();
    work.withheld.dedup();
    Some(Compilation {
        agent: key.clone(),
        files,
        context,
        network,
        manifest_digest,
        policies: policies.names(),
        denied_models: denied_models.refs,
        selectors: selectors.unwrap_or_default(),
        blocked,
        unknown: recorder.unread(),
        sources: work.sources.0,
        tools,
        feeds: feed_summaries,
        withheld: work.withheld,
        diagnostics: work.found.into_sorted(),
        refusal,
    })
}

/// Compiles every agent.
pub fn compile_all(inputs: &Inputs) -> BTreeMap<ObjectRef, Compilation> {
    inputs
        .agents
        .keys()
        .filter_map(|agent| Some((agent.clone(), compile(inputs, agent)?)))
        .collect()
}

/// Reports rules about surfaces that the agent does not declare: both layers are needed. A surface
/// that does not exist is reported as such, since declaring it would not help.
fn report_unreached(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &Agent,
    rules: &BTreeMap<ObjectRef, Vec<Rule<'_>>>,
    work: &mut Work,
) {
    let entries = &agent.spec.surfaces;
    let declared: BTreeSet<ObjectRef> = entries
        .iter()
        .map(|entry| surface_key(key, entry))
        .collect();
    let aliases: BTreeSet<&String> = entries
        .iter()
        .map(|entry| entry.alias.as_ref().unwrap_or(&entry.name))
        .collect();
    for (surface, rules) in rules
        .iter()
        .filter(|(surface, _)| !declared.contains(*surface))
    {
        let elsewhere = authority::namesakes(surface, &declared).next().is_some();
        let missing = (!elsewhere && reach::consent::is_missing(objects, surface, &key.namespace))
            .then(|| reach::consent::not_found(objects, surface, &mut work.found.suggestions));
        for rule in rules {
            if work.is_full() {
                return;
            }
            let (code, message) = match &missing {
                // The check of the ToolDefaults reports it.
                Some(_) if rule.source.kind == Kind::ToolDefaults => continue,
                Some(missing) => (missing.code, missing.message.clone()),
                None => rule.not_declared_by(key, &declared, &mut work.found.suggestions),
            };
            let message_with_rule = located(&rule.subject(), &rule.surface_field(), &message);
            // ToolDefaults apply to every agent of the namespace and do not name this agent.
            if code.severity() == Severity::Warning {
                let subject = Subject::new(Kind::Agent, key);
                work.found
                    .add(&subject, "spec.surfaces", code, message_with_rule);
                continue;
            }
            work.found
                .add(&rule.subject(), rule.surface_field(), code, message);
            // The agent has no alias for the surface. Its own name stands in, unless another
            // surface has that alias.
            let alias = if aliases.contains(&rule.surface.name) {
                rule.surface.to_string()
            } else {
                rule.surface.name.clone()
            };
            for name in rule.allow {
                let what = match rule.verb {
                    Verb::Tool => format!("{alias}.{name}"),
                    Verb::Feed => feed_name(&alias, name),
                };
                work.withhold(what, code, message_with_rule.clone());
            }
        }
    }
}

/// Writes the rules into the tools, and reports those over the bound of an agent.
fn withhold_rules(key: &ObjectRef, lowered: &mut Vec<ToolEntry<'_>>, work: &mut Work) {
    let lost = tools::rules::write(lowered);
    if lost.is_empty() {
        return;
    }
    let message = tools::rules::too_many();
    let subject = Subject::new(Kind::Agent, key);
    work.found.add(
        &subject,
        "spec.surfaces",
        Code::TooManyRules,
        message.clone(),
    );
    for (tool, _) in lost.into_iter().filter(|(_, is_given)| !is_given) {
        work.withhold(tool, Code::TooManyRules, message.clone());
    }
}

fn agent_file(
    objects: &dyn Objects,
    key: &ObjectRef,
    effective: &Effective,
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
        prompt: None,
        provider_tools: effective.provider_tools,
        requires,
        suspension,
    }
}

/// Returns the CA bundles of the surfaces that have a tool or a feed in the files.
fn services(reach: &[Reach<'_>], files: &Files) -> BTreeMap<String, ServiceSettings> {
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

/// Returns the summaries of the tools that are still in the files.
fn remaining(mut summaries: Vec<ToolSummary>, files: &Files) -> Vec<ToolSummary> {
    let names: BTreeSet<&str> = files.tools.tools.iter().map(|tool| &*tool.name).collect();
    summaries.retain(|summary| names.contains(&*summary.name));
    summaries
}

/// Reports an Agent over a memory budget. It is compiled without its spec, so it gets nothing: if
/// its older files stayed in force, growing an Agent would freeze a revoked grant.
fn too_expensive(
    objects: &dyn Objects,
    key: &ObjectRef,
    found: &mut Diagnostics,
) -> Option<Diagnostic> {
    let Unusable { code, reason } = objects.unusable(Kind::Agent, key)?;
    let refusal = Diagnostic {
        object: Subject::new(Kind::Agent, key),
        field: String::new(),
        code,
        severity: code.severity(),
        message: reason,
    };
    found.extend([refusal.clone()]);
    Some(refusal)
}

/// Reports an agent without a model: as an error if it holds tools, which no model can call, and as
/// a warning otherwise. A native runner calls tools itself and may get its model from elsewhere.
/// `unserved` is the cause, if a model or provider is at fault.
fn no_model_provider(
    key: &ObjectRef,
    files: &Files,
    unserved: Option<&str>,
    found: &mut Diagnostics,
) -> Option<Diagnostic> {
    match files.agent.mode {
        Mode::Native => return None,
        Mode::Mediated => {}
    }
    // A suspension is reported by itself.
    if !files.providers.providers.is_empty() || files.agent.suspension.is_some() {
        return None;
    }
    let (subject, field) = (Subject::new(Kind::Agent, key), "spec.models");
    if files.tools.tools.is_empty() {
        let message = match unserved {
            Some(why) => format!("requests for a model are refused: {why}"),
            None => format!(
                "requests for a model are refused, since no usable ModelProvider of namespace {} serves one for this agent: create one, correct spec.models, or set mode: Native if its runner gets its model from elsewhere",
                key.namespace
            ),
        };
        let message = toolcrib_bounds::cut(&message, diagnostics::MESSAGE);
        found.add(&subject, field, Code::NoModel, message);
        return None;
    }
    let message = match unserved {
        Some(why) => format!("no model can call the agent's tools: {why}"),
        None => format!(
            "the agent holds tools, and no usable ModelProvider of namespace {} serves a model for it: create one, correct spec.models, or set mode: Native if its runner calls tools over MCP",
            key.namespace
        ),
    };
    let refusal = Diagnostic {
        object: subject,
        field: field.to_owned(),
        code: Code::NoModelProvider,
        severity: Code::NoModelProvider.severity(),
        message: toolcrib_bounds::cut(&message, diagnostics::MESSAGE).into_owned(),
    };
    found.extend([refusal.clone()]);
    Some(refusal)
}

/// Returns the data of the context ConfigMap: the tools document, the skills that it names, and
/// the file that connects a runner to `/mcp`.
fn context_data(
    key: &ObjectRef,
    effective: &Effective,
    reach: &[Reach<'_>],
    files: &mut Files,
    found: &mut Diagnostics,
) -> BTreeMap<String, String> {
    let mut data = documents(key, effective, reach, files, found);
    if effective.offers_mcp() {
        data.insert(
            names::MCP_CONFIG.to_owned(),
            context::mcp_config::of(effective.runner),
        );
    }
    data
}

/// Returns the tools document and the skills. With `context: Prompt` the document goes into the
/// files instead.
fn documents(
    key: &ObjectRef,
    effective: &Effective,
    reach: &[Reach<'_>],
    files: &mut Files,
    found: &mut Diagnostics,
) -> BTreeMap<String, String> {
    if effective.context == Context::None {
        return BTreeMap::new();
    }
    let shown: Vec<ContextSurface<'_>> = reach
        .iter()
        .filter_map(|reach| {
            let descriptor = reach.resolved.descriptor()?;
            // If a surface declares tools, runners do not call its endpoints by hand, even if no
            // tool is valid.
            let manual = !descriptor.declares_tools;
            Some(ContextSurface {
                name: &reach.alias,
                description: &descriptor.description,
                skill: reach.resolved.skill.as_deref(),
                endpoints: if manual { &descriptor.endpoints } else { &[] },
                base_url: reach
                    .resolved
                    .address
                    .as_ref()
                    .ok()
                    .map(|address| &*address.base_url),
            })
        })
        .collect();
    let (mut data, left_out) = context::render(&files.agent, &files.tools.tools, &shown);
    for surface in left_out {
        found.add(
            &Subject::new(Kind::Agent, key),
            "spec.surfaces",
            Code::ManifestTooLarge,
            format!("the skill of {surface} does not fit into the context: shorten it"),
        );
    }
    if effective.context == Context::Prompt
        && let Some(document) = data.remove(names::CONTEXT_DOCUMENT)
    {
        let (prompt, cut) = context::for_prompt(document);
        if cut {
            found.add(
                &Subject::new(Kind::Agent, key),
                "spec.context",
                Code::ManifestTooLarge,
                format!(
                    "the tools document is cut at {} bytes, since each request carries it: grant fewer tools, or use Mount",
                    context::MAX_PROMPT
                ),
            );
        }
        files.agent.prompt = Some(prompt);
    }
    data
}
