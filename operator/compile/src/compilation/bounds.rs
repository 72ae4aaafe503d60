//! Keeps a manifest within its bounds.
//!
//! Too many tools: the largest surfaces lose tools, so that no surface displaces a smaller one. Too
//! many bytes: the last surfaces in name order are withheld until the manifest fits, then the last
//! tools of the remaining one, then the last feeds. If the providers alone are too large, the last
//! providers are withheld first, since removing tools could not make room for them.
//!
//! An old manifest must not stay in force, or bloating a surface would freeze a revoked grant.

use std::collections::{BTreeMap, BTreeSet};

use toolcrib_bounds::listed;
use toolcrib_manifest::{EndpointDialect, Mode, Tool};

use crate::Code;
use crate::canonical::digest::size;
use crate::compilation::files::Files;
use crate::names::{feed_name, provider_name};

/// Limits all four files together, with references in place of values.
const MAX_BYTES: usize = 700 * 1024;
/// Limits all four files together, with values. The API server takes 1 MiB in one Secret; the
/// rest is for the runner's tokens and the hashes of the files, which are added last.
const MAX_FILLED: usize = 960 * 1024;
/// The tools that OpenAI takes in one request, less room for the runner's own.
const MAX_TOOLS_OPENAI: usize = 128 - 8;

/// Limits the feeds. Together they show the model 64 KiB; more feeds would displace each other
/// and be fetched in vain.
pub(crate) const MAX_FEEDS: usize = 32;

/// Surfaces that a message lists.
const LISTED: usize = 8;

pub(crate) fn too_many_feeds() -> String {
    format!("more than {MAX_FEEDS} feeds are granted, and no more are fetched: grant fewer")
}

/// An item that does not fit, and the bound that it exceeds.
#[derive(Debug)]
pub(crate) struct Excess {
    /// The name used in [`crate::WithheldItem::what`].
    pub what: String,
    pub code: Code,
    pub message: String,
}

/// Removes from `files` the items that do not fit; `reserved` bytes are added later. Tools are
/// sorted by surface, then by name.
pub(crate) fn enforce(files: &mut Files, reserved: usize) -> Vec<Excess> {
    let mut excess = Vec::new();
    let cap = tool_cap(files).unwrap_or(usize::MAX);
    if files.tools.tools.len() > cap {
        excess.extend(share_cap(files, cap));
    }
    let message = format!("the compiled files are over {MAX_BYTES} bytes: grant fewer tools");
    excess.extend(shrink(files, MAX_BYTES.saturating_sub(reserved), &message));
    excess
}

/// Returns true if the files fit into a Secret even when all `values` credentials are `longest`
/// bytes.
pub(crate) fn surely_fit(files: &Files, values: usize, longest: usize) -> bool {
    all(files).saturating_add(values.saturating_mul(longest)) <= MAX_FILLED
}

/// Removes from `files`, which hold values, the items that do not fit into a Secret.
pub(crate) fn enforce_filled(files: &mut Files) -> Vec<Excess> {
    let message = format!(
        "the compiled files are over {MAX_FILLED} bytes with their credentials: grant fewer tools, or use shorter credentials"
    );
    shrink(files, MAX_FILLED, &message)
}

/// Removes from `files` the tools, feeds and providers named in `gone`.
pub(crate) fn remove(files: &mut Files, gone: &BTreeSet<&str>) {
    let stays = |what: &str| !gone.contains(what);
    files.tools.tools.retain(|tool| stays(&tool.name));
    files
        .feeds
        .0
        .retain(|feed| stays(&feed_name(&feed.source, &feed.name)));
    files
        .providers
        .providers
        .retain(|name, _| stays(&provider_name(name)));
    let services = std::mem::take(&mut files.tools.extension.services);
    files.tools.extension.services = services
        .into_iter()
        .filter(|(service, _)| is_used(files, service))
        .collect();
}

fn all(files: &Files) -> usize {
    let Files {
        agent,
        tools,
        providers,
        feeds,
    } = files;
    size(agent) + size(tools) + size(providers) + size(feeds)
}

fn shrink(files: &mut Files, room: usize, message: &str) -> Vec<Excess> {
    let mut gone = Vec::new();
    let mut fixed = size(&files.agent) + size(&files.providers);
    while fixed > room
        && let Some((name, provider)) = files.providers.providers.pop_last()
    {
        fixed = fixed.saturating_sub(size(&name) + size(&provider) + 2);
        gone.push(provider_name(&name));
    }
    let mut bytes = all(files);
    while bytes > room {
        let tools = last_to_go(files);
        let service = if tools.is_empty() {
            let Some(feed) = files.feeds.0.pop() else {
                break;
            };
            bytes = bytes.saturating_sub(size(&feed) + 1);
            gone.push(feed_name(&feed.source, &feed.name));
            feed.source
        } else {
            for tool in &tools {
                bytes = bytes.saturating_sub(size(tool) + 1);
            }
            let service = tools[0].execution.service.clone();
            gone.extend(tools.into_iter().map(|tool| tool.name));
            service
        };
        bytes = bytes.saturating_sub(forget_service(files, &service));
    }
    gone.into_iter()
        .map(|what| Excess {
            what,
            code: Code::ManifestTooLarge,
            message: message.to_owned(),
        })
        .collect()
}

/// Removes the settings of a service that no tool and no feed uses, and returns their bytes.
fn forget_service(files: &mut Files, service: &str) -> usize {
    if is_used(files, service) {
        return 0;
    }
    files
        .tools
        .extension
        .services
        .remove(service)
        .map_or(0, |settings| size(service) + size(&settings) + 2)
}

fn is_used(files: &Files, service: &str) -> bool {
    let by_tool = |tool: &Tool| tool.execution.service == service;
    files.tools.tools.iter().any(by_tool) || files.feeds.0.iter().any(|feed| feed.source == service)
}

/// Counts the tools of each surface, the largest count first.
fn tools_by_surface(files: &Files) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in &files.tools.tools {
        *counts.entry(&tool.execution.service).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts
        .into_iter()
        .map(|(surface, count)| (surface.to_owned(), count))
        .collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// Removes tools until `cap` are left. Each surface keeps the first of its tools: all of them if it has
/// no more than its share, which is equal for the larger ones.
fn share_cap(files: &mut Files, cap: usize) -> Vec<Excess> {
    let counts = tools_by_surface(files);
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    let mut left = cap;
    for (smaller, (surface, count)) in counts.iter().rev().enumerate() {
        let share = (*count).min(left / (counts.len() - smaller));
        left -= share;
        shares.insert(surface.clone(), share);
    }
    let message = too_many_tools(cap, &counts, &shares);
    let mut excess = Vec::new();
    let mut kept = Vec::with_capacity(cap);
    for tool in std::mem::take(&mut files.tools.tools) {
        match shares.get_mut(&tool.execution.service) {
            Some(share) if *share > 0 => {
                *share -= 1;
                kept.push(tool);
            }
            Some(_) | None => excess.push(Excess {
                what: tool.name,
                code: Code::TooManyTools,
                message: message.clone(),
            }),
        }
    }
    files.tools.tools = kept;
    excess
}

/// Lists the surfaces with their counts, so that the largest is seen, and those that lose tools.
fn too_many_tools(
    cap: usize,
    counts: &[(String, usize)],
    shares: &BTreeMap<String, usize>,
) -> String {
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let numbers: Vec<String> = counts
        .iter()
        .map(|(surface, count)| format!("{surface} {count}"))
        .collect();
    let losing: Vec<&str> = counts
        .iter()
        .filter(|(surface, count)| shares.get(surface) < Some(count))
        .map(|(surface, _)| &**surface)
        .collect();
    let losing = listed(losing, LISTED);
    format!(
        "{total} tools are granted ({}), and the model API takes {cap}: the last tools of {losing} are withheld; grant fewer of {losing}",
        listed(numbers, LISTED),
    )
}

fn tool_cap(files: &Files) -> Option<usize> {
    match files.agent.mode {
        // The runner sends its own requests, so it decides how many tools they carry.
        Mode::Native => None,
        Mode::Mediated => files
            .providers
            .providers
            .values()
            .flat_map(|provider| &provider.endpoints)
            .any(|endpoint| endpoint.dialect == EndpointDialect::Openai)
            .then_some(MAX_TOOLS_OPENAI),
    }
}

/// Removes and returns the last surface's tools if there are several surfaces, else the last tool.
fn last_to_go(files: &mut Files) -> Vec<Tool> {
    let tools = &mut files.tools.tools;
    let Some(last) = tools.last().map(|tool| tool.execution.service.clone()) else {
        return Vec::new();
    };
    let first_of_last = tools
        .iter()
        .position(|tool| tool.execution.service == last)
        .unwrap_or(0);
    if first_of_last > 0 {
        tools.split_off(first_of_last)
    } else {
        tools.pop().into_iter().collect()
    }
}
