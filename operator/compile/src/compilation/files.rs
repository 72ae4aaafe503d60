//! The four files of an agent: their types together, their text, and the digest of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use toolcrib_manifest::{AgentFile, FeedsFile, ProvidersFile, ServiceSettings, ToolsFile};

use crate::canonical::digest::{sha256, text};
use crate::names;

/// The four files as types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub agent: AgentFile,
    pub tools: ToolsFile,
    pub providers: ProvidersFile,
    pub feeds: FeedsFile,
}

/// The four files' text, by file name.
pub fn render(files: &Files) -> BTreeMap<String, String> {
    rendered(&files.agent, &files.tools, files)
}

fn rendered(agent: &AgentFile, tools: &ToolsFile, files: &Files) -> BTreeMap<String, String> {
    [
        (names::AGENT_FILE, text(agent)),
        (names::TOOLS_FILE, text(tools)),
        (names::PROVIDERS_FILE, text(&files.providers)),
        (names::FEEDS_FILE, text(&files.feeds)),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

/// Renders `tools.json`, and `feeds.json` if there are feeds, without credentials, for users who
/// may not read Secrets.
pub fn published(files: &Files) -> BTreeMap<String, String> {
    let mut tools = files.tools.clone();
    for tool in &mut tools.tools {
        tool.execution.auth = None;
    }
    let mut feeds = files.feeds.clone();
    for feed in &mut feeds.0 {
        feed.auth = None;
    }
    let mut published = BTreeMap::from([(names::TOOLS_FILE.to_owned(), text(&tools))]);
    if !feeds.0.is_empty() {
        published.insert(names::FEEDS_FILE.to_owned(), text(&feeds));
    }
    published
}

/// Renders the files, by name, as the manifest digest and "offline equals online" use them:
/// canonical, with references in place of secrets, without `digest`, `files`, `tokens` and `link`.
/// If a surface is the operator's own, the link's authority is left out as well: renewing it
/// changes nothing that the agent is given.
pub fn comparable(files: &Files) -> BTreeMap<String, String> {
    let agent = AgentFile {
        digest: None,
        files: None,
        tokens: Vec::new(),
        link: None,
        dns: None,
        ..files.agent.clone()
    };
    let tools = match &files.agent.link {
        Some(link) => without_authority(&files.tools, &link.ca),
        None => Cow::Borrowed(&files.tools),
    };
    rendered(&agent, &tools, files)
}

fn without_authority<'a>(tools: &'a ToolsFile, authority: &str) -> Cow<'a, ToolsFile> {
    let is_own = |settings: &ServiceSettings| {
        let ca = settings.tls.as_ref().and_then(|tls| tls.ca.as_deref());
        ca == Some(authority) && settings.proxy.is_none()
    };
    if !tools.extension.services.values().any(is_own) {
        return Cow::Borrowed(tools);
    }
    let mut tools = tools.clone();
    tools
        .extension
        .services
        .retain(|_, settings| !is_own(settings));
    Cow::Owned(tools)
}

/// Hex SHA-256 of the `sha256sum` listing of [`comparable`].
pub fn manifest_digest(files: &Files) -> String {
    let line = |(name, text): (&String, &String)| format!("{}  {name}\n", sha256(text.as_bytes()));
    let list: String = comparable(files).iter().map(line).collect();
    sha256(list.as_bytes())
}
