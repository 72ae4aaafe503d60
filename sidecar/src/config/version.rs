//! One version of the four files, parsed and checked. Pure: bytes in, [`Version`] out.
//!
//! An error of the whole version is a [`ConfigError`]; an error of one tool withholds that tool.
//! No error carries a file's content: serde's messages quote values, so only the position and the
//! name of a missing field are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use thiserror::Error;
use toolcrib_bounds::digest::Parts;
use toolcrib_manifest::{
    AgentFile, Auth, Dns, Execution, Feed, FeedAuth, FeedsFile, LinkConfig, Policy, Provider,
    ProvidersFile, SecretText, ServiceSettings, ToolsFile, VERSION, WithheldItem, names,
};
use toolcrib_mediation::{AgentName, Catalog, feed_name};

/// The names in `requires`, of agent.json and of tools, that this release enforces.
pub fn understands() -> impl Iterator<Item = &'static str> {
    names::AGENT_REQUIREMENTS
        .into_iter()
        .chain(names::TOOL_REQUIREMENTS)
}

/// One loaded version.
#[derive(Debug)]
pub struct Version {
    pub agent: Arc<AgentFile>,
    /// The tools, each with its credential.
    pub catalog: Arc<Catalog>,
    pub services: BTreeMap<String, ServiceSettings>,
    pub providers: BTreeMap<String, Provider>,
    pub feeds: Vec<Feed>,
    /// The secrets, which must never appear in a result, an error, the record or a log.
    pub secrets: Vec<SecretText>,
    /// Digest of all bytes that were read: two reads of the same files are one version.
    pub fingerprint: [u8; 32],
    /// Tools that this release cannot call, besides those that the catalog withholds.
    unusable: BTreeMap<String, Unusable>,
    /// Feeds that cannot be fetched, by [`feed_name`].
    unusable_feeds: BTreeMap<String, Unusable>,
}

/// The reason why a tool cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unusable {
    /// No secret, or its file is missing or outside of the directory.
    Credential,
}

impl Unusable {
    fn name(self) -> &'static str {
        match self {
            Unusable::Credential => "credential_missing",
        }
    }
}

impl Version {
    /// The withheld tools and feeds for `/readyz` and the link, sorted by name.
    pub fn withheld(&self) -> Vec<WithheldItem> {
        let mut withheld = self.catalog.withheld();
        for entry in &mut withheld {
            if let Some(reason) = self.unusable.get(&entry.tool) {
                entry.reason = reason.name().to_string();
            }
        }
        withheld.extend(
            self.unusable_feeds
                .iter()
                .map(|(name, reason)| WithheldItem {
                    tool: format!("feed {name}"),
                    reason: reason.name().to_string(),
                }),
        );
        withheld
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    #[error("{file}: cannot be decoded at line {line}, column {column}{hint}")]
    Syntax {
        file: &'static str,
        line: usize,
        column: usize,
        hint: String,
    },
    #[error("{file}: version {version} is not supported by this release")]
    UnknownVersion { file: &'static str, version: u32 },
    #[error("agent.json: requires {0}, which this release does not enforce")]
    Requires(String),
    #[error("{file}: its digest differs from the one in agent.json (incomplete update?)")]
    HashMismatch { file: &'static str },
    #[error("tools.json: policy.{0} must be at least 1")]
    Policy(&'static str),
    #[error("tools.json: duplicate tool {0}")]
    DuplicateTool(String),
    #[error("the files are being swapped faster than they can be read")]
    Unsettled,
    #[error("missing: {}", .0.join(", "))]
    Missing(Vec<&'static str>),
    #[error("{file}: cannot be read: {kind}")]
    Unreadable {
        file: String,
        kind: std::io::ErrorKind,
    },
    #[error("{file}: larger than {limit} bytes")]
    TooLarge { file: &'static str, limit: usize },
}

/// The bytes of the four files, in the order of [`names::FILES`].
#[derive(Clone, Debug)]
pub struct Files {
    pub agent: Vec<u8>,
    pub tools: Vec<u8>,
    pub providers: Vec<u8>,
    pub feeds: Vec<u8>,
}

/// Reads a secret from a file of its own; `None`: missing, or outside of the directory.
pub type SecretFile<'a> = &'a dyn Fn(&str) -> Option<SecretText>;

/// Parses the bytes of one read into a version.
pub fn parse(files: &Files, secret_file: SecretFile<'_>) -> Result<Version, ConfigError> {
    let agent: AgentFile = parse_file(names::AGENT_FILE, &files.agent)?;
    check_version(names::AGENT_FILE, agent.version)?;
    // First of all: an unknown requirement may be the restriction that matters.
    if let Some(unknown) = agent.requires.iter().find(|name| !understood(name)) {
        return Err(ConfigError::Requires(unknown.clone()));
    }
    check_hashes(&agent, files)?;

    let mut tools: ToolsFile = parse_file(names::TOOLS_FILE, &files.tools)?;
    check_version(names::TOOLS_FILE, tools.version)?;
    check_policy(&tools.policy)?;
    let providers: ProvidersFile = parse_file(names::PROVIDERS_FILE, &files.providers)?;
    check_version(names::PROVIDERS_FILE, providers.version)?;
    let mut feeds: FeedsFile = parse_file(names::FEEDS_FILE, &files.feeds)?;

    let mut secrets = Vec::new();
    let mut unusable = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for tool in &mut tools.tools {
        if !seen.insert(tool.name.clone()) {
            return Err(ConfigError::DuplicateTool(tool.name.clone()));
        }
        let usable = make_callable(&mut tool.execution, secret_file);
        // A withheld tool's credential must not leak either.
        secrets.extend(tool.execution.auth.as_ref().and_then(secret).cloned());
        if let Err(reason) = usable {
            // The catalog withholds a tool with a requirement that is not supported.
            tool.extension.requires.push(reason.name().to_string());
            unusable.insert(tool.name.clone(), reason);
        }
    }
    let name = AgentName {
        name: agent.agent.clone(),
        namespace: agent.namespace.clone(),
    };
    let catalog = Catalog::load_for(&tools, agent.max_tier, name);
    let mut unusable_feeds = BTreeMap::new();
    feeds.0.retain_mut(|feed| {
        // A bare string is the short form of a bearer token.
        if let Some(FeedAuth::Bearer(token)) = &feed.auth {
            feed.auth = Some(FeedAuth::Full(Auth::Bearer {
                token: Some(token.clone()),
                file: None,
            }));
        }
        let Some(FeedAuth::Full(auth)) = &mut feed.auth else {
            return true;
        };
        let usable = inline_secret(auth, secret_file);
        secrets.extend(secret(auth).cloned());
        if let Err(reason) = usable {
            unusable_feeds.insert(feed_name(feed), reason);
        }
        usable.is_ok()
    });
    secrets.extend(
        providers
            .providers
            .values()
            .flat_map(|provider| &provider.keys)
            .map(|key| key.secret.clone()),
    );
    secrets.retain(|secret| !secret.expose().is_empty());
    secrets.sort();
    secrets.dedup();

    let mut fingerprint = Parts::default();
    for part in [&files.agent, &files.tools, &files.providers, &files.feeds] {
        fingerprint.push(part);
    }
    for secret in &secrets {
        fingerprint.push(secret.expose());
    }

    Ok(Version {
        fingerprint: fingerprint.digest(),
        agent: Arc::new(agent),
        catalog: Arc::new(catalog),
        unusable,
        unusable_feeds,
        services: tools.extension.services,
        providers: providers.providers,
        feeds: feeds.0,
        secrets,
    })
}

/// The operator's address, and the settings for resolving its name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Contact {
    pub link: Option<LinkConfig>,
    pub dns: Option<Dns>,
    #[serde(default)]
    pub namespace: String,
}

/// Reads the operator's contact from agent.json, whatever else is wrong with the version.
pub fn contact(files: &Files) -> Option<Contact> {
    // Err: the file has no contact.
    serde_json::from_slice(&files.agent).ok()
}

fn understood(name: &str) -> bool {
    understands().any(|it| it == name)
}

fn parse_file<T: DeserializeOwned>(file: &'static str, bytes: &[u8]) -> Result<T, ConfigError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // Only these two messages name nothing but our own fields.
        let safe = ["missing field `", "duplicate field `"]
            .iter()
            .any(|start| text.starts_with(start));
        let hint = match text.split_once(" at line ") {
            Some((message, _)) if safe => format!(": {message}"),
            _ => String::new(),
        };
        ConfigError::Syntax {
            file,
            line: error.line(),
            column: error.column(),
            hint,
        }
    })
}

fn check_version(file: &'static str, version: u32) -> Result<(), ConfigError> {
    if version == VERSION {
        return Ok(());
    }
    Err(ConfigError::UnknownVersion { file, version })
}

fn check_hashes(agent: &AgentFile, files: &Files) -> Result<(), ConfigError> {
    let Some(hashes) = &agent.files else {
        return Ok(());
    };
    let others = [
        (names::TOOLS_FILE, &files.tools),
        (names::PROVIDERS_FILE, &files.providers),
        (names::FEEDS_FILE, &files.feeds),
    ];
    for (file, bytes) in others {
        let actual = hex::encode(Sha256::digest(bytes));
        if hashes.get(file).is_some_and(|wanted| *wanted != actual) {
            return Err(ConfigError::HashMismatch { file });
        }
    }
    Ok(())
}

fn check_policy(policy: &Policy) -> Result<(), ConfigError> {
    let bounds = [
        ("max_rounds", u64::from(policy.max_rounds)),
        ("timeout_per_tool_ms", policy.timeout_per_tool_ms),
        ("total_timeout_ms", policy.total_timeout_ms),
        ("max_tool_result_bytes", policy.max_tool_result_bytes),
    ];
    match bounds.iter().find(|(_, value)| *value == 0) {
        Some((name, _)) => Err(ConfigError::Policy(name)),
        None => Ok(()),
    }
}

/// Puts the credential into the entry; an error if this release cannot call it.
fn make_callable(execution: &mut Execution, secret_file: SecretFile<'_>) -> Result<(), Unusable> {
    match &mut execution.auth {
        None => Ok(()),
        Some(auth) => inline_secret(auth, secret_file),
    }
}

/// Replaces `file` by the secret that it names. It is an error to have both a secret and a file,
/// or neither.
fn inline_secret(auth: &mut Auth, secret_file: SecretFile<'_>) -> Result<(), Unusable> {
    let (inline, file) = match auth {
        Auth::Bearer { token, file } | Auth::Header { token, file, .. } => (token, file),
        Auth::Basic { password, file, .. } => (password, file),
        Auth::Oauth {
            client_secret,
            file,
            ..
        } => (client_secret, file),
    };
    let found = match (&*inline, file.take()) {
        (Some(secret), None) => Some(secret.clone()),
        (None, Some(path)) => secret_file(&path),
        (Some(_), Some(_)) | (None, None) => None,
    };
    *inline = Some(found.ok_or(Unusable::Credential)?);
    Ok(())
}

fn secret(auth: &Auth) -> Option<&SecretText> {
    match auth {
        Auth::Bearer { token, .. } | Auth::Header { token, .. } => token.as_ref(),
        Auth::Basic { password, .. } => password.as_ref(),
        Auth::Oauth { client_secret, .. } => client_secret.as_ref(),
    }
}
