//! One agent's compilation, step by step, and the checks of each kind of object.
//!
//! [`compile`] runs the steps in this order: the agent's settings ([`effective`], [`budgets`]), the
//! policies above it ([`authority::policies`]), what stops it ([`refusal::Stop`]), the rules that name
//! it ([`authority`]), the surfaces that it may use ([`reach`], with the owner's consent), its tools
//! and feeds ([`tools`], [`credential`]), its providers ([`models`]), its files and their bounds
//! ([`files`]), the reason to refuse them ([`refusal`]), its network ([`egress`]), and its [`context`].

pub(crate) mod authority;
pub(crate) mod budgets;
pub(crate) mod check;
pub(crate) mod context;
pub(crate) mod credential;
pub(crate) mod effective;
pub(crate) mod egress;
mod files;
pub(crate) mod models;
pub(crate) mod reach;
mod refusal;
pub(crate) mod tools;
pub(crate) mod work;

use std::collections::BTreeMap;

use toolcrib_manifest::{FeedsFile, ProvidersFile, ToolsExtension, ToolsFile, VERSION};

use self::authority::Authority;
use self::authority::policies::Policies;
use self::authority::policies::models::DeniedModels;
use self::models::Providers;
use self::refusal::Stop;
use self::work::Work;
use crate::compilation::files::Files;
use crate::objects::Recorder;
use crate::{Compilation, Inputs, ObjectRef, Objects};

/// Compiles one agent. `None`: the Agent does not exist or cannot be decoded.
pub fn compile(objects: &dyn Objects, agent: &ObjectRef) -> Option<Compilation> {
    let recorder = Recorder::new(objects);
    let objects = &recorder;
    let (key, agent) = (agent, &*objects.agent(agent)?);
    let mut work = Work::default();

    let policies = Policies::of(objects, key);
    let mut effective = effective::merge(objects, key, agent, &policies, &mut work.found);
    effective.restrict(&policies);
    let stop = Stop::of(key, agent, &policies, &mut work.found);
    let (mut denied_models, mut authority) = (DeniedModels::default(), Authority::default());
    if !stop.is_idle() {
        let (models, listed_by) = (&mut effective.models, &effective.models_subject);
        denied_models = policies.restrict_models(objects, key, models, listed_by, &mut work.found);
        authority = Authority::of(objects, key, agent);
    }

    let rules = authority.rules();
    let mut reach = Vec::new();
    if !stop.is_idle() {
        reach = reach::reach(objects, key, agent, &rules, &mut work);
    }
    reach::unreached::report(objects, key, agent, &rules, &mut work);
    let max_tier = effective.max_tier;
    let entries = tools::entries(objects, key, &reach, &rules, max_tier, &policies, &mut work);
    // A surface that a policy denies is neither shown to the model nor opened for the pod.
    reach.retain(|reach| !policies.over(objects, &reach.resolved).denies_all());
    let mut providers = Providers::default();
    if !stop.is_idle() {
        let denied = denied_models.cause.as_deref();
        providers = models::providers(objects, key, &effective, denied, &mut work);
    }

    let policy_names = policies.names();
    let mut files = Files {
        agent: files::agent_file(objects, key, &effective, &policy_names, stop.suspension),
        tools: ToolsFile {
            version: VERSION,
            tools: entries.tools,
            policy: effective.policy,
            extension: ToolsExtension::default(),
        },
        providers: ProvidersFile {
            version: VERSION,
            providers: providers.usable,
        },
        feeds: FeedsFile(entries.feeds),
    };
    files.tools.extension.services = files::services(&reach, &files);
    files::fit(key, effective.context, &mut files, &mut work);
    let mut summaries = entries.summaries;
    summaries.keep_those_in(&files);
    let refusal = refusal::too_expensive(objects, key, &mut work.found)
        .or_else(|| stop.blocked.clone())
        .or_else(|| {
            let unserved = providers.unserved.as_deref();
            refusal::no_model_provider(key, &files, unserved, &mut work.found)
        });

    let network = egress::network(
        objects,
        key,
        agent,
        &effective,
        &reach,
        &files.providers,
        &mut work.found,
    );
    let context = context::data(key, &effective, &reach, &mut files, &mut work.found);
    let manifest_digest = files::seal(&mut files);
    work.keep_used(&files);
    Some(Compilation {
        agent: key.clone(),
        context,
        network,
        manifest_digest,
        policies: policy_names,
        denied_models: denied_models.refs,
        selectors: authority.by_selector(key),
        blocked: stop.blocked,
        unknown: recorder.unread(),
        sources: work.sources.0,
        tools: summaries.tools,
        feeds: summaries.feeds,
        withheld: work.withheld,
        diagnostics: work.found.into_sorted(),
        refusal,
        files,
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
