//! What an agent may do: the union of all grants that name or select it ([`selection`]) and of the
//! ToolDefaults that it includes. Nothing in this file subtracts, so removing a grant never adds. [`policies`] and
//! [`suspension`] restrict the union, and [`conditions`] says how a tool may be called.

pub mod conditions;
pub mod policies;
pub mod selection;
pub mod suspension;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toolcrib_crds::{Agent, DefaultsUse, FeedRule, SurfaceName, ToolDefaults, ToolGrant, ToolRule};
use toolcrib_manifest::GrantRef;

use self::conditions::{Conditions, Window};
use crate::compilation::GrantSource;
use crate::diagnostics::finding::Finding;
use crate::near::Suggestions;
use crate::objects::List;
use crate::{Code, Kind, ObjectRef, Objects, Subject, names};

/// The kind of item that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Tool,
    Feed,
}

/// One entry of a grant or of ToolDefaults.
#[derive(Clone, Debug)]
pub(crate) struct Rule<'a> {
    pub source: GrantSource,
    pub verb: Verb,
    /// `spec.tools[2]`.
    pub field: String,
    pub surface: ObjectRef,
    pub allow: &'a [String],
    pub descriptor_digest: Option<&'a str>,
    /// The finding has its whole path. Such a rule gives nothing.
    pub conditions: Result<Conditions, Finding>,
}

impl<'a> Rule<'a> {
    pub fn subject(&self) -> Subject {
        Subject::new(self.source.kind, &self.source.key)
    }

    pub fn allows_all(&self) -> bool {
        self.allow.iter().any(|name| name == ALL)
    }

    /// The field that names the surface.
    pub fn surface_field(&self) -> String {
        format!("{}.surface", self.field)
    }

    /// Returns the finding for a rule whose surface `agent` does not declare: both layers are
    /// needed. It is only a warning for ToolDefaults, which apply to every agent of a namespace.
    pub fn not_declared_by(
        &self,
        agent: &ObjectRef,
        declared: &BTreeSet<ObjectRef>,
        suggestions: &mut Suggestions,
    ) -> (Code, String) {
        let (code, advice) = match self.source.kind {
            Kind::ToolDefaults => (
                Code::DefaultsSurfaceNotDeclared,
                "if the agent should have it",
            ),
            Kind::ToolGrant
            | Kind::Surface
            | Kind::Agent
            | Kind::ModelProvider
            | Kind::ClusterToolPolicy
            | Kind::Service
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::Namespace => (Code::SurfaceNotDeclared, "or remove the rule"),
        };
        let namespaces = || namesakes(&self.surface, declared).map(|known| &*known.namespace);
        let meant = match suggestions.nearest(&self.surface.namespace, namespaces()) {
            Some(namespace) => Some(namespace),
            None => namespaces()
                .next()
                .filter(|_| namespaces().nth(1).is_none()),
        };
        let meant = match meant {
            Some(namespace) => format!(" (did you mean {namespace}/{}?)", self.surface.name),
            None => String::new(),
        };
        let message = format!(
            "agent {agent} does not declare surface {}{meant}: add it to the agent's spec.surfaces, {advice}",
            self.surface,
        );
        (code, message)
    }

    /// Returns the names other than `"*"`, each with its index.
    pub fn names(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.allow
            .iter()
            .map(String::as_str)
            .enumerate()
            .filter(|(_, name)| *name != ALL)
    }

    /// The field of the name with this index.
    pub fn name_field(&self, index: usize) -> String {
        format!("{}.allow[{index}]", self.field)
    }
}

/// Returns the surfaces that an agent declares by this name in other namespaces; if there is one, a
/// rule for `surface` names the wrong namespace. Only declared surfaces count: a message with others
/// would tell a tenant which surfaces exist elsewhere.
pub(crate) fn namesakes<'a>(
    surface: &'a ObjectRef,
    declared: &'a BTreeSet<ObjectRef>,
) -> impl Iterator<Item = &'a ObjectRef> {
    let named = declared.iter().filter(|known| known.name == surface.name);
    named.filter(|known| known.namespace != surface.namespace)
}

/// The name in a rule that stands for all tools or feeds of a surface.
pub(crate) const ALL: &str = "*";

/// The grants that name or select one agent, and the ToolDefaults that it includes.
#[derive(Default)]
pub(crate) struct Authority {
    grants: List<ToolGrant>,
    /// `None`: there are none, or the agent excludes them.
    defaults: Option<(ObjectRef, Arc<ToolDefaults>)>,
}

impl Authority {
    pub fn of(objects: &dyn Objects, key: &ObjectRef, agent: &Agent) -> Self {
        let defaults = includes_defaults(agent).then(|| {
            let key = ObjectRef::new(key.namespace.clone(), names::TOOL_DEFAULTS);
            let defaults = objects.defaults(&key)?;
            Some((key, defaults))
        });
        Self {
            grants: selection::grants_for(objects, key, agent),
            defaults: defaults.flatten(),
        }
    }

    /// Returns the grants that select the agent and do not name it, with words for their selectors.
    pub fn by_selector(&self, agent: &ObjectRef) -> BTreeMap<ObjectRef, String> {
        selection::by_selector(agent, &self.grants)
    }

    /// Returns the rules of these objects by surface, in the order of the objects. A suspended grant
    /// has none.
    pub fn rules(&self) -> BTreeMap<ObjectRef, Vec<Rule<'_>>> {
        let grants = self.grants.iter();
        let grants = grants.filter(|(_, grant)| !grant.spec.is_suspended());
        let grants = grants.flat_map(|(key, grant)| of_grant(key, grant));
        let defaults = self.defaults.iter();
        let defaults = defaults.flat_map(|(key, defaults)| of_defaults(key, defaults));
        let mut by_surface: BTreeMap<ObjectRef, Vec<Rule<'_>>> = BTreeMap::new();
        for rule in grants.chain(defaults) {
            by_surface
                .entry(rule.surface.clone())
                .or_default()
                .push(rule);
        }
        by_surface
    }
}

/// Returns whether the agent includes ToolDefaults; the default is yes.
pub(crate) fn includes_defaults(agent: &Agent) -> bool {
    agent.spec.tool_defaults != Some(DefaultsUse::Exclude)
}

/// The rules of one ToolGrant, also of a suspended one.
pub(crate) fn of_grant<'a>(key: &ObjectRef, grant: &'a ToolGrant) -> Vec<Rule<'a>> {
    let spec = &grant.spec;
    let window = Window::of(spec);
    of_object(Kind::ToolGrant, key, &spec.tools, &spec.feeds, window)
}

/// The rules of one ToolDefaults.
pub(crate) fn of_defaults<'a>(key: &ObjectRef, defaults: &'a ToolDefaults) -> Vec<Rule<'a>> {
    let spec = &defaults.spec;
    let window = Window::default();
    of_object(Kind::ToolDefaults, key, &spec.tools, &spec.feeds, window)
}

fn of_object<'a>(
    kind: Kind,
    key: &ObjectRef,
    tools: &'a [ToolRule],
    feeds: &'a [FeedRule],
    window: Window<'_>,
) -> Vec<Rule<'a>> {
    let grant = || GrantRef {
        name: key.name.clone(),
        namespace: key.namespace.clone(),
    };
    let rule =
        |verb, field: String, surface: &SurfaceName, allow, descriptor_digest, conditions| Rule {
            source: GrantSource {
                kind,
                key: key.clone(),
            },
            verb,
            field,
            surface: ObjectRef::new(
                surface.namespace.as_deref().unwrap_or(&key.namespace),
                surface.name.clone(),
            ),
            allow,
            descriptor_digest,
            conditions,
        };
    let tools = tools.iter().enumerate().map(|(index, entry)| {
        let field = format!("spec.tools[{index}]");
        let conditions = Conditions::of_tools(grant(), &field, entry, window);
        rule(
            Verb::Tool,
            field,
            &entry.surface,
            &entry.allow[..],
            entry.descriptor_digest.as_deref(),
            conditions,
        )
    });
    let feeds = feeds.iter().enumerate().map(|(index, entry)| {
        rule(
            Verb::Feed,
            format!("spec.feeds[{index}]"),
            &entry.surface,
            &entry.allow[..],
            None,
            Conditions::of_feeds(grant(), window),
        )
    });
    tools.chain(feeds).collect()
}
