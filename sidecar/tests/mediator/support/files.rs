//! The four files as the kubelet writes them: a directory per version, and a `..data` link to one
//! of them.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use toolcrib_dialect::Dialect;

/// The token as the runner sends it.
pub const RUNNER: &str = "otter:runner-secret";
pub const MODEL_KEY: &str = "sk-house-key-1";
pub const TOOL_TOKEN: &str = "desk-token-0001";

pub struct Files {
    dir: TempDir,
    version: usize,
    pub agent: Value,
    pub tools: Value,
    pub providers: Value,
    pub feeds: Value,
    /// Secrets in separate files beside the four: name and content.
    pub secrets: Vec<(String, String)>,
    /// Links beside the four files: name and target.
    pub links: Vec<(String, String)>,
}

impl Files {
    pub fn new(model: &str, desk: &str) -> Files {
        let quote = json!({
            "name": "desk.quote", "description": "A price",
            "inputSchema": {"type": "object", "required": ["symbol"],
                "properties": {"symbol": {"type": "string"}, "claw_id": {"type": "string"}}},
            "execution": {"transport": "http", "service": "desk", "base_url": desk,
                "method": "GET", "path": "/quotes/{symbol}",
                "auth": {"type": "bearer", "token": TOOL_TOKEN}},
            "x-toolcrib": {"tier": "ReadOnly", "entry_digest": "v1:quote",
                "grant": {"namespace": "pond", "name": "desk-readers"}}});
        let order = json!({
            "name": "desk.order", "description": "Buys",
            "inputSchema": {"type": "object", "properties": {
                "symbol": {"type": "string"}, "quantity": {"type": "number"},
                "claw_id": {"type": "string"}}},
            "execution": {"transport": "http", "service": "desk", "base_url": desk,
                "method": "POST", "path": "/agents/{claw_id}/orders",
                "auth": {"type": "bearer", "token": TOOL_TOKEN}},
            "x-toolcrib": {"tier": "System", "entry_digest": "v1:order"}});
        Files {
            dir: tempfile::tempdir().unwrap(),
            version: 0,
            agent: json!({
                "version": 1, "agent": "otter", "namespace": "pond", "claw_id": "otter",
                "tokens": [{"id": "t1", "sha256": hash(RUNNER)}],
                "models": {"default": "house/otter-1", "allowed": ["house/otter-1"],
                           "fallbacks": [], "unknown": "Refuse"}}),
            tools: json!({"version": 1, "tools": [quote, order], "policy": {
                "max_rounds": 4, "timeout_per_tool_ms": 15000, "total_timeout_ms": 60000,
                "max_tool_result_bytes": 400}}),
            providers: json!({"version": 1, "providers": {"house": {
                "endpoints": [{"dialect": "openai", "base_url": format!("{model}/v1")}],
                "auth": "bearer", "keys": [{"id": "k1", "secret": MODEL_KEY}]}}}),
            feeds: json!([]),
            secrets: Vec::new(),
            links: Vec::new(),
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Makes the provider speak this dialect alone, with its usual form of key.
    pub fn speak(&mut self, dialect: Dialect) {
        let house = &mut self.providers["providers"]["house"];
        let (name, responses, auth) = match dialect {
            Dialect::OpenaiChat => ("openai", false, "bearer"),
            Dialect::AnthropicMessages => ("anthropic", false, "x-api-key"),
            Dialect::OpenaiResponses => ("openai", true, "bearer"),
        };
        house["endpoints"][0]["dialect"] = json!(name);
        house["endpoints"][0]["responses"] = json!(responses);
        house["auth"] = json!(auth);
    }

    pub fn no_tools(&mut self) {
        self.tools["tools"] = json!([]);
    }

    /// Swaps the next version in, as the kubelet does; returns its digest.
    pub fn publish(&mut self) -> String {
        let digest = format!("manifest-{}", self.version + 1);
        self.agent["digest"] = json!({"manifest": digest, "credentials": "c"});
        let files = [
            ("tools.json", self.tools.to_string()),
            ("providers.json", self.providers.to_string()),
            ("feeds.json", self.feeds.to_string()),
        ];
        let hashes = files
            .iter()
            .map(|(name, text)| (name.to_string(), hash(text)));
        self.agent["files"] = Value::Object(hashes.map(|(name, it)| (name, json!(it))).collect());
        let agent = [("agent.json", self.agent.to_string())];
        let secrets = std::mem::take(&mut self.secrets);
        let beside = secrets.iter().map(|(name, text)| (&**name, &**text));
        self.swap(
            files
                .iter()
                .chain(&agent)
                .map(|(name, text)| (*name, text.as_str()))
                .chain(beside),
        );
        self.secrets = secrets;
        digest
    }

    /// Swaps in a version of exactly these files, valid or not.
    pub fn swap<'f>(&mut self, files: impl IntoIterator<Item = (&'f str, &'f str)>) {
        self.version += 1;
        let name = format!("..version-{}", self.version);
        let version = self.dir().join(&name);
        std::fs::create_dir(&version).unwrap();
        for (file, text) in files {
            std::fs::write(version.join(file), text).unwrap();
        }
        for (file, target) in &self.links {
            symlink(target, version.join(file)).unwrap();
        }
        let pointer = self.dir().join("..data_tmp");
        symlink(&name, &pointer).unwrap();
        std::fs::rename(pointer, self.dir().join("..data")).unwrap();
        let before = self.dir().join(format!("..version-{}", self.version - 1));
        if before.exists() {
            std::fs::remove_dir_all(before).unwrap();
        }
    }
}

pub fn hash(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}
