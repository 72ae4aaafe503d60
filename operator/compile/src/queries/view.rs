//! A surface for its owner: the resolved parts, and the agents that use it.

use serde::Serialize;
use toolcrib_manifest::{HttpMethod, RawJson};

use crate::compilation::Compilation;
use crate::compile::reach::consent::consents;
use crate::diagnostics::finding::join;
use crate::names::method_name;
use crate::reference::surface_key;
use crate::surface::{self, ResolvedSurface};
use crate::{ObjectRef, Objects, check_surface, compile};

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SurfaceView {
    pub surface: ObjectRef,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Address of calls; missing if no call can be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_path: Option<String>,
    /// The value for a grant's `descriptorDigest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptor_digest: Option<String>,
    pub tools: Vec<ToolView>,
    pub feeds: Vec<FeedView>,
    pub endpoints: Vec<EndpointView>,
    /// The skill's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    pub consumers: Vec<ConsumerView>,
    /// Findings about the surface, one sentence each.
    pub findings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolView {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// `None`: the tool is not usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
    /// `GET /list`, or `MCP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<String>,
    /// How arguments that the schema does not declare are treated: `refused`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_arguments: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<RawJson>,
    /// The reason, if the tool is not usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub granted_to: Vec<GrantedView>,
}

/// An agent that has the tool, and the object that grants it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedView {
    pub agent: ObjectRef,
    pub by: String,
    /// The labels by which that grant selects the agent, if it does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_by: Option<String>,
    pub credential: &'static str,
    /// The limits within which it may call the tool, and whether each call needs an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedView {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Lifetime of an answer, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointView {
    pub method: String,
    pub path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// An agent that declares the surface.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerView {
    pub agent: ObjectRef,
    /// The agent's alias of the surface.
    pub alias: String,
    /// Whether the surface's owner admits the agent's namespace.
    pub consent: bool,
    /// Number of the surface's tools that the agent has.
    pub tools: usize,
    /// True while the agent is suspended, so it has no tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

/// Describes a surface; `None` if it does not exist or cannot be decoded.
pub fn inspect_surface(objects: &dyn Objects, key: &ObjectRef) -> Option<SurfaceView> {
    let resolved = surface::resolve(objects, key, objects.surface(key)?);
    let users = users(objects, key);
    let consumers = users
        .iter()
        .map(|user| ConsumerView {
            agent: user.compilation.agent.clone(),
            alias: user.alias.clone(),
            consent: consents(
                objects,
                key,
                &resolved.surface,
                &user.compilation.agent.namespace,
            ),
            tools: user.of_surface().count(),
            suspended: user.compilation.suspension().is_some(),
        })
        .collect();
    let descriptor = resolved.descriptor();
    let endpoints = descriptor.map_or(&[][..], |descriptor| &descriptor.endpoints);
    Some(SurfaceView {
        surface: key.clone(),
        description: descriptor.map_or_else(String::new, |found| found.description.clone()),
        address: resolved
            .address
            .as_ref()
            .ok()
            .map(|address| address.base_url.clone()),
        mcp_path: resolved.mcp_path().map(str::to_owned),
        descriptor_digest: descriptor.map(|descriptor| descriptor.digest.clone()),
        tools: tools(&resolved, &users),
        feeds: feeds(&resolved),
        endpoints: endpoints
            .iter()
            .map(|endpoint| EndpointView {
                method: endpoint.method.clone(),
                path: endpoint.path.clone(),
                description: endpoint.description.clone(),
            })
            .collect(),
        skill: resolved.skill.clone(),
        consumers,
        findings: check_surface(objects, key)?
            .diagnostics
            .iter()
            .map(ToString::to_string)
            .collect(),
    })
}

/// An agent that declares the surface, compiled.
struct CompiledConsumer {
    alias: String,
    compilation: Compilation,
}

impl CompiledConsumer {
    /// The agent's tools of this surface: bare name and summary.
    fn of_surface(&self) -> impl Iterator<Item = (&str, &crate::ToolSummary)> {
        self.compilation.tools.iter().filter_map(|tool| {
            let (surface, name) = tool.name.split_once('.')?;
            (surface == self.alias).then_some((name, tool))
        })
    }
}

fn users(objects: &dyn Objects, surface: &ObjectRef) -> Vec<CompiledConsumer> {
    let mut users = Vec::new();
    for (key, agent) in objects.agents_using(surface) {
        let entries = agent.spec.surfaces.iter();
        for entry in entries.filter(|entry| surface_key(&key, entry) == *surface) {
            users.extend(compile(objects, &key).map(|compilation| CompiledConsumer {
                alias: entry.alias.clone().unwrap_or_else(|| entry.name.clone()),
                compilation,
            }));
        }
    }
    users
}

fn tools(resolved: &ResolvedSurface, users: &[CompiledConsumer]) -> Vec<ToolView> {
    let Some(descriptor) = resolved.descriptor() else {
        return Vec::new();
    };
    let granted_to = |name: &str| -> Vec<GrantedView> {
        users
            .iter()
            .flat_map(|user| {
                user.of_surface()
                    .map(move |(tool, summary)| (user, tool, summary))
            })
            .filter(|(_, tool, _)| *tool == name)
            .map(|(user, _, summary)| GrantedView {
                agent: user.compilation.agent.clone(),
                by: format!("{} {}", summary.grant.kind.name(), summary.grant.key),
                selected_by: user.compilation.selected_by(&summary.grant).cloned(),
                credential: summary.credential.name(),
                limits: summary.terms(),
            })
            .collect()
    };
    descriptor
        .tools
        .iter()
        .map(|(name, tool)| match tool {
            Ok(tool) => ToolView {
                name: name.clone(),
                description: tool.description.clone(),
                tier: Some(resolved.tier(name, tool).name()),
                executed: Some(match &tool.http {
                    Some(http) => executed(http.method, &http.path),
                    None => "MCP".to_owned(),
                }),
                other_arguments: Some(tool.other_arguments.name()),
                input_schema: Some(tool.input_schema.clone()),
                problem: None,
                granted_to: granted_to(name),
            },
            Err(finding) => ToolView {
                name: name.clone(),
                description: String::new(),
                tier: None,
                executed: None,
                other_arguments: None,
                input_schema: None,
                problem: Some(problem(finding)),
                granted_to: Vec::new(),
            },
        })
        .collect()
}

fn executed(method: HttpMethod, path: &str) -> String {
    format!("{} {path}", method_name(method))
}

fn feeds(resolved: &ResolvedSurface) -> Vec<FeedView> {
    let Some(descriptor) = resolved.descriptor() else {
        return Vec::new();
    };
    descriptor
        .feeds
        .iter()
        .map(|(name, feed)| FeedView {
            name: name.clone(),
            path: feed.as_ref().ok().map(|feed| feed.path.clone()),
            ttl: feed.as_ref().ok().map(|feed| feed.ttl),
            problem: feed.as_ref().err().map(problem),
        })
        .collect()
}

fn problem(finding: &crate::diagnostics::finding::Finding) -> String {
    join(&finding.field, &finding.message)
}
