//! Topology: the surfaces that an agent may reach, by the agent's alias, resolved and with the
//! owner's consent ([`consent`]), and rules about other surfaces ([`unreached`]).

pub mod consent;
pub mod unreached;

use crate::names::is_dns_label;
use std::collections::{BTreeMap, BTreeSet};

use toolcrib_bounds::NAMESPACE_WEIGHT;
use toolcrib_crds::{Agent, AgentSurface};

use self::consent::open;
use crate::compile::authority::Rule;
use crate::compile::work::Work;
use crate::reference::surface_key;
use crate::surface::ResolvedSurface;
use crate::{Code, Kind, ObjectRef, Objects, Subject};

/// One surface within reach.
pub(crate) struct Reach<'a> {
    /// The agent's name for the surface; tools are `<alias>.<tool>`.
    pub alias: String,
    pub entry: &'a AgentSurface,
    /// `spec.surfaces[2]`.
    pub field: String,
    pub resolved: ResolvedSurface,
    /// Whether the surface is in another namespace.
    pub foreign: bool,
}

/// Returns the surfaces within reach, by alias. A declared surface that is not within reach is
/// reported on the agent, and withheld if any part of it is granted.
pub(crate) fn reach<'a>(
    objects: &dyn Objects,
    key: &ObjectRef,
    agent: &'a Agent,
    rules: &BTreeMap<ObjectRef, Vec<Rule<'_>>>,
    work: &mut Work,
) -> Vec<Reach<'a>> {
    let subject = Subject::new(Kind::Agent, key);
    let mut aliases = BTreeSet::new();
    let mut within = Vec::new();
    // The size of the surfaces so far. Each entry is compiled by itself, so a repeated one counts again.
    let mut taken = 0_usize;
    for (index, entry) in agent.spec.surfaces.iter().enumerate() {
        let field = format!("spec.surfaces[{index}]");
        let surface = surface_key(key, entry);
        let alias = entry.alias.clone().unwrap_or_else(|| entry.name.clone());
        let refuse = |part: &str, code: Code, message: String, work: &mut Work| {
            let at = crate::diagnostics::finding::join(&field, part);
            work.found.add(&subject, at, code, message.clone());
            let granted = rules.get(&surface).map_or(&[][..], Vec::as_slice);
            for rule in granted {
                if matches!(code, Code::SurfaceNotFound | Code::ConsentMissing) {
                    let at = format!("{}.surface", rule.field);
                    work.found.add(&rule.subject(), at, code, message.clone());
                }
            }
            if !granted.is_empty() {
                work.withhold(format!("{alias}.*"), code, message);
            }
        };
        if !is_dns_label(&alias) {
            refuse(
                "as",
                Code::InvalidName,
                format!(
                    "{alias:?} is not a DNS label: write lower-case letters, digits and '-', at most 63"
                ),
                work,
            );
            continue;
        }
        if !aliases.insert(alias.clone()) {
            refuse(
                "",
                Code::Duplicate,
                format!(
                    "another surface goes by the name {alias:?}: give one of them another with `as`"
                ),
                work,
            );
            continue;
        }
        let resolved = match open(
            objects,
            &surface,
            &key.namespace,
            &mut work.found.suggestions,
        ) {
            Ok(resolved) => resolved,
            Err(closed) => {
                refuse(&closed.field, closed.code, closed.message, work);
                continue;
            }
        };
        let weight = resolved.weight();
        if taken.saturating_add(weight) > NAMESPACE_WEIGHT {
            refuse(
                "",
                Code::TooExpensive,
                format!(
                    "descriptors and CA bundles of this agent's surfaces take more than {} MiB of memory up to here: name fewer surfaces, or smaller ones",
                    NAMESPACE_WEIGHT >> 20
                ),
                work,
            );
            continue;
        }
        taken += weight;
        if rules.contains_key(&surface) {
            resolved.report(&mut work.found);
        }
        within.push(Reach {
            foreign: surface.namespace != key.namespace,
            alias,
            entry,
            field,
            resolved,
        });
    }
    within.sort_by(|a, b| a.alias.cmp(&b.alias));
    within
}
