//! Explains why an agent does not have a tool or feed: the reason for which it is withheld, else
//! the first layer that does not allow it.

use std::borrow::Cow;
use std::fmt;

use toolcrib_manifest::Suspension;

use crate::compilation::WithheldItem;
use crate::compile::authority::suspension::sentence;
use crate::compile::authority::{Rule, Verb, of_grant, selection};
use crate::compile::reach::consent::open;
use crate::compile::tools::offer::Offer;
use crate::near::Suggestions;
use crate::reference::surface_key;
use crate::surface::ResolvedSurface;
use crate::{Code, Compilation, Kind, ObjectRef, Objects};

/// One reason why an agent does not have an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// The item was asked for, and is withheld.
    Withheld(WithheldItem),
    /// The agent is suspended, so it has nothing at all.
    Suspended {
        agent: ObjectRef,
        suspension: Suspension,
    },
    /// The name is not of the form `SURFACE.TOOL`; holds the tool with the nearest name, of those
    /// that the agent has, else of those that its surfaces offer.
    NotAName(Option<String>),
    /// The Agent does not exist, or cannot be decoded.
    NoAgent(ObjectRef),
    /// First layer: the agent does not declare the surface.
    NotDeclared {
        agent: ObjectRef,
        alias: String,
        /// A declared surface with a similar name.
        meant: Option<String>,
    },
    /// The agent declares a surface that does not exist.
    NoSurface(ObjectRef),
    /// The surface's owner does not admit the agent's namespace.
    NoConsent {
        surface: ObjectRef,
        namespace: String,
    },
    /// The surface has no such tool.
    NotOffered {
        surface: ObjectRef,
        tool: String,
        /// One of the surface's tools with a similar name.
        meant: Option<String>,
    },
    /// A suspended grant would allow it.
    GrantSuspended { grant: ObjectRef, tool: String },
    /// Second layer: no object allows it.
    NotGranted {
        agent: ObjectRef,
        surface: ObjectRef,
        tool: String,
    },
}

impl WhyNot {
    /// The item, if it was asked for and is withheld.
    pub fn withheld(&self) -> Option<&WithheldItem> {
        match self {
            Self::Withheld(item) => Some(item),
            Self::Suspended { .. }
            | Self::NotAName(_)
            | Self::NoAgent(_)
            | Self::NotDeclared { .. }
            | Self::NoSurface(_)
            | Self::NoConsent { .. }
            | Self::NotOffered { .. }
            | Self::GrantSuspended { .. }
            | Self::NotGranted { .. } => None,
        }
    }
}

/// Limits the reasons for one item. Thousands of rules may name it, and each lost item of a plan has
/// its reasons.
const REASONS: usize = 8;

/// Returns the reasons why the agent of `compilation`, made of `objects`, has no tool `name`. At
/// least one is returned if the agent does not have the tool.
pub fn why_not(objects: &dyn Objects, compilation: &Compilation, name: &str) -> Vec<WhyNot> {
    why_not_each(objects, compilation, name, &mut Suggestions::default())
}

/// [`why_not`] for one of many tools.
pub(crate) fn why_not_each(
    objects: &dyn Objects,
    compilation: &Compilation,
    name: &str,
    suggestions: &mut Suggestions,
) -> Vec<WhyNot> {
    if let Some(suspended) = suspended(compilation) {
        return vec![suspended];
    }
    let name = &*canonical(name);
    let whole = whole_surface(name, '.');
    let withheld = withheld(compilation, &[Some(name), whole.as_deref()]);
    if withheld.is_empty() {
        match name.contains('.') {
            true => vec![missing_layer(objects, compilation, name, suggestions)],
            false => bare_name(objects, compilation, name, suggestions),
        }
    } else {
        withheld
    }
}

/// Converts a name as models and the record write it (`SURFACE__TOOL`) to `SURFACE.TOOL`.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    match name.split_once("__") {
        Some((surface, tool)) if !name.contains('.') => format!("{surface}.{tool}").into(),
        Some(_) | None => name.into(),
    }
}

/// Returns the reasons why the agent has no feed `SURFACE/FEED`; none if no object asks for it.
pub(crate) fn why_no_feed(compilation: &Compilation, name: &str) -> Vec<WhyNot> {
    if let Some(suspended) = suspended(compilation) {
        return vec![suspended];
    }
    let feed = format!("feed {name}");
    let whole = whole_surface(&feed, '/');
    let surface = whole_surface(name, '/').map(|whole| whole.replace('/', "."));
    withheld(
        compilation,
        &[Some(&feed), whole.as_deref(), surface.as_deref()],
    )
}

/// Returns the suspension of the compiled agent as the reason for all missing items. The cure
/// depends on whether a policy or the Agent itself suspends it.
pub fn suspended(compilation: &Compilation) -> Option<WhyNot> {
    let by_policy = |code: Code| matches!(code, Code::SuspendedByPolicy | Code::PolicyUnreadable);
    let mut found = compilation.diagnostics.iter();
    if let Some(found) = found.find(|found| by_policy(found.code)) {
        return Some(WhyNot::Withheld(WithheldItem {
            what: String::new(),
            code: found.code,
            message: found.message.clone(),
        }));
    }
    Some(WhyNot::Suspended {
        agent: compilation.agent.clone(),
        suspension: compilation.suspension()?.clone(),
    })
}

fn whole_surface(name: &str, separator: char) -> Option<String> {
    name.split_once(separator)
        .map(|(surface, _)| format!("{surface}{separator}*"))
}

fn withheld(compilation: &Compilation, names: &[Option<&str>]) -> Vec<WhyNot> {
    let mut names: Vec<&str> = names.iter().copied().flatten().collect();
    names.sort_unstable();
    let reasons = names.into_iter().flat_map(|name| {
        // They are sorted by name.
        let all = &compilation.withheld;
        let first = all.partition_point(|withheld| &*withheld.what < name);
        let rest = all[first..].iter();
        rest.take_while(move |withheld| withheld.what == name)
    });
    let reasons = reasons.take(REASONS);
    reasons.cloned().map(WhyNot::Withheld).collect()
}

fn missing_layer(
    objects: &dyn Objects,
    compilation: &Compilation,
    name: &str,
    suggestions: &mut Suggestions,
) -> WhyNot {
    let key = &compilation.agent;
    let Some((alias, tool)) = name.split_once('.') else {
        return WhyNot::NotAName(None);
    };
    let Some(agent) = objects.agent(key) else {
        return WhyNot::NoAgent(key.clone());
    };
    let aliases = || {
        let surfaces = agent.spec.surfaces.iter();
        surfaces.map(|entry| (entry.alias.as_deref().unwrap_or(&entry.name), entry))
    };
    let Some((_, declared)) = aliases().find(|(known, _)| *known == alias) else {
        let meant = suggestions.nearest(alias, aliases().map(|(known, _)| known));
        return WhyNot::NotDeclared {
            agent: key.clone(),
            alias: alias.to_owned(),
            meant: meant.map(str::to_owned),
        };
    };
    let surface = surface_key(key, declared);
    let resolved = match open(objects, &surface, &key.namespace, suggestions) {
        Ok(resolved) => resolved,
        Err(_) if surface.namespace == key.namespace => return WhyNot::NoSurface(surface),
        // Only agents with the owner's consent may learn whether a foreign surface exists.
        Err(_) => {
            return WhyNot::NoConsent {
                surface,
                namespace: key.namespace.clone(),
            };
        }
    };
    match resolved.descriptor() {
        Some(descriptor) if !descriptor.tools.contains_key(tool) => {
            let names = || descriptor.tools.keys().map(|name| &**name);
            let meant = suggestions
                .nearest(tool, names())
                .or_else(|| part_of(tool, names()));
            WhyNot::NotOffered {
                surface,
                tool: tool.to_owned(),
                meant: meant.map(str::to_owned),
            }
        }
        _ => match suspended_grant(objects, key, &resolved, tool) {
            Some(grant) => WhyNot::GrantSuspended {
                grant,
                tool: tool.to_owned(),
            },
            None => WhyNot::NotGranted {
                agent: key.clone(),
                surface,
                tool: tool.to_owned(),
            },
        },
    }
}

/// Answers a name without a surface: returns the tool that was probably meant, and the reasons why
/// the agent does not have it.
fn bare_name(
    objects: &dyn Objects,
    compilation: &Compilation,
    name: &str,
    suggestions: &mut Suggestions,
) -> Vec<WhyNot> {
    let given = || compilation.tools.iter().map(|tool| &*tool.name);
    if let Some(meant) = meant_by(name, given, suggestions) {
        return vec![WhyNot::NotAName(Some(meant.to_owned()))];
    }
    let offered = offered(objects, &compilation.agent, suggestions);
    let offered = || offered.iter().map(|tool| &**tool);
    let Some(meant) = meant_by(name, offered, suggestions) else {
        return vec![WhyNot::NotAName(None)];
    };
    let mut reasons = vec![WhyNot::NotAName(Some(meant.to_owned()))];
    reasons.extend(why_not_each(objects, compilation, meant, suggestions));
    reasons
}

/// Returns the tools of the surfaces that the agent declares and may use, given or not.
fn offered(objects: &dyn Objects, key: &ObjectRef, suggestions: &mut Suggestions) -> Vec<String> {
    let Some(agent) = objects.agent(key) else {
        return Vec::new();
    };
    let mut offered = Vec::new();
    for entry in &agent.spec.surfaces {
        let surface = surface_key(key, entry);
        let Ok(resolved) = open(objects, &surface, &key.namespace, suggestions) else {
            continue;
        };
        let alias = entry.alias.as_deref().unwrap_or(&entry.name);
        let tools = resolved.descriptor().into_iter();
        let tools = tools.flat_map(|descriptor| descriptor.tools.keys());
        offered.extend(tools.map(|tool| format!("{alias}.{tool}")));
    }
    offered
}

/// Returns the one of these tools that a name without a surface probably means.
fn meant_by<'a, N: Iterator<Item = &'a str>>(
    name: &str,
    tools: impl Fn() -> N,
    suggestions: &mut Suggestions,
) -> Option<&'a str> {
    let bare = |tool: &'a str| tool.split_once('.').map_or(tool, |(_, bare)| bare);
    if let Some(same) = tools().find(|tool| bare(tool) == name) {
        return Some(same);
    }
    if let Some(near) = suggestions.nearest(name, tools()) {
        return Some(near);
    }
    let near = suggestions
        .nearest(name, tools().map(bare))
        .or_else(|| part_of(name, tools().map(bare)))?;
    tools().find(|tool| bare(tool) == near)
}

/// Returns the shortest name that contains `part`.
fn part_of<'a>(part: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Shorter parts are in too many names.
    const SHORTEST: usize = 3;
    let names = names.filter(|name| part.len() >= SHORTEST && name.contains(part));
    names.min_by_key(|name| (name.len(), *name))
}

/// Returns the first suspended grant that would give the agent this tool.
fn suspended_grant(
    objects: &dyn Objects,
    agent: &ObjectRef,
    surface: &ResolvedSurface,
    tool: &str,
) -> Option<ObjectRef> {
    let grants = selection::grants_for(objects, agent, &*objects.agent(agent)?);
    let mut suspended = grants.iter().filter(|(_, grant)| grant.spec.is_suspended());
    let gives = |rule: &Rule<'_>| {
        rule.verb == Verb::Tool
            && rule.surface == surface.subject.key
            && (rule.allows_all() || rule.names().any(|(_, name)| name == tool))
            && Offer::to(rule, surface)
                .is_ok_and(|offer| offer.has(tool) && offer.suits(rule, tool).is_ok())
    };
    let (key, _) = suspended.find(|(key, grant)| of_grant(key, grant).iter().any(gives))?;
    Some(key.clone())
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Withheld(withheld) => write!(f, "{}: {}", withheld.code, withheld.message),
            WhyNot::Suspended { agent, suspension } => write!(
                f,
                "{}; `kubectl toolcrib resume agent/{} -n {}` gives it back",
                sentence(agent, suspension),
                agent.name,
                agent.namespace,
            ),
            WhyNot::NotAName(meant) => {
                write!(
                    f,
                    "a tool is named SURFACE.TOOL{}",
                    Suggestion(meant.as_deref())
                )
            }
            WhyNot::NoAgent(agent) => write!(
                f,
                "there is no {} {agent}: create it, or correct the name",
                Kind::Agent.name()
            ),
            WhyNot::NotDeclared {
                agent,
                alias,
                meant,
            } => write!(
                f,
                "agent {agent} does not declare surface {alias}{}: add it to the agent's spec.surfaces, or correct the name",
                Suggestion(meant.as_deref())
            ),
            WhyNot::NoSurface(surface) => write!(
                f,
                "there is no Surface {surface}: create it, or correct the agent's spec.surfaces"
            ),
            WhyNot::NoConsent { surface, namespace } => write!(
                f,
                "the surface {surface} is not open to namespace {namespace}: its owner must allow it in spec.consumers.namespaces, if there is such a surface"
            ),
            WhyNot::NotOffered {
                surface,
                tool,
                meant,
            } => write!(
                f,
                "surface {surface} has no tool {tool:?}{}: `kubectl toolcrib inspect` lists its tools",
                Suggestion(meant.as_deref())
            ),
            WhyNot::GrantSuspended { grant, tool } => write!(
                f,
                "{} {grant} gives the tool {tool}, and is suspended: set its spec.suspend to false to give it",
                Kind::ToolGrant.name()
            ),
            WhyNot::NotGranted {
                agent,
                surface,
                tool,
            } => write!(
                f,
                "surface {surface} has the tool {tool}, and no ToolGrant for agent {agent} allows it, nor do ToolDefaults"
            ),
        }
    }
}

/// Displays ` (did you mean X?)`, or nothing.
struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " (did you mean {name}?)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, compile, load};

    const LAKE: &str = r#"
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: news, namespace: lake}
spec:
  url: https://news.example
  descriptor: {version: 2, tools: [{name: read, inputSchema: {type: object}, http: {method: GET, path: /}}]}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: [{name: news, namespace: lake}]}
"#;

    #[test]
    fn a_surface_without_consent_is_not_revealed() {
        let inputs = load(
            [("lake.yaml".to_owned(), LAKE.to_owned())],
            Settings::default(),
        )
        .inputs;
        let compiled = compile(&inputs, &ObjectRef::new("pond", "otter")).expect("the agent");
        let expected = vec![WhyNot::NoConsent {
            surface: ObjectRef::new("lake", "news"),
            namespace: "pond".to_owned(),
        }];
        assert_eq!(why_not(&inputs, &compiled, "news.read"), expected);
        assert_eq!(why_not(&inputs, &compiled, "news.write"), expected);
    }

    #[test]
    fn an_unknown_tool_or_surface_is_answered_with_a_near_name() {
        let objects = LAKE.replace("{name: news, namespace: lake}]", "{name: news}]");
        let objects = objects.replace("namespace: lake", "namespace: pond");
        let inputs = load([("pond.yaml".to_owned(), objects)], Settings::default()).inputs;
        let compiled = compile(&inputs, &ObjectRef::new("pond", "otter")).expect("the agent");
        for (name, answer) in [
            (
                "news.reed",
                "surface pond/news has no tool \"reed\" (did you mean read?): `kubectl toolcrib inspect` lists its tools",
            ),
            (
                "news.write",
                "surface pond/news has no tool \"write\": `kubectl toolcrib inspect` lists its tools",
            ),
            (
                "newt.read",
                "agent pond/otter does not declare surface newt (did you mean news?): add it to the agent's spec.surfaces, or correct the name",
            ),
            // Names as the record writes them.
            (
                "news__reed",
                "surface pond/news has no tool \"reed\" (did you mean read?): `kubectl toolcrib inspect` lists its tools",
            ),
            (
                "news__read",
                "surface pond/news has the tool read, and no ToolGrant for agent pond/otter allows it, nor do ToolDefaults",
            ),
        ] {
            let said: Vec<String> = why_not(&inputs, &compiled, name)
                .iter()
                .map(WhyNot::to_string)
                .collect();
            assert_eq!(said, [answer]);
        }
    }
}
