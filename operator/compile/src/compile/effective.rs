//! Merges an agent's settings field by field: its own, else those of the namespace's
//! ToolDefaults, else the built-in ones. Policies above them restrict the egress here, since other
//! settings follow from it; what else they restrict is applied by [`super::compile`].

use std::time::Duration;

use toolcrib_crds::{
    Agent, DefaultsUse, DurationText, Egress, Identity, Policy, ProviderTools, Runner,
};
use toolcrib_manifest as manifest;

use crate::compile::authority::includes_defaults;
use crate::compile::authority::policies::{Policies, PolicyName};
use crate::compile::budgets::Budgets;
use crate::diagnostics::finding::Finding;
use crate::objects::Unusable;
use crate::{Code, Diagnostics, Kind, ObjectRef, Objects, Subject, names};

/// The maximum tier if neither the agent nor its ToolDefaults set one: deleting ToolDefaults gives
/// no agent an Elevated tool.
const BUILT_IN_MAX_TIER: manifest::Tier = manifest::Tier::System;

/// Limits the time for which a call waits for an approval.
const LONGEST_APPROVAL_WAIT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(crate) struct Effective {
    pub mode: manifest::Mode,
    /// Whether the mediator serves `/mcp` beside `mode: Mediated`.
    pub native: bool,
    pub runner: Runner,
    pub identity: manifest::Identity,
    pub context: manifest::Context,
    pub streaming: manifest::Streaming,
    pub max_tier: manifest::Tier,
    pub policy: manifest::Policy,
    pub provider_tools: manifest::ProviderTools,
    /// Features that a mediator must enforce to serve the agent.
    pub requires: Vec<String>,
    pub models: Option<manifest::Models>,
    pub budgets: Budgets,
    /// The object that sets `models`, for findings.
    pub models_subject: Subject,
    /// `None`: ToolDefaults decide and cannot be read.
    pub egress: Option<Egress>,
    /// The policies that set `egress: Declared`.
    pub egress_policies: Vec<String>,
}

impl Effective {
    /// Whether the runner may call the tools itself.
    pub fn offers_mcp(&self) -> bool {
        self.native || self.mode == manifest::Mode::Native
    }

    /// Lowers the maximum tier and the budgets to those of the policies.
    pub fn restrict(&mut self, policies: &Policies) {
        if let Some(most) = policies.max_tier() {
            self.max_tier = self.max_tier.min(most);
        }
        policies.lower_budgets(&mut self.budgets);
    }
}

pub(crate) fn merge(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &Agent,
    policies: &Policies,
    found: &mut Diagnostics,
) -> Effective {
    let own = Subject::new(Kind::Agent, key);
    let theirs = Subject::new(
        Kind::ToolDefaults,
        &ObjectRef::new(key.namespace.clone(), names::TOOL_DEFAULTS),
    );
    let defaults = match includes_defaults(agent) {
        true => objects.defaults(&theirs.key),
        false => None,
    };
    let absent = absent_defaults(objects, agent, defaults.is_some(), &theirs);
    let default_spec = defaults.as_ref().map(|defaults| &defaults.spec);
    let spec = &agent.spec;
    let empty = Policy::default();
    let policy = Layers {
        own: (&own, spec.policy.as_ref().unwrap_or(&empty)),
        theirs: (
            &theirs,
            default_spec
                .and_then(|defaults| defaults.policy.as_ref())
                .unwrap_or(&empty),
        ),
    };

    let mode = pick(
        (&own, spec.mode),
        (&theirs, default_spec.and_then(|defaults| defaults.mode)),
    );
    let egress = pick(
        (&own, spec.egress),
        (&theirs, default_spec.and_then(|defaults| defaults.egress)),
    );
    let context = pick(
        (&own, spec.context),
        (&theirs, default_spec.and_then(|defaults| defaults.context)),
    );
    let declared_by = policies.declaring_egress().next().map(PolicyName);
    let egress = match (declared_by, egress, &absent) {
        (Some(_), _, _) => Some(Egress::Declared),
        (None, Some((_, egress)), _) => Some(egress),
        (None, None, None) => Some(Egress::Unrestricted),
        (None, None, Some(_)) => None,
    };
    if !spec.extra_egress.is_empty() && egress == Some(Egress::Unrestricted) {
        found.add(
            &own,
            "spec.extraEgress",
            Code::ExtraEgressIgnored,
            "means nothing without egress: Declared, which neither the agent nor the ToolDefaults set: set egress: Declared, or remove extraEgress",
        );
    }

    let context = match context {
        Some((_, context)) => context.into(),
        None => manifest::Context::Mount,
    };
    let streaming = policy
        .pick(|policy| policy.streaming)
        .map_or(manifest::Streaming::Buffered, |(_, it)| it.into());
    let (provider_tools, requires) =
        provider_tools(&policy, egress, declared_by, absent.is_some(), found);
    // An unknown maximum could be any tier; the lowest is safe.
    let built_in_tier = match absent {
        None => BUILT_IN_MAX_TIER,
        Some(absent) => {
            absent.report(&own, found);
            manifest::Tier::ReadOnly
        }
    };
    let (models, models_subject) = models(
        spec.models.as_ref(),
        default_spec.and_then(|d| d.models.as_ref()),
        &own,
        &theirs,
    );
    Effective {
        mode: mode.map_or(manifest::Mode::Mediated, |(_, mode)| mode.into()),
        native: spec.native == Some(true),
        runner: spec.runner.unwrap_or(Runner::Generic),
        identity: match spec.identity {
            None | Some(Identity::Agent) => manifest::Identity::Agent,
            Some(Identity::Pod) => manifest::Identity::Pod,
        },
        context,
        streaming,
        max_tier: policy
            .pick(|policy| policy.max_tier)
            .map_or(built_in_tier, |(_, tier)| tier.into()),
        policy: turn_limits(&policy, found),
        provider_tools,
        requires,
        budgets: Budgets::merge(
            &spec.budgets,
            default_spec.map_or(&[], |defaults| &defaults.budgets),
        ),
        models,
        models_subject,
        egress,
        egress_policies: policies.declaring_egress().map(str::to_owned).collect(),
    }
}

/// Returns why the ToolDefaults that the agent relies on are missing. An unset `toolDefaults`
/// includes those of the namespace, if any. A written `Include` requires them: a missing object
/// must not widen the agent, or deleting it would lift its `maxTier`.
fn absent_defaults(
    objects: &dyn Objects,
    agent: &Agent,
    found: bool,
    theirs: &Subject,
) -> Option<Finding> {
    const MEANWHILE: &str = "no agent gets anything of them, the provider executes no tools, and only ReadOnly tools pass; correct them, or set policy.maxTier at this agent";
    if found || !includes_defaults(agent) {
        return None;
    }
    let finding = |code, why: String| {
        Some(Finding::new(
            "spec.toolDefaults",
            code,
            format!("{why}: {MEANWHILE}"),
        ))
    };
    match objects.unusable(Kind::ToolDefaults, &theirs.key) {
        Some(Unusable { code, reason }) => finding(
            code,
            if code == Code::TooExpensive {
                format!("the namespace's ToolDefaults are left out ({reason})")
            } else {
                format!("the namespace's ToolDefaults cannot be decoded ({reason})")
            },
        ),
        None if agent.spec.tool_defaults == Some(DefaultsUse::Include) => finding(
            Code::DefaultsNotFound,
            format!("ToolDefaults {} not found: create them", theirs.key),
        ),
        None => None,
    }
}

/// Returns a field of the agent, else of the defaults, with the object that sets it.
fn pick<'a, T>(
    own: (&'a Subject, Option<T>),
    theirs: (&'a Subject, Option<T>),
) -> Option<(&'a Subject, T)> {
    own.1
        .map(|value| (own.0, value))
        .or_else(|| theirs.1.map(|value| (theirs.0, value)))
}

struct Layers<'a> {
    own: (&'a Subject, &'a Policy),
    theirs: (&'a Subject, &'a Policy),
}

impl<'a> Layers<'a> {
    fn pick<T>(&self, field: impl Fn(&'a Policy) -> Option<T>) -> Option<(&'a Subject, T)> {
        pick(
            (self.own.0, field(self.own.1)),
            (self.theirs.0, field(self.theirs.1)),
        )
    }
}

/// Decides whether the provider may execute tools. Refuse wins, whether from the agent, the
/// defaults, or `egress: Declared`, which a provider's tools would bypass. Required defaults that
/// are missing count as Refuse, since they could contain it.
///
/// A written Refuse is required of mediators. One that follows from the egress alone is not:
/// earlier releases did not enforce it, and their mediators would serve nothing until their pods
/// are recreated.
fn provider_tools(
    policy: &Layers<'_>,
    egress: Option<Egress>,
    declared_by: Option<PolicyName<'_>>,
    absent: bool,
    found: &mut Diagnostics,
) -> (manifest::ProviderTools, Vec<String>) {
    const FIELD: &str = "spec.policy.providerTools";
    let written = [policy.own, policy.theirs].map(|(at, layer)| (at, layer.provider_tools));
    let refused = written
        .iter()
        .find(|(_, value)| *value == Some(ProviderTools::Refuse));
    let required = vec![manifest::names::PROVIDER_TOOLS.to_owned()];
    let (why, requires) = if let Some((at, _)) = refused {
        (
            format!("{at} says Refuse, which wins: remove one of the two"),
            required,
        )
    } else if absent {
        let why = "the ToolDefaults were not found, and could say Refuse, which is in force: create them, or remove providerTools";
        (why.to_owned(), required)
    } else if let Some(policy) = declared_by {
        let why = format!(
            "{policy} sets egress: Declared, with which it is Refuse, since the provider would reach what the agent's pods may not: remove providerTools, or ask an admin of the cluster to change the policy"
        );
        (why, Vec::new())
    } else if egress == Some(Egress::Declared) {
        let why = "with egress: Declared it is Refuse, since the provider would reach what the agent's pods may not: remove providerTools, or set egress: Unrestricted";
        (why.to_owned(), Vec::new())
    } else {
        return (manifest::ProviderTools::Allow, Vec::new());
    };
    for (at, value) in written {
        if value == Some(ProviderTools::Allow) {
            let message = format!("Allow is not in force: {why}");
            found.add(at, FIELD, Code::ProviderToolsRefused, message);
        }
    }
    (manifest::ProviderTools::Refuse, requires)
}

fn turn_limits(policy: &Layers<'_>, found: &mut Diagnostics) -> manifest::Policy {
    let built_in = manifest::Policy::default();
    let mut at_least_one = |field: &str, value: Option<(&Subject, u32)>, built_in: u64| match value
    {
        Some((at, 0)) => {
            found.add(
                at,
                field,
                Code::InvalidValue,
                format!("is 0, {built_in} is in force: write at least 1"),
            );
            built_in
        }
        Some((_, value)) => value.into(),
        None => built_in,
    };
    let max_rounds = at_least_one(
        "spec.policy.maxRounds",
        policy.pick(|policy| policy.max_rounds),
        built_in.max_rounds.into(),
    );
    let max_tool_result_bytes = at_least_one(
        "spec.policy.maxToolResultBytes",
        policy.pick(|policy| policy.max_tool_result_bytes),
        built_in.max_tool_result_bytes,
    );
    let written = policy.pick(|policy| policy.approval_wait.as_ref());
    let approval_wait_ms = written.and_then(|(at, text)| approval_wait(at, text, found));
    let mut millis = |field: &str, value: Option<(&Subject, &DurationText)>, built_in: u64| {
        let Some((at, text)) = value else {
            return built_in;
        };
        match text.parse() {
            Ok(duration) => u64::try_from(duration.as_millis()).unwrap_or(built_in),
            Err(error) => {
                found.add(
                    at,
                    field,
                    Code::InvalidValue,
                    format!("{error}; {built_in}ms is in force"),
                );
                built_in
            }
        }
    };
    manifest::Policy {
        approval_wait_ms,
        max_rounds: u32::try_from(max_rounds).unwrap_or(built_in.max_rounds),
        timeout_per_tool_ms: millis(
            "spec.policy.toolTimeout",
            policy.pick(|policy| policy.tool_timeout.as_ref()),
            built_in.timeout_per_tool_ms,
        ),
        total_timeout_ms: millis(
            "spec.policy.totalTimeout",
            policy.pick(|policy| policy.total_timeout.as_ref()),
            built_in.total_timeout_ms,
        ),
        max_tool_result_bytes,
    }
}

/// Reads the time for which a call waits for an approval. `None`: the built-in one is in force.
fn approval_wait(at: &Subject, text: &DurationText, found: &mut Diagnostics) -> Option<u64> {
    let why = match text.parse() {
        Ok(wait) if wait <= LONGEST_APPROVAL_WAIT => return u64::try_from(wait.as_millis()).ok(),
        Ok(_) => format!("{:?} is more than 10m: write at most that", text.0),
        Err(error) => error.to_string(),
    };
    let message = format!("{why}; 2m is in force");
    found.add(at, "spec.policy.approvalWait", Code::InvalidValue, message);
    None
}

/// Merges the models field by field; an empty list counts as unset. `None`: no policy at all.
fn models(
    own: Option<&toolcrib_crds::Models>,
    theirs: Option<&toolcrib_crds::Models>,
    own_subject: &Subject,
    their_subject: &Subject,
) -> (Option<manifest::Models>, Subject) {
    let subject = if own.is_some() {
        own_subject
    } else {
        their_subject
    };
    if own.is_none() && theirs.is_none() {
        return (None, own_subject.clone());
    }
    let list = |field: fn(&toolcrib_crds::Models) -> &Vec<String>| {
        [own, theirs]
            .into_iter()
            .flatten()
            .map(field)
            .find(|list| !list.is_empty())
            .cloned()
            .unwrap_or_default()
    };
    let models = manifest::Models {
        default: own
            .and_then(|models| models.default.clone())
            .or_else(|| theirs.and_then(|models| models.default.clone())),
        allowed: list(|models| &models.allowed),
        fallbacks: list(|models| &models.fallbacks),
        unknown: own
            .and_then(|models| models.unknown)
            .or_else(|| theirs.and_then(|models| models.unknown))
            .map_or(manifest::UnknownModel::Refuse, Into::into),
        matching: Vec::new(),
    };
    (Some(models), subject.clone())
}
