//! `claw.describe`: what a service says of itself, read part by part.
//!
//! One tool that cannot be used must not take the others along, so each part is read by
//! itself and what is wrong becomes a finding. Unknown keys are kept (they count for the
//! digest) and mean nothing. Results are remembered by the text's hash: one surface is
//! compiled into many agents.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_manifest::{BodyKind, HttpMethod, RawJson, Tier};

use crate::Code;
use crate::digest::sha256;
use crate::finding::Finding;
use crate::normalize::normalize;
use crate::template;
use crate::{names, schema};

/// A descriptor that could be read, at least in part.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    /// `sha256:<hex>` of the normalized text.
    pub digest: String,
    pub description: String,
    /// By name. `Err`: declared, and not usable; why.
    pub tools: BTreeMap<String, Result<DescribedTool, Finding>>,
    pub feeds: BTreeMap<String, Result<DescribedFeed, Finding>>,
    pub endpoints: Vec<DescribedEndpoint>,
    pub skill: Option<Skill>,
    pub auth: Option<DescribedAuth>,
    pub mcp_path: Option<String>,
    /// Fields are relative to the descriptor. Findings of tools and feeds are among them.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug)]
pub(crate) struct DescribedTool {
    /// Its place in the descriptor: `tools[2]`.
    pub field: String,
    pub description: String,
    pub input_schema: RawJson,
    pub annotations: Option<RawJson>,
    pub tier: Tier,
    /// `None`: the tool goes over MCP.
    pub http: Option<HttpCall>,
}

#[derive(Clone, Debug)]
pub(crate) struct HttpCall {
    pub method: HttpMethod,
    pub path: String,
    pub body: Option<BodyKind>,
    pub body_key: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct DescribedFeed {
    pub path: String,
    pub ttl: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DescribedEndpoint {
    #[serde(default)]
    pub method: String,
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub description: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Skill {
    /// A file of the descriptor's ConfigMap.
    Path(String),
    Text(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DescribedAuth {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name of the variable in the seeds; here the default key of the Secret.
    pub env: Option<String>,
    pub header: Option<String>,
}

/// Entries that are kept in memory; one is a few KiB to a few hundred.
const REMEMBERED: usize = 1024;
static MEMORY: Mutex<Option<HashMap<String, Verdict>>> = Mutex::new(None);

type Verdict = Result<Arc<Descriptor>, Finding>;

/// Reads a descriptor's text. `Err`: nothing of it can be used. A pure function whose
/// results are remembered.
pub(crate) fn read(text: &str) -> Verdict {
    let hash = sha256(text.as_bytes());
    let known = with_memory(|memory| memory.get(&hash).cloned());
    known.unwrap_or_else(|| {
        let verdict = Reader::default().descriptor(text).map(Arc::new);
        with_memory(|memory| {
            if memory.len() >= REMEMBERED {
                memory.clear();
            }
            memory.insert(hash, verdict.clone());
        });
        verdict
    })
}

fn with_memory<T>(use_it: impl FnOnce(&mut HashMap<String, Verdict>) -> T) -> T {
    // A panic elsewhere leaves at worst an entry out.
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(memory.get_or_insert_with(HashMap::new))
}

/// Field by field, as text: values are parsed where they are understood.
type Members = BTreeMap<String, Box<RawValue>>;

fn member<'a>(members: &'a Members, name: &str) -> Option<&'a RawValue> {
    members.get(name).map(|value| &**value)
}

#[derive(Default)]
struct Reader {
    findings: Vec<Finding>,
}

impl Reader {
    fn find(&mut self, field: &str, code: Code, message: impl Into<String>) {
        self.findings.push(Finding::new(field, code, message));
    }

    fn descriptor(mut self, text: &str) -> Result<Descriptor, Finding> {
        let normalized = normalize(text)
            .map_err(|error| Finding::new("", Code::DescriptorInvalid, error.to_string()))?;
        for number in &normalized.rewritten {
            self.find(
                "",
                Code::NumberRewritten,
                format!("holds the number {number}, which the API server would change: use fewer digits, or a string"),
            );
        }
        let members: Members = serde_json::from_str(&normalized.text)
            .map_err(|_| Finding::new("", Code::DescriptorInvalid, "must be a JSON object"))?;
        let version = self.version(&members)?;
        if version < 2 {
            self.refuse_later_fields(&members);
        }
        let of_version_2 = |name: &str| (version >= 2).then(|| member(&members, name)).flatten();
        let mut auth: Option<DescribedAuth> = self.field(&members, "auth");
        if version < 2
            && let Some(auth) = &mut auth
        {
            auth.env = None;
        }
        let tools = self.tools(of_version_2("tools"));
        Ok(Descriptor {
            digest: format!("sha256:{}", sha256(normalized.text.as_bytes())),
            description: self.field(&members, "description").unwrap_or_default(),
            tools,
            feeds: self.feeds(member(&members, "feeds")),
            endpoints: self.field(&members, "endpoints").unwrap_or_default(),
            skill: self.skill(&members),
            auth,
            mcp_path: self.mcp(of_version_2("mcp")),
            findings: self.findings,
        })
    }

    fn version(&mut self, members: &Members) -> Result<u64, Finding> {
        let Some(written) = members.get("version") else {
            return Ok(1);
        };
        match written.get() {
            "1" => Ok(1),
            "2" => Ok(2),
            other => Err(Finding::new(
                "version",
                Code::UnsupportedDescriptorVersion,
                format!("is {other}: this release reads versions 1 and 2"),
            )),
        }
    }

    fn refuse_later_fields(&mut self, members: &Members) {
        for field in ["tools", "mcp"] {
            if members.contains_key(field) {
                self.find(
                    field,
                    Code::DescriptorFieldIgnored,
                    "is ignored: it comes with version 2 of the descriptor; set version: 2",
                );
            }
        }
        let env = members
            .get("auth")
            .and_then(|auth| serde_json::from_str::<Members>(auth.get()).ok())
            .is_some_and(|auth| auth.contains_key("env"));
        if env {
            self.find(
                "auth.env",
                Code::DescriptorFieldIgnored,
                "is ignored: it comes with version 2 of the descriptor; set version: 2",
            );
        }
    }

    /// A field that is read as a whole; one that does not read is left out, and said.
    fn field<T: DeserializeOwned>(&mut self, members: &Members, name: &str) -> Option<T> {
        let written = members.get(name)?;
        match serde_json::from_str::<Option<T>>(written.get()) {
            Ok(value) => value,
            Err(error) => {
                self.find(
                    name,
                    Code::DescriptorInvalid,
                    format!("does not read: {error}"),
                );
                None
            }
        }
    }

    fn list(&mut self, written: Option<&RawValue>, name: &str) -> Vec<Box<RawValue>> {
        let Some(written) = written else {
            return Vec::new();
        };
        serde_json::from_str::<Option<Vec<Box<RawValue>>>>(written.get())
            .unwrap_or_else(|_| {
                self.find(name, Code::DescriptorInvalid, "must be a list");
                None
            })
            .unwrap_or_default()
    }

    fn mcp(&mut self, written: Option<&RawValue>) -> Option<String> {
        #[derive(Deserialize)]
        struct Mcp {
            path: Option<String>,
        }
        let mcp: Mcp = match serde_json::from_str::<Option<Mcp>>(written?.get()) {
            Ok(mcp) => mcp?,
            Err(error) => {
                self.find(
                    "mcp",
                    Code::DescriptorInvalid,
                    format!("does not read: {error}"),
                );
                return None;
            }
        };
        Some(mcp.path.unwrap_or_else(|| "/mcp".to_owned()))
    }

    fn skill(&mut self, members: &Members) -> Option<Skill> {
        let text: Option<String> = self.field(members, "skillText");
        let path: Option<String> = self.field(members, "skill");
        text.map(Skill::Text).or(path.map(Skill::Path))
    }

    fn tools(
        &mut self,
        written: Option<&RawValue>,
    ) -> BTreeMap<String, Result<DescribedTool, Finding>> {
        let mut tools = BTreeMap::new();
        for (index, raw) in self.list(written, "tools").into_iter().enumerate() {
            let at = format!("tools[{index}]");
            let Some(name) = self.name(&raw, &at, Code::InvalidTool) else {
                continue;
            };
            if tools.contains_key(&name) {
                self.find(
                    &format!("{at}.name"),
                    Code::Duplicate,
                    format!("{name:?} is declared before; the first one counts"),
                );
                continue;
            }
            let mut warnings = Vec::new();
            let tool = tool(&raw, &at, &mut warnings).map_err(|finding| finding.within(&at));
            self.findings
                .extend(warnings.into_iter().map(|finding| finding.within(&at)));
            self.findings.extend(tool.as_ref().err().cloned());
            tools.insert(name, tool);
        }
        tools
    }

    fn feeds(
        &mut self,
        written: Option<&RawValue>,
    ) -> BTreeMap<String, Result<DescribedFeed, Finding>> {
        let mut feeds = BTreeMap::new();
        for (index, raw) in self.list(written, "feeds").into_iter().enumerate() {
            let at = format!("feeds[{index}]");
            let Some(name) = self.name(&raw, &at, Code::InvalidFeed) else {
                continue;
            };
            if feeds.contains_key(&name) {
                self.find(
                    &format!("{at}.name"),
                    Code::Duplicate,
                    format!("{name:?} is declared before; the first one counts"),
                );
                continue;
            }
            let feed = feed(&raw).map_err(|finding| finding.within(&at));
            self.findings.extend(feed.as_ref().err().cloned());
            feeds.insert(name, feed);
        }
        feeds
    }

    /// The `name` of a list's item, if it is one that can be granted and called.
    fn name(&mut self, raw: &RawValue, at: &str, code: Code) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let field = format!("{at}.name");
        let Ok(Named { name }) = serde_json::from_str(raw.get()) else {
            self.find(&field, code, "is missing or not text");
            return None;
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        if name.is_empty() || name.len() > 128 || !name.chars().all(allowed) {
            self.find(
                &field,
                Code::InvalidName,
                format!(
                    "{name:?} is not usable: write 1 to 128 letters, digits, '_', '-', '.' or '/'"
                ),
            );
            return None;
        }
        Some(name)
    }
}

#[derive(Deserialize)]
struct ToolOnPaper {
    #[serde(default)]
    description: Option<String>,
    #[serde(rename = "inputSchema")]
    input_schema: Option<RawJson>,
    annotations: Option<RawJson>,
    http: Option<BTreeMap<String, serde_json::Value>>,
}

/// Longer ones are no description; every request carries them to the model.
const MAX_DESCRIPTION: usize = 8 * 1024;

fn tool(raw: &RawValue, at: &str, warnings: &mut Vec<Finding>) -> Result<DescribedTool, Finding> {
    let paper: ToolOnPaper = serde_json::from_str(raw.get())
        .map_err(|error| Finding::new("", Code::InvalidTool, format!("does not read: {error}")))?;
    let description = paper.description.unwrap_or_default();
    if description.len() > MAX_DESCRIPTION {
        return Err(Finding::new(
            "description",
            Code::InvalidTool,
            format!("is longer than {MAX_DESCRIPTION} bytes: shorten it"),
        ));
    }
    let input_schema = paper.input_schema.ok_or_else(|| {
        Finding::new(
            "inputSchema",
            Code::InvalidSchema,
            "is missing: write {\"type\": \"object\"} for a tool without arguments",
        )
    })?;
    let schema =
        schema::check(input_schema.get()).map_err(|finding| finding.within("inputSchema"))?;
    let tier = tier(paper.annotations.as_ref())?;
    let http = paper
        .http
        .map(|http| http_call(&http, &schema, warnings))
        .transpose()
        .map_err(|finding| finding.within("http"))?;
    Ok(DescribedTool {
        field: at.to_owned(),
        description,
        input_schema,
        annotations: paper.annotations,
        tier,
        http,
    })
}

/// Both spellings of each hint; on conflict the highest tier wins.
fn tier(annotations: Option<&RawJson>) -> Result<Tier, Finding> {
    let Some(annotations) = annotations else {
        return Ok(Tier::System);
    };
    let hints: BTreeMap<String, serde_json::Value> = serde_json::from_str(annotations.get())
        .map_err(|_| Finding::new("annotations", Code::InvalidTool, "must be an object"))?;
    let says = |names: [&str; 2]| {
        names
            .iter()
            .any(|name| hints.get(*name) == Some(&serde_json::Value::Bool(true)))
    };
    let denies = |names: [&str; 2]| {
        names
            .iter()
            .any(|name| hints.get(*name) == Some(&serde_json::Value::Bool(false)))
    };
    let elevated = says(["destructive", "destructiveHint"])
        || says(["confirmationRequired", "confirmationRequiredHint"]);
    let read_only = ["readOnly", "readOnlyHint"];
    Ok(if elevated {
        Tier::Elevated
    } else if says(read_only) && !denies(read_only) {
        Tier::ReadOnly
    } else {
        Tier::System
    })
}

fn http_call(
    http: &BTreeMap<String, serde_json::Value>,
    schema: &serde_json::Value,
    warnings: &mut Vec<Finding>,
) -> Result<HttpCall, Finding> {
    for key in http.keys() {
        match key.as_str() {
            "method" | "path" | "body" | "body_key" => {}
            key if ["header", "cookie", "host"]
                .iter()
                .any(|word| key.to_ascii_lowercase().contains(word)) =>
            {
                return Err(Finding::new(
                    key,
                    Code::HeaderMappingRefused,
                    "is refused: headers are chosen by the mediator alone; credentials belong to the Surface's auth",
                ));
            }
            key => warnings.push(Finding::new(
                join_http(key),
                Code::UnknownField,
                "is not known here and means nothing",
            )),
        }
    }
    let text = |key: &str| -> Result<Option<&str>, Finding> {
        match http.get(key) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Finding::new(key, Code::InvalidTool, "must be text")),
        }
    };
    let method = match text("method")? {
        Some("GET") => HttpMethod::Get,
        Some("HEAD") => HttpMethod::Head,
        Some("POST") => HttpMethod::Post,
        Some("PUT") => HttpMethod::Put,
        Some("PATCH") => HttpMethod::Patch,
        Some("DELETE") => HttpMethod::Delete,
        other => {
            return Err(Finding::new(
                "method",
                Code::InvalidTool,
                format!(
                    "is {}: write GET, HEAD, POST, PUT, PATCH or DELETE",
                    other.map_or("missing".to_owned(), |other| format!("{other:?}"))
                ),
            ));
        }
    };
    let path = text("path")?
        .ok_or_else(|| Finding::new("path", Code::InvalidTool, "is missing"))?
        .to_owned();
    let placeholders = template::placeholders(&path)
        .map_err(|message| Finding::new("path", Code::InvalidTool, message))?;
    for name in &placeholders {
        refuse_header_like("path", name)?;
        let declared = schema
            .pointer("/properties")
            .is_some_and(|properties| properties.get(name.as_str()).is_some());
        if name != names::CLAW_ID && !declared {
            return Err(Finding::new(
                "path",
                Code::InvalidTool,
                format!(
                    "has the placeholder {{{name}}}, which is not a property of inputSchema: declare it there"
                ),
            ));
        }
    }
    let body = match text("body")? {
        None => None,
        Some("json") => Some(BodyKind::Json),
        Some(other) => {
            return Err(Finding::new(
                "body",
                Code::InvalidTool,
                format!("is {other:?}: only \"json\" is there"),
            ));
        }
    };
    let body_key = text("body_key")?.map(str::to_owned);
    if let Some(key) = &body_key {
        refuse_header_like("body_key", key)?;
        let bodiless = matches!(
            method,
            HttpMethod::Get | HttpMethod::Head | HttpMethod::Delete
        );
        if key.is_empty() || (bodiless && body.is_none()) {
            return Err(Finding::new(
                "body_key",
                Code::InvalidTool,
                "wraps a JSON body: set body: json with it, and a name that is not empty",
            ));
        }
    }
    Ok(HttpCall {
        method,
        path,
        body,
        body_key,
    })
}

fn join_http(key: &str) -> String {
    format!("http.{key}")
}

/// Names that no mapping may have: what they set decides identity or framing.
fn refuse_header_like(field: &str, name: &str) -> Result<(), Finding> {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    let refused = [
        "authorization",
        "proxy-authorization",
        "cookie",
        "transfer-encoding",
        "content-length",
        "connection",
        "x-api-key",
    ]
    .contains(&lower.as_str())
        || lower.starts_with("x-claw-")
        || lower.starts_with("x-toolcrib-");
    if refused {
        return Err(Finding::new(
            field,
            Code::HeaderMappingRefused,
            format!("maps {name:?}, a name that decides identity or framing: rename it"),
        ));
    }
    Ok(())
}

fn feed(raw: &RawValue) -> Result<DescribedFeed, Finding> {
    #[derive(Deserialize)]
    struct FeedOnPaper {
        path: String,
        ttl: Option<u64>,
    }
    let paper: FeedOnPaper = serde_json::from_str(raw.get())
        .map_err(|error| Finding::new("", Code::InvalidFeed, format!("does not read: {error}")))?;
    let placeholders = template::placeholders(&paper.path)
        .map_err(|message| Finding::new("path", Code::InvalidFeed, message))?;
    if let Some(other) = placeholders.iter().find(|name| *name != names::CLAW_ID) {
        return Err(Finding::new(
            "path",
            Code::InvalidFeed,
            format!("has the placeholder {{{other}}}: a feed knows {{claw_id}} only"),
        ));
    }
    let ttl = paper.ttl.unwrap_or(60);
    if !(1..=86_400).contains(&ttl) {
        return Err(Finding::new(
            "ttl",
            Code::InvalidFeed,
            "must be between 1 and 86400 seconds",
        ));
    }
    Ok(DescribedFeed {
        path: paper.path,
        ttl,
    })
}
