//! Turns the tools and feeds that a surface describes and grants name into entries of the files.

use crate::names::feed_name;
use std::collections::BTreeMap;

use toolcrib_crds::PolicyRequirement;
use toolcrib_manifest::{
    Execution, Feed, FeedAuth, GrantRef, Tier, Tool, ToolExtension, Transport,
};

use super::offer::Offer;
use super::rules::{LiftedLimits, MAX_RULES, ToolEntry, ToolRules, requires_approval};
use crate::canonical::digest::entry_digest;
use crate::compilation::{FeedSummary, GrantSource, ToolSummary};
use crate::compile::authority::conditions::Conditions;
use crate::compile::authority::policies::surfaces::TrialFinding;
use crate::compile::authority::policies::{Policies, PolicyName};
use crate::compile::authority::{ALL, Rule, Verb};
use crate::compile::credential::{self, Credential, CredentialError};
use crate::compile::reach::Reach;
use crate::compile::work::Work;
use crate::diagnostics::finding::Finding;
use crate::diagnostics::located;
use crate::routes::address::is_relative;
use crate::surface::descriptor::DescribedTool;
use crate::{Code, Kind, Leads, ObjectRef, Objects, Subject};

/// Returns the tools of one surface that the rules give, in name order. All other tools that the
/// rules name are recorded as withheld.
pub(crate) fn tools<'r>(
    objects: &dyn Objects,
    agent: &ObjectRef,
    reach: &Reach<'_>,
    rules: &'r [Rule<'_>],
    max_tier: Tier,
    policies: &Policies,
    work: &mut Work,
) -> Vec<ToolEntry<'r>> {
    let matched = matched_names(reach, rules, Verb::Tool, work);
    if matched.is_empty() {
        return Vec::new();
    }
    let (base_url, credential) = match callable(objects, agent, reach, work) {
        Ok(callable) => callable,
        Err((code, message)) => {
            for name in matched.into_keys() {
                work.withhold(format!("{}.{name}", reach.alias), code, message.clone());
            }
            return Vec::new();
        }
    };
    let Some(descriptor) = reach.resolved.descriptor() else {
        return Vec::new();
    };
    let policies = policies.over(objects, &reach.resolved);
    let mut lowered = Vec::new();
    for (
        name,
        MatchedRules {
            first: grant,
            rules,
        },
    ) in matched
    {
        let Some(described) = descriptor.tools.get(name) else {
            continue;
        };
        let canonical = format!("{}.{name}", reach.alias);
        let result = described
            .as_ref()
            .map_err(|finding| reach.resolved.in_descriptor(finding))
            .and_then(|described| {
                let tier = reach.resolved.tier(name, described);
                policies.allow_tool(name, described, tier)?;
                within_maximum(tier, max_tier)?;
                let execution = execution(reach, name, described, &base_url, &credential)?;
                Ok((described, tier, execution))
            });
        match result {
            Err(finding) => {
                let on_agent =
                    matches!(finding.code, Code::TierAboveMaximum | Code::DeniedByPolicy);
                let subject = if on_agent {
                    Subject::new(Kind::Agent, agent)
                } else {
                    reach.resolved.subject.clone()
                };
                let message = if on_agent {
                    format!("{canonical} {}", finding.message)
                } else {
                    finding.message
                };
                let why = located(&subject, &finding.field, &message);
                work.found
                    .add(&subject, finding.field, finding.code, message);
                work.withhold(canonical, finding.code, why);
            }
            Ok((described, tier, execution)) => {
                let risk = Risk {
                    tier,
                    approval: policies.approval_of(name, described, tier),
                };
                report_approval(agent, &grant, &canonical, &risk, work);
                if rules.are_incomplete() {
                    let message = too_many_rules(&canonical);
                    let on_agent = Subject::new(Kind::Agent, agent);
                    work.found
                        .add(&on_agent, "spec.surfaces", Code::TooManyRules, message);
                }
                if let Some(lifted) = rules.lifted() {
                    lifted_limits(&lifted, &canonical, work);
                }
                let would_deny = policies.would_deny_tool(name, described, tier);
                let would_deny = tried_out(agent, &canonical, would_deny, work);
                let (mut tool, mut summary) = lower(
                    canonical,
                    described,
                    risk,
                    execution,
                    grant,
                    &credential,
                    reach,
                );
                tool.extension.would_deny = would_deny.first().cloned();
                summary.would_deny = would_deny;
                lowered.push(ToolEntry {
                    tool,
                    summary,
                    rules,
                });
            }
        }
    }
    lowered
}

/// One feed of the files, and its summary for status.
pub(crate) struct FeedEntry {
    pub feed: Feed,
    pub summary: FeedSummary,
}

/// Returns the feeds of one surface that the rules give.
pub(crate) fn feeds(
    objects: &dyn Objects,
    agent: &ObjectRef,
    reach: &Reach<'_>,
    rules: &[Rule<'_>],
    policies: &Policies,
    work: &mut Work,
) -> Vec<FeedEntry> {
    let matched = matched_names(reach, rules, Verb::Feed, work);
    if matched.is_empty() {
        return Vec::new();
    }
    let policies = policies.over(objects, &reach.resolved);
    if let Err(finding) = policies.allow_feeds() {
        let subject = Subject::new(Kind::Agent, agent);
        for name in matched.into_keys() {
            let what = feed_name(&reach.alias, name);
            let message = format!("{what} {}", finding.message);
            let why = located(&subject, &finding.field, &message);
            let field = finding.field.clone();
            work.found.add(&subject, field, finding.code, message);
            work.withhold(what, finding.code, why);
        }
        return Vec::new();
    }
    let withhold_all = |work: &mut Work, code: Code, message: &str| {
        for name in matched.keys() {
            work.withhold(feed_name(&reach.alias, name), code, message.to_owned());
        }
    };
    let (base_url, credential) = match callable(objects, agent, reach, work) {
        Ok(callable) => callable,
        Err((code, message)) => {
            withhold_all(work, code, &message);
            return Vec::new();
        }
    };
    let Some(descriptor) = reach.resolved.descriptor() else {
        return Vec::new();
    };
    let mut lowered = Vec::new();
    for (name, MatchedRules { first: grant, .. }) in matched {
        match descriptor.feeds.get(name) {
            None => {}
            Some(Err(finding)) => {
                let finding = reach.resolved.in_descriptor(finding);
                let subject = &reach.resolved.subject;
                let why = located(subject, &finding.field, &finding.message);
                finding.report(subject, &mut work.found);
                work.withhold(feed_name(&reach.alias, name), finding.code, why);
            }
            Some(Ok(feed)) => {
                let what = feed_name(&reach.alias, name);
                tried_out(agent, &what, policies.would_deny_feeds(), work);
                lowered.push(FeedEntry {
                    feed: Feed {
                        name: name.to_owned(),
                        source: reach.alias.clone(),
                        path: feed.path.clone(),
                        ttl: feed.ttl,
                        url: format!("{base_url}{}", feed.path),
                        auth: credential.auth.clone().map(FeedAuth::Full),
                        foreign: reach.foreign,
                    },
                    summary: FeedSummary {
                        name: format!("{}/{name}", reach.alias),
                        grant,
                        credential: credential.kind,
                    },
                });
            }
        }
    }
    lowered
}

/// The rules that give one tool or feed.
struct MatchedRules<'r> {
    /// The first object, in name order.
    first: GrantSource,
    rules: ToolRules<'r>,
}

/// Returns the names that the rules allow and this surface offers, each with its rules. A name that
/// is not offered, or a condition that the tool cannot have, is an error on the rule's object and a
/// withheld item of the agent. Such a condition withholds the tool only if no other rule gives it.
fn matched_names<'n, 'r: 'n>(
    reach: &'n Reach<'_>,
    rules: &'r [Rule<'_>],
    verb: Verb,
    work: &mut Work,
) -> BTreeMap<&'n str, MatchedRules<'r>> {
    let mut names: BTreeMap<&str, MatchedRules<'r>> = BTreeMap::new();
    let mut unsuited: BTreeMap<&str, (Code, String)> = BTreeMap::new();
    // Rules without conditions give the same, so only the first object is kept. Many rules may
    // allow `*`, and a surface may have many tools.
    let mut unconditional: BTreeMap<&str, Unconditional<'r>> = BTreeMap::new();
    let mut everything: Option<(Unconditional<'r>, Offer<'_>)> = None;
    let mut expanded = 0_usize;
    let what = |name: &str| match verb {
        Verb::Tool => format!("{}.{name}", reach.alias),
        Verb::Feed => feed_name(&reach.alias, name),
    };
    for rule in rules.iter().filter(|rule| rule.verb == verb) {
        let report = |finding: Finding, work: &mut Work| {
            let why = located(&rule.subject(), &finding.field, &finding.message);
            finding.report(&rule.subject(), &mut work.found);
            (finding.code, format!("because of {why}"))
        };
        let offer = Offer::to(rule, &reach.resolved);
        let (offer, conditions) = match (offer, &rule.conditions) {
            (Ok(offer), Ok(conditions)) => (offer, conditions),
            (Err(finding), _) => {
                let (code, message) = report(finding, work);
                work.withhold(what(ALL), code, message);
                continue;
            }
            (Ok(_), Err(finding)) => {
                let (code, message) = report(finding.clone(), work);
                work.withhold(what(ALL), code, message);
                continue;
            }
        };
        let is_unconditional = conditions.rule.is_unconditional();
        let this = (&rule.source, conditions);
        let mut given: Vec<&str> = Vec::new();
        if rule.allows_all() && is_unconditional {
            if everything.is_none_or(|(first, _)| this.0 < first.0) {
                everything = Some((this, offer));
            }
        } else if rule.allows_all() && expanded < MAX_RULES {
            expanded += 1;
            given = offer.names();
        } else if rule.allows_all() {
            let finding = Finding::new(
                rule.field.clone(),
                Code::TooManyRules,
                too_many_of_everything(),
            );
            let (code, message) = report(finding, work);
            work.withhold(what(ALL), code, message);
        } else {
            for (index, name) in rule.names() {
                if offer.has(name) {
                    given.push(name);
                } else if !work.is_full() {
                    let field = rule.name_field(index);
                    let finding = offer.not_found(field, name, &mut work.found.suggestions);
                    let (code, message) = report(finding, work);
                    work.withhold(what(name), code, message);
                }
            }
        }
        if is_unconditional {
            for name in given {
                let first = unconditional.entry(name).or_insert(this);
                *first = first_of(*first, this);
            }
            continue;
        }
        for name in given {
            if let Err(finding) = offer.suits(rule, name) {
                let why = report(finding, work);
                unsuited.entry(name).or_insert(why);
                continue;
            }
            let matched = names.entry(name).or_insert_with(|| MatchedRules {
                first: rule.source.clone(),
                rules: ToolRules::default(),
            });
            if rule.source < matched.first {
                matched.first = rule.source.clone();
            }
            matched.rules.add(rule.source.kind, conditions);
        }
    }
    if let Some((this, offer)) = everything {
        for name in offer.names() {
            let first = unconditional.entry(name).or_insert(this);
            *first = first_of(*first, this);
        }
    }
    for (name, (source, conditions)) in unconditional {
        let matched = names.entry(name).or_insert_with(|| MatchedRules {
            first: source.clone(),
            rules: ToolRules::default(),
        });
        if *source < matched.first {
            matched.first = source.clone();
        }
        matched.rules.add(source.kind, conditions);
    }
    for (name, (code, message)) in unsuited {
        if !names.contains_key(name) {
            work.withhold(what(name), code, message);
        }
    }
    names
}

/// A rule without conditions, and its object.
type Unconditional<'r> = (&'r GrantSource, &'r Conditions);

/// Returns the rule whose object is the first in name order.
fn first_of<'r>(one: Unconditional<'r>, other: Unconditional<'r>) -> Unconditional<'r> {
    if other.0 < one.0 { other } else { one }
}

/// The message for an entry with `*` that is over the bound.
fn too_many_of_everything() -> String {
    format!(
        "more than {MAX_RULES} rules with conditions give everything of this surface, so this one is withheld: remove some, or name the tools"
    )
}

/// Returns base URL and credential, or why this agent can call nothing of the surface.
fn callable(
    objects: &dyn Objects,
    agent: &ObjectRef,
    reach: &Reach<'_>,
    work: &mut Work,
) -> Result<(String, Credential), (Code, String)> {
    let because = |subject: &Subject, finding: &Finding| {
        let why = located(subject, &finding.field, &finding.message);
        (finding.code, why)
    };
    let surface = &reach.resolved.subject;
    let address = reach
        .resolved
        .address
        .as_ref()
        .map_err(|finding| because(surface, finding))?;
    reach
        .resolved
        .ca
        .as_ref()
        .map_err(|finding| because(surface, finding))?;
    let urls = reach.resolved.surface.urls();
    if let Some(url) = urls.into_iter().find(|url| is_relative(url))
        && reach.foreign
    {
        let message = format!(
            "{url:?} may lead somewhere else in each namespace: its owner must write name.namespace.svc, or for a host outside of the cluster https, or a dot at its end"
        );
        let finding = Finding::new("spec", Code::AddressRefused, message);
        finding.report(surface, &mut work.found);
        return Err(because(surface, &finding));
    }
    let credential = credential::resolve(
        objects,
        agent,
        reach.entry,
        &reach.field,
        &reach.resolved,
        address,
        &mut work.sources,
    )
    .map_err(|refused| {
        let subject = match &refused {
            CredentialError::OnSurface(_) => surface.clone(),
            CredentialError::OnAgent(_) => Subject::new(Kind::Agent, agent),
        };
        refused.finding().report(&subject, &mut work.found);
        because(&subject, refused.finding())
    })?;
    Ok((address.base_url.clone(), credential))
}

fn within_maximum(tier: Tier, max_tier: Tier) -> Result<(), Finding> {
    if tier <= max_tier {
        return Ok(());
    }
    let denied = match tier {
        Tier::Elevated => ", and a person must then approve each call",
        Tier::ReadOnly | Tier::Workspace | Tier::System => "",
    };
    let name = tier.name();
    Err(Finding::new(
        "spec.policy.maxTier",
        Code::TierAboveMaximum,
        format!(
            "is {name}, above the agent's maximum {}: set policy.maxTier: {name} in the Agent, or in ToolDefaults if the Agent sets none{denied}; or, if the tool is not that dangerous, let the Surface's owner lower it in spec.tiers",
            max_tier.name()
        ),
    ))
}

fn execution(
    reach: &Reach<'_>,
    name: &str,
    described: &DescribedTool,
    base_url: &str,
    credential: &Credential,
) -> Result<Execution, Finding> {
    let base = Execution {
        transport: Transport::Http,
        service: reach.alias.clone(),
        base_url: base_url.to_owned(),
        method: None,
        path: None,
        body: None,
        body_key: None,
        tool_name: None,
        auth: credential.auth.clone(),
    };
    match &described.http {
        Some(http) => Ok(Execution {
            method: Some(http.method),
            path: Some(http.path.clone()),
            body: http.body,
            body_key: http.body_key.clone(),
            ..base
        }),
        None => {
            let path = reach.resolved.mcp_transport(described)?;
            Ok(Execution {
                transport: Transport::Mcp,
                path: Some(path.to_owned()),
                tool_name: Some(name.to_owned()),
                ..base
            })
        }
    }
}

/// Returns the finding at `field` for a granted tool that is Elevated.
pub(crate) fn needs_approval(field: &str, tool: &str) -> Finding {
    Finding::new(
        field,
        Code::NeedsApproval,
        format!(
            "{tool} is Elevated, so a person must approve each call: give people in this namespace the chart's role for approvers; or, if the tool is not that dangerous, its surface's owner can lower it in spec.tiers"
        ),
    )
}

/// The harm that calls of a tool can do, and the policies that ask for an approval of each call.
struct Risk {
    tier: Tier,
    approval: Vec<PolicyRequirement>,
}

/// Reports a tool that needs approvals although its grants need not ask for them.
fn report_approval(
    agent: &ObjectRef,
    grant: &GrantSource,
    tool: &str,
    risk: &Risk,
    work: &mut Work,
) {
    let on_agent = Subject::new(Kind::Agent, agent);
    let on_grant = Subject::new(grant.kind, &grant.key);
    if risk.tier == Tier::Elevated {
        needs_approval("spec.surfaces", tool).report(&on_agent, &mut work.found);
        needs_approval("spec.tools", tool).report(&on_grant, &mut work.found);
        return;
    }
    let Some(first) = risk.approval.first() else {
        return;
    };
    let message = format!(
        "a person must approve each call of {tool}, since {} asks for it (spec.requireApproval): give people in this namespace the chart's role for approvers, or ask an admin of the cluster to change the policy",
        PolicyName(&first.policy)
    );
    let found = &mut work.found;
    found.add(&on_agent, "spec.surfaces", Code::NeedsApproval, message);
}

/// Reports the policies that would deny a tool or feed of the agent, and returns their names.
fn tried_out(
    agent: &ObjectRef,
    what: &str,
    policies: Vec<TrialFinding<'_>>,
    work: &mut Work,
) -> Vec<String> {
    let subject = Subject::new(Kind::Agent, agent);
    let report = |TrialFinding { policy, finding }: TrialFinding<'_>| {
        let message = format!("{what} {}", finding.message);
        work.found
            .add(&subject, finding.field, finding.code, message);
        policy.to_owned()
    };
    policies.into_iter().map(report).collect()
}

/// Warns on both grants of a tool, if one of them tries out its limits.
fn lifted_limits(lifted: &LiftedLimits, tool: &str, work: &mut Work) {
    let LiftedLimits { audit, enforced } = lifted;
    let [on_audit, on_enforced] = [audit, enforced].map(|it| Subject::new(it.kind, &it.key));
    let of_audit = format!(
        "{tool} is limited by {on_enforced} too, and while its limits are tried out here, calls outside of those run as well: remove enforcement: Audit to have both refuse"
    );
    let of_enforced = format!(
        "{tool} may be called outside of these limits, since {on_audit} tries out its own: remove enforcement: Audit there to have both refuse"
    );
    for (subject, message) in [(on_audit, of_audit), (on_enforced, of_enforced)] {
        let found = &mut work.found;
        found.add(&subject, "spec.tools", Code::AuditLiftsLimits, message);
    }
}

fn lower(
    name: String,
    described: &DescribedTool,
    risk: Risk,
    execution: Execution,
    grant: GrantSource,
    credential: &Credential,
    reach: &Reach<'_>,
) -> (Tool, ToolSummary) {
    let Risk { tier, approval } = risk;
    let mut tool = Tool {
        name,
        description: described.description.clone(),
        input_schema: described.input_schema.clone(),
        annotations: described.annotations.clone(),
        execution,
        extension: ToolExtension {
            approval: approval.iter().map(|it| it.policy.clone()).collect(),
            requires: Vec::new(),
            rules: Vec::new(),
            tier: Some(tier.name().to_owned()),
            would_deny: None,
            grant: Some(GrantRef {
                namespace: grant.key.namespace.clone(),
                name: grant.key.name.clone(),
            }),
            entry_digest: None,
            output_schema: described.output_schema.clone(),
            foreign: reach.foreign,
        },
    };
    if !approval.is_empty() {
        requires_approval(&mut tool.extension);
    }
    let digest = entry_digest(&tool);
    tool.extension.entry_digest = Some(digest.clone());
    let summary = ToolSummary {
        name: tool.name.clone(),
        surface: reach.resolved.subject.key.clone(),
        tier,
        read_only: tier == Tier::ReadOnly,
        grant,
        credential: credential.kind,
        entry_digest: digest,
        limits: None,
        rules: Vec::new(),
        approval,
        would_deny: Vec::new(),
    };
    (tool, summary)
}

fn too_many_rules(tool: &str) -> String {
    format!(
        "{tool} has more than {MAX_RULES} rules, so those of the last grants in name order are withheld: remove some, or merge grants with the same limits"
    )
}
