//! An agent's tools and feeds.
//!
//! Reading order: [`offer`] (what a surface offers to one rule); [`rules`] (the rules of one tool);
//! [`matched`] (the names that rules give, each with its rules); [`calls`] (how calls reach the surface);
//! [`notices`] (what users hear of a granted tool); [`lower`] (the entries of the compiled files).

pub mod calls;
pub mod lower;
pub mod matched;
pub mod notices;
pub mod offer;
pub mod rules;

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_manifest::{Feed, Tier, Tool};

use self::lower::FeedEntry;
use self::rules::ToolEntry;
use crate::compilation::bounds;
use crate::compilation::files::Files;
use crate::compile::authority::Rule;
use crate::compile::authority::policies::Policies;
use crate::compile::reach::Reach;
use crate::compile::work::Work;
use crate::names::feed_name;
use crate::{Code, FeedSummary, Kind, ObjectRef, Objects, Subject, ToolSummary};

/// The tools and feeds of an agent, each with a summary for status.
pub(crate) struct Entries {
    pub tools: Vec<Tool>,
    pub feeds: Vec<Feed>,
    pub summaries: Summaries,
}

/// The summaries of an agent's tools and feeds.
pub(crate) struct Summaries {
    pub tools: Vec<ToolSummary>,
    pub feeds: Vec<FeedSummary>,
}

impl Summaries {
    /// Removes the summaries of tools and feeds that are not in the files.
    pub fn keep_those_in(&mut self, files: &Files) {
        let tools: BTreeSet<&str> = files.tools.tools.iter().map(|tool| &*tool.name).collect();
        self.tools.retain(|summary| tools.contains(&*summary.name));
        let feeds = files.feeds.0.iter();
        let feeds: BTreeSet<String> = feeds
            .map(|feed| format!("{}/{}", feed.source, feed.name))
            .collect();
        self.feeds.retain(|summary| feeds.contains(&summary.name));
    }
}

/// Returns the tools and feeds that the rules give, of all surfaces within reach.
pub(crate) fn entries(
    objects: &dyn Objects,
    key: &ObjectRef,
    reach: &[Reach<'_>],
    rules: &BTreeMap<ObjectRef, Vec<Rule<'_>>>,
    max_tier: Tier,
    policies: &Policies,
    work: &mut Work,
) -> Entries {
    let rules_of = |reach: &Reach<'_>| {
        rules
            .get(&reach.resolved.subject.key)
            .map_or(&[][..], Vec::as_slice)
    };
    let mut tools: Vec<ToolEntry<'_>> = reach
        .iter()
        .flat_map(|reach| {
            let rules = rules_of(reach);
            lower::tools(objects, key, reach, rules, max_tier, policies, work)
        })
        .collect();
    withhold_rules(key, &mut tools, work);
    let mut feeds: Vec<FeedEntry> = reach
        .iter()
        .flat_map(|reach| lower::feeds(objects, key, reach, rules_of(reach), policies, work))
        .collect();
    withhold_feeds(key, &mut feeds, work);
    let (tools, tool_summaries) = tools.into_iter().map(|it| (it.tool, it.summary)).unzip();
    let (feeds, feed_summaries) = feeds.into_iter().map(|it| (it.feed, it.summary)).unzip();
    Entries {
        tools,
        feeds,
        summaries: Summaries {
            tools: tool_summaries,
            feeds: feed_summaries,
        },
    }
}

/// Writes the rules into the tools, and reports those over the bound of an agent.
fn withhold_rules(key: &ObjectRef, entries: &mut Vec<ToolEntry<'_>>, work: &mut Work) {
    let lost = rules::write(entries);
    if lost.is_empty() {
        return;
    }
    let message = rules::too_many();
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

/// Withholds the feeds over the bound of an agent.
fn withhold_feeds(key: &ObjectRef, entries: &mut Vec<FeedEntry>, work: &mut Work) {
    if entries.len() <= bounds::MAX_FEEDS {
        return;
    }
    let message = bounds::too_many_feeds();
    let subject = Subject::new(Kind::Agent, key);
    work.found.add(
        &subject,
        "spec.surfaces",
        Code::TooManyFeeds,
        message.clone(),
    );
    for FeedEntry { feed, .. } in entries.drain(bounds::MAX_FEEDS..) {
        let name = feed_name(&feed.source, &feed.name);
        work.withhold(name, Code::TooManyFeeds, message.clone());
    }
}
