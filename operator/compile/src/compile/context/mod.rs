//! The context ConfigMap, from which the agent's runner learns its tools: the tools document and the
//! skills ([`documents`]), and `mcp.json` ([`mcp_config`]).

mod documents;
mod mcp_config;

use std::collections::BTreeMap;

use toolcrib_manifest::Context;

use self::documents::ContextSurface;
pub(crate) use self::documents::MAX_PROMPT;
use super::effective::Effective;
use super::reach::Reach;
use crate::compilation::files::Files;
use crate::{Code, Diagnostics, Kind, ObjectRef, Subject, names};

/// Returns the data of the context ConfigMap: the tools document, the skills that it names, and
/// the file that connects a runner to `/mcp`.
pub(crate) fn data(
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
            mcp_config::of(effective.runner),
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
    let (mut data, left_out) = documents::render(&files.agent, &files.tools.tools, &shown);
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
        let (prompt, cut) = documents::for_prompt(document);
        if cut {
            found.add(
                &Subject::new(Kind::Agent, key),
                "spec.context",
                Code::ManifestTooLarge,
                format!(
                    "the tools document is cut at {} bytes, since each request carries it: grant fewer tools, or use Mount",
                    MAX_PROMPT
                ),
            );
        }
        files.agent.prompt = Some(prompt);
    }
    data
}
