//! The tools that an agent's surfaces offer, under the names that its record has.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolcrib_bounds::arguments::Arguments;
use toolcrib_bounds::names::reads_as;
use toolcrib_compile::{Inputs, ObjectRef, inspect_surface, surface_key};
use toolcrib_crds::Agent;
use toolcrib_manifest::names::CLAW_ID;

/// One tool of a surface that the agent declares.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    pub surface: ObjectRef,
    /// The tool's name in the descriptor.
    pub name: String,
    /// The declared arguments that a grant may limit, each with its part of the schema.
    pub arguments: BTreeMap<String, Value>,
    pub schema: Map<String, Value>,
}

/// Returns the usable tools by `ALIAS.TOOL`.
pub fn offers(inputs: &Inputs, agent: &ObjectRef) -> BTreeMap<String, OfferedTool> {
    let mut agents = inputs.agents();
    let Some((_, declared)) = agents.find(|(key, _)| *key == agent) else {
        return BTreeMap::new();
    };
    let surfaces = surfaces(agent, declared);
    let mut offers = BTreeMap::new();
    for (alias, surface) in surfaces {
        let tools = inspect_surface(inputs, &surface).map(|view| view.tools);
        for tool in tools.into_iter().flatten() {
            let Some(schema) = tool.input_schema else {
                continue;
            };
            let Ok(Value::Object(schema)) = serde_json::from_str(schema.get()) else {
                continue;
            };
            let offer = OfferedTool {
                surface: surface.clone(),
                arguments: arguments(&schema),
                name: tool.name,
                schema,
            };
            offers.insert(format!("{alias}.{}", offer.name), offer);
        }
    }
    offers
}

/// The agent's alias of each surface, and the surface.
fn surfaces(agent: &ObjectRef, declared: &Agent) -> Vec<(String, ObjectRef)> {
    let entries = declared.spec.surfaces.iter();
    entries
        .map(|entry| {
            let alias = entry.alias.as_ref().unwrap_or(&entry.name);
            (alias.clone(), surface_key(agent, entry))
        })
        .collect()
}

/// Not those that the mediator writes: a grant may not limit the identity.
fn arguments(schema: &Map<String, Value>) -> BTreeMap<String, Value> {
    let names = Arguments::declared(&Value::Object(schema.clone())).names;
    let is_identity = |name: &str| name == CLAW_ID || reads_as(name, CLAW_ID);
    let names = names.into_iter().filter(|name| !is_identity(name));
    let properties = schema.get("properties");
    names
        .map(|name| {
            let part = properties.and_then(|it| it.get(&name)).cloned();
            (name, part.unwrap_or(Value::Bool(true)))
        })
        .collect()
}
