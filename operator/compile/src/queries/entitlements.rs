//! An agent's entitlements, item by item: the compiled files as a person would list them.
//!
//! Each item has facts, all of them text. Two compilations give an agent the same if their
//! entitlements are equal. Secrets appear as references, a CA bundle as its digest. Not here:
//! which difference is a gain ([`crate::plan`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use toolcrib_manifest::{
    AgentFile, Auth, EndpointDialect, Execution, Feed, FeedAuth, Models, Provider, ProviderAuth,
    ServiceSettings, Tier, Tls, Tool, ToolExtension, Transport,
};

use super::approval::approvers;
use crate::canonical::digest::{canonical, sha256};
use crate::compilation::files::Files;
use crate::compilation::limits::limits;
use crate::compilation::secrets::references_of_auth;
use crate::compile::authority::policies::models::in_words;
use crate::names::method_name;
use crate::{Compilation, Kind, Network, SecretKeyRef, ToolSummary, names};

/// One item that an agent can have. Reports use the derived order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Item {
    pub kind: ItemKind,
    /// `surface.tool`, `surface/feed`, a provider, `provider/model` (`provider/*`: all of its
    /// models), a skill's surface, or a setting.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ItemKind {
    Tool,
    Feed,
    Model,
    Provider,
    Skill,
    /// A setting of the service for the agent; agents neither gain nor lose settings.
    Setting,
}

impl ItemKind {
    pub fn name(self) -> &'static str {
        match self {
            ItemKind::Tool => "tool",
            ItemKind::Feed => "feed",
            ItemKind::Model => "model",
            ItemKind::Provider => "provider",
            ItemKind::Skill => "skill",
            ItemKind::Setting => "setting",
        }
    }
}

impl Item {
    pub(crate) fn new(kind: ItemKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

/// Facts of an item by name. The names are part of `plan`'s output: stable.
pub(crate) type Facts = BTreeMap<&'static str, String>;

/// The fact that holds a tool's tier.
pub(crate) const TIER: &str = "tier";

/// The fact with the words for a tool's limits; missing for a tool without.
pub(crate) const LIMITS: &str = "limits";

/// The fact with the digests of the rules behind the limits.
pub(crate) const RULES: &str = "rules";

/// The fact with the address of a tool's calls. Every tool has it.
pub(crate) const EXECUTED: &str = "executed";

/// The fact with the globs of policies that a provider's models must match, in words.
pub(crate) const MATCHING: &str = "matching";

/// The fact with the policy that is tried out and would deny a tool, in words.
pub(crate) const WOULD_DENY: &str = "wouldDeny";

/// The fact with the policies that ask for an approval of each call of a tool.
pub(crate) const APPROVAL: &str = "approval";

/// The fact with those who may approve calls of a tool, in words.
pub(crate) const APPROVERS: &str = "approvers";

/// The only fact of a setting.
pub(crate) const VALUE: &str = "value";

/// Stands for every model of a provider.
pub(crate) const ANY_MODEL: &str = "*";

/// Returns everything that the compilation gives its agent.
pub(crate) fn entitlements(compilation: &Compilation) -> BTreeMap<Item, Facts> {
    let Files {
        agent,
        tools,
        providers,
        feeds,
    } = &compilation.files;
    let mut items = BTreeMap::new();
    let summaries = compilation.tools.iter();
    let summaries: BTreeMap<&str, &ToolSummary> =
        summaries.map(|summary| (&*summary.name, summary)).collect();
    for tool in &tools.tools {
        let service = tools.extension.services.get(&tool.execution.service);
        let mut facts = tool_facts(tool, service);
        if let Some(summary) = summaries.get(&*tool.name) {
            let (kind, key) = (summary.grant.kind.name(), &summary.grant.key);
            facts.insert("givenBy", format!("{kind} {key}"));
            facts.insert("credentialKind", summary.credential.name().to_owned());
            facts.extend(approvers(summary).map(|text| (APPROVERS, text)));
        }
        items.insert(Item::new(ItemKind::Tool, tool.name.clone()), facts);
    }
    for feed in &feeds.0 {
        let name = format!("{}/{}", feed.source, feed.name);
        items.insert(Item::new(ItemKind::Feed, name), feed_facts(feed));
    }
    for (name, provider) in &providers.providers {
        let item = Item::new(ItemKind::Provider, name.clone());
        items.insert(item, provider_facts(provider));
    }
    let served: Vec<&str> = providers.providers.keys().map(String::as_str).collect();
    items.extend(model_facts(agent.models.as_ref(), &served));
    for (file, text) in &compilation.context {
        if let Some(surface) = skill_of(file) {
            let facts = Facts::from([("text", sha256(text.as_bytes()))]);
            items.insert(Item::new(ItemKind::Skill, surface), facts);
        }
    }
    items.extend(settings(agent, &tools.policy));
    if let Some(config) = compilation.context.get(names::MCP_CONFIG) {
        items.insert(
            Item::new(ItemKind::Setting, "mcpConfig"),
            Facts::from([(VALUE, sha256(config.as_bytes()))]),
        );
    }
    let network = match &compilation.network {
        Network::Unrestricted => "Unrestricted".to_owned(),
        Network::Declared(declared) => {
            format!(
                "Declared {}",
                sha256(canonical(&declared.policy).as_bytes())
            )
        }
        Network::Undecided => "as it stands".to_owned(),
    };
    items.insert(
        Item::new(ItemKind::Setting, "network"),
        Facts::from([(VALUE, network)]),
    );
    items
}

/// Returns the Secret keys that an item's calls need. A model needs those of its provider.
pub(crate) fn references_of_item(files: &Files, item: &Item) -> Vec<SecretKeyRef> {
    match item.kind {
        ItemKind::Tool => {
            let tool = files.tools.tools.iter().find(|tool| tool.name == item.name);
            let auth = tool.and_then(|tool| tool.execution.auth.as_ref());
            auth.map(references_of_auth).unwrap_or_default()
        }
        ItemKind::Feed => {
            let is_it = |feed: &&Feed| format!("{}/{}", feed.source, feed.name) == item.name;
            let feed = files.feeds.0.iter().find(is_it);
            match feed.and_then(|feed| feed.auth.as_ref()) {
                None => Vec::new(),
                Some(FeedAuth::Bearer(text)) => {
                    SecretKeyRef::from_placeholder(text).into_iter().collect()
                }
                Some(FeedAuth::Full(auth)) => references_of_auth(auth),
            }
        }
        ItemKind::Provider => {
            let provider = files.providers.providers.get(&item.name);
            let keys = provider.into_iter().flat_map(|provider| &provider.keys);
            keys.filter_map(|key| SecretKeyRef::from_placeholder(&key.secret))
                .collect()
        }
        ItemKind::Model | ItemKind::Skill | ItemKind::Setting => Vec::new(),
    }
}

/// The method and address of a tool's calls as one line: `GET http://fish.pond.svc:80/list`.
pub fn executed(execution: &Execution) -> String {
    let verb = match (execution.transport, execution.method) {
        (Transport::Http, Some(method)) => method_name(method).to_owned(),
        (Transport::Http, None) => "HTTP".to_owned(),
        (Transport::Mcp, _) => match &execution.tool_name {
            Some(name) => format!("MCP {name} at"),
            None => "MCP".to_owned(),
        },
    };
    let path = execution.path.as_deref().unwrap_or_default();
    format!("{verb} {}{path}", execution.base_url)
}

// The types are destructured without `..`, so that a new field cannot be forgotten here.

fn tool_facts(tool: &Tool, service: Option<&ServiceSettings>) -> Facts {
    let Tool {
        name: _,
        description,
        input_schema,
        annotations,
        execution,
        extension,
    } = tool;
    let Execution {
        transport: _,
        service: _,
        base_url: _,
        method: _,
        path: _,
        body,
        body_key,
        idempotency_header,
        tool_name: _,
        auth,
    } = execution;
    let ToolExtension {
        approval,
        requires,
        tier,
        grant: _,
        // It is a digest of the fields below.
        entry_digest: _,
        output_schema,
        foreign,
        rules,
        would_deny,
    } = extension;
    let mut facts = Facts::from([
        (EXECUTED, executed(execution)),
        ("schema", input_schema.get().to_owned()),
        (
            TIER,
            tier.clone()
                .unwrap_or_else(|| Tier::System.name().to_owned()),
        ),
    ]);
    let mut optional = |name, text: Option<String>| {
        facts.extend(
            text.filter(|text| !text.is_empty())
                .map(|text| (name, text)),
        );
    };
    optional("description", Some(description.clone()));
    optional(
        "annotations",
        annotations.as_ref().map(|raw| raw.get().to_owned()),
    );
    optional(
        "outputSchema",
        output_schema.as_ref().map(|raw| raw.get().to_owned()),
    );
    optional("body", body.map(|_| "json".to_owned()));
    optional("bodyKey", body_key.clone());
    optional("idempotencyHeader", idempotency_header.clone());
    optional("credential", auth.as_ref().map(credential));
    // Mediators of this release know the limits, which are facts of their own.
    let is_known = |name: &&String| names::TOOL_REQUIREMENTS.contains(&name.as_str());
    let requires = requires.iter().filter(|name| !is_known(name));
    let requires: Vec<&str> = requires.map(String::as_str).collect();
    optional("requires", Some(requires.join(", ")));
    let policies = (!approval.is_empty()).then(|| approval.join(", "));
    optional(APPROVAL, policies);
    let limits = limits(tool);
    let digests: BTreeSet<&str> = rules.iter().map(|rule| rule.digest.as_str()).collect();
    let digests = Vec::from_iter(digests).join(" ");
    optional(RULES, limits.is_some().then_some(digests));
    optional(LIMITS, limits);
    optional("foreign", foreign.then(|| "true".to_owned()));
    let denied = would_deny.as_ref();
    optional(WOULD_DENY, denied.map(|policy| would_deny_it(policy)));
    if let Some(ServiceSettings { tls, proxy }) = service {
        optional("ca", ca(tls.as_ref()));
        optional("proxy", proxy.clone());
    }
    facts
}

/// `ClusterToolPolicy trial would deny it`.
pub fn would_deny_it(policy: &str) -> String {
    format!("{} {policy} would deny it", Kind::ClusterToolPolicy.name())
}

fn feed_facts(feed: &Feed) -> Facts {
    let Feed {
        name: _,
        source: _,
        path: _,
        ttl,
        url,
        auth,
        foreign,
    } = feed;
    let mut facts = Facts::from([("fetched", url.clone()), ("ttl", ttl.to_string())]);
    let credential = auth.as_ref().map(|auth| match auth {
        FeedAuth::Full(auth) => credential(auth),
        FeedAuth::Bearer(token) => bearer(token),
    });
    facts.extend(credential.map(|text| ("credential", text)));
    facts.extend(foreign.then(|| ("foreign", "true".to_owned())));
    facts
}

fn provider_facts(provider: &Provider) -> Facts {
    let Provider {
        endpoints,
        auth,
        keys,
        pass_headers,
        tls,
        proxy,
    } = provider;
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|endpoint| {
            let dialect = match endpoint.dialect {
                EndpointDialect::Openai => "OpenAI",
                EndpointDialect::Anthropic => "Anthropic",
            };
            let responses = if endpoint.responses {
                " with responses"
            } else {
                ""
            };
            format!("{dialect} {}{responses}", endpoint.base_url)
        })
        .collect();
    let auth = match auth {
        ProviderAuth::Bearer => "Bearer",
        ProviderAuth::XApiKey => "XApiKey",
        ProviderAuth::None => "None",
    };
    let keys: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
    let mut facts = Facts::from([
        ("endpoints", endpoints.join(", ")),
        ("auth", auth.to_owned()),
    ]);
    facts.extend((!keys.is_empty()).then(|| ("keys", keys.join(", "))));
    let passed = !pass_headers.is_empty();
    facts.extend(passed.then(|| ("passed headers", pass_headers.join(", "))));
    facts.extend(ca(tls.as_ref()).map(|text| ("ca", text)));
    facts.extend(proxy.clone().map(|text| ("proxy", text)));
    facts
}

/// Lists the models that a request may name, and the fallbacks, if a provider serves them.
fn model_facts(models: Option<&Models>, served: &[&str]) -> BTreeMap<Item, Facts> {
    let mut roles: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |name: &str, role: String| {
        let provider = name.split_once('/').map_or("", |(provider, _)| provider);
        if served.contains(&provider) {
            roles.entry(name.to_owned()).or_default().push(role);
        }
    };
    let matching = models.map(|models| models.matching.as_slice());
    let is_open = matching.is_none_or(|lists| !lists.is_empty());
    if is_open {
        for provider in served {
            add(&format!("{provider}/{ANY_MODEL}"), "allowed".to_owned());
        }
    }
    if let Some(models) = models {
        for name in &models.allowed {
            add(name, "allowed".to_owned());
        }
        if let Some(name) = &models.default {
            add(name, "default".to_owned());
        }
        for (index, name) in models.fallbacks.iter().enumerate() {
            add(name, format!("fallback {}", index + 1));
        }
    }
    roles
        .into_iter()
        .map(|(name, roles)| {
            let item = Item::new(ItemKind::Model, name);
            let mut facts = Facts::from([("as", roles.join(", "))]);
            let globs = matching.filter(|lists| !lists.is_empty()).map(in_words);
            facts.extend(globs.map(|globs| (MATCHING, globs)));
            (item, facts)
        })
        .collect()
}

fn settings(agent: &AgentFile, policy: &toolcrib_manifest::Policy) -> BTreeMap<Item, Facts> {
    let AgentFile {
        version: _,
        agent: _,
        budgets,
        namespace: _,
        claw_id,
        identity,
        tokens: _,
        models,
        streaming,
        max_tier,
        context,
        digest: _,
        dns: _,
        files: _,
        link: _,
        mode,
        native,
        policies: _,
        prompt,
        provider_tools,
        requires,
        suspension,
    } = agent;
    let toolcrib_manifest::Policy {
        approval_wait_ms,
        max_rounds,
        timeout_per_tool_ms,
        total_timeout_ms,
        max_tool_result_bytes,
    } = policy;
    let mut settings = vec![
        ("clawId", claw_id.clone()),
        ("identity", format!("{identity:?}")),
        ("mode", format!("{mode:?}")),
        ("native", native.to_string()),
        ("context", format!("{context:?}")),
        ("policy.streaming", format!("{streaming:?}")),
        ("policy.maxTier", max_tier.name().to_owned()),
        ("policy.providerTools", format!("{provider_tools:?}")),
        ("policy.maxRounds", max_rounds.to_string()),
        ("policy.toolTimeout", format!("{timeout_per_tool_ms}ms")),
        ("policy.totalTimeout", format!("{total_timeout_ms}ms")),
        (
            "policy.maxToolResultBytes",
            max_tool_result_bytes.to_string(),
        ),
    ];
    settings.extend(approval_wait_ms.map(|ms| ("policy.approvalWait", format!("{ms}ms"))));
    // It means nothing for an agent that lists no models.
    let listed = models.as_ref().filter(|models| models.matching.is_empty());
    settings.extend(listed.map(|models| ("models.unknown", format!("{:?}", models.unknown))));
    settings.extend(
        prompt
            .as_ref()
            .map(|prompt| ("prompt", sha256(prompt.as_bytes()))),
    );
    settings.extend(suspension.as_ref().map(|suspension| {
        let reason = suspension.reason.clone();
        ("suspended", reason.unwrap_or_else(|| "yes".to_owned()))
    }));
    settings.extend((!requires.is_empty()).then(|| ("requires", requires.join(", "))));
    let settings = settings.into_iter();
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    let budgets = budgets.iter().map(|budget| {
        let name = format!("budgets.{}.{}", budget.unit, budget.per);
        (name, budget.limit.to_string())
    });
    settings
        .chain(budgets)
        .map(|(name, value)| {
            let item = Item::new(ItemKind::Setting, name);
            (item, Facts::from([(VALUE, value)]))
        })
        .collect()
}

/// Returns the surface whose skill is in a context file.
fn skill_of(file: &str) -> Option<&str> {
    file.strip_prefix("skill.")?.strip_suffix(".md")
}

/// Describes a credential by scheme and references: `Bearer pond/fish-creds/token`.
fn credential(auth: &Auth) -> String {
    let scheme = match auth {
        Auth::Bearer { .. } => "Bearer".to_owned(),
        Auth::Header { header, .. } => format!("Header {header}"),
        Auth::Basic { .. } => "Basic".to_owned(),
        Auth::Oauth {
            token_url,
            resource,
            scopes,
            ..
        } => {
            let mut parts = vec!["OAuth".to_owned(), token_url.clone()];
            parts.extend(resource.clone());
            parts.extend(scopes.iter().cloned());
            parts.join(" ")
        }
    };
    let references = references_of_auth(auth);
    let references = references.iter().map(SecretKeyRef::to_string);
    std::iter::once(scheme)
        .chain(references)
        .collect::<Vec<_>>()
        .join(" ")
}

fn bearer(token: &toolcrib_manifest::SecretText) -> String {
    credential(&Auth::Bearer {
        token: Some(token.clone()),
        file: None,
    })
}

fn ca(tls: Option<&Tls>) -> Option<String> {
    let pem = tls?.ca.as_ref()?;
    Some(format!("sha256:{}", sha256(pem.as_bytes())))
}
