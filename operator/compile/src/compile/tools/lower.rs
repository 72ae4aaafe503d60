//! Turns the tools and feeds that a surface describes and grants name into entries of the files.

use toolcrib_manifest::{Execution, Feed, FeedAuth, GrantRef, Tier, Tool, ToolExtension};

use super::calls::{callable, execution};
use super::matched::{MatchedRules, matched_names};
use super::notices::{
    Risk, lifted_limits, report_approval, too_many_rules, tried_out, within_maximum,
};
use super::rules::{ToolEntry, requires_approval};
use crate::canonical::digest::entry_digest;
use crate::compilation::{FeedSummary, GrantSource, ToolSummary};
use crate::compile::authority::policies::Policies;
use crate::compile::authority::{Rule, Verb};
use crate::compile::credential::Credential;
use crate::compile::reach::Reach;
use crate::compile::work::Work;
use crate::diagnostics::located;
use crate::names::feed_name;
use crate::surface::descriptor::DescribedTool;
use crate::{Code, Kind, ObjectRef, Objects, Subject};

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
