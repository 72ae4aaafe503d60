//! One loaded version of the granted tools, read once and shared by its turns.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use toolcrib_manifest::{Annotations, Policy, Tier, Tool, ToolsFile, WithheldItem, names};

use toolcrib_rules::expression::Facts;

use crate::codes::ResultCode;
use crate::tools::rules::GrantRule;
use crate::tools::schema::{ArgumentsRejection, MAX_VIOLATIONS, Schema, Validators, shown_schema};

/// The tools of one `tools.json`, by canonical name.
#[derive(Debug)]
pub struct Catalog {
    tools: Vec<Arc<CatalogTool>>,
    by_name: HashMap<String, usize>,
    withheld: HashMap<String, ResultCode>,
    policy: Policy,
}

/// The agent that gets the tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentName {
    pub name: String,
    pub namespace: String,
}

/// A tool that may be presented.
#[derive(Debug)]
pub struct CatalogTool {
    pub tool: Tool,
    pub tier: Tier,
    pub annotations: Annotations,
    /// Digest of the tool as it was reviewed and granted; equal digests are the same tool.
    pub digest: String,
    agent: Arc<AgentName>,
    /// The schema without `claw_id`, as a model sees it if no rule narrows it.
    pub(crate) shown_schema: String,
    /// The rules that give the tool, in the order of the file. None: the tool is given without
    /// conditions.
    pub(crate) rules: Vec<GrantRule>,
    pub(crate) schema: Schema,
    output_schema: Option<Schema>,
}

/// The reason for which a result does not match the tool's output schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputMismatch {
    #[error("it has no structured content")]
    Missing,
    #[error("{0}")]
    Invalid(String),
    #[error("it cannot be checked")]
    Uncheckable,
}

impl Catalog {
    /// Builds the catalog. Never fails: a tool whose restrictions cannot be enforced is withheld.
    /// If `tools` names a tool twice, the first entry counts. Conditions read empty names of the agent.
    pub fn load(file: &ToolsFile, max_tier: Tier) -> Self {
        Self::load_for(file, max_tier, AgentName::default())
    }

    /// Builds the catalog of this agent, as [`Catalog::load`].
    pub fn load_for(file: &ToolsFile, max_tier: Tier, agent: AgentName) -> Self {
        let agent = Arc::new(agent);
        let mut catalog = Self {
            tools: Vec::new(),
            by_name: HashMap::new(),
            withheld: HashMap::new(),
            policy: file.policy,
        };
        let validators = Arc::new(Validators::default());
        for tool in &file.tools {
            if catalog.by_name.contains_key(&tool.name) || catalog.withheld.contains_key(&tool.name)
            {
                continue;
            }
            match CatalogTool::read(tool, max_tier, &agent, &validators) {
                Ok(read) => {
                    catalog
                        .by_name
                        .insert(tool.name.clone(), catalog.tools.len());
                    catalog.tools.push(Arc::new(read));
                }
                Err(code) => {
                    catalog.withheld.insert(tool.name.clone(), code);
                }
            }
        }
        catalog
    }

    /// The tools in the order of the file.
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools
    }

    pub fn get(&self, canonical: &str) -> Option<&Arc<CatalogTool>> {
        self.by_name.get(canonical).map(|at| &self.tools[*at])
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The withheld tools, sorted by name, for `/readyz` and the link.
    pub fn withheld(&self) -> Vec<WithheldItem> {
        let mut withheld: Vec<WithheldItem> = self
            .withheld
            .iter()
            .map(|(tool, code)| WithheldItem {
                tool: tool.clone(),
                reason: code.to_string(),
            })
            .collect();
        withheld.sort();
        withheld
    }

    pub(crate) fn withheld_code(&self, canonical: &str) -> Option<ResultCode> {
        self.withheld.get(canonical).copied()
    }
}

impl CatalogTool {
    fn read(
        tool: &Tool,
        max_tier: Tier,
        agent: &Arc<AgentName>,
        validators: &Arc<Validators>,
    ) -> Result<Self, ResultCode> {
        let understood = |name: &String| names::TOOL_REQUIREMENTS.contains(&name.as_str());
        if !tool.extension.requires.iter().all(understood) {
            return Err(ResultCode::UnsupportedRequirement);
        }
        let entries = &tool.extension.rules;
        let rules: Vec<GrantRule> = entries
            .iter()
            .filter_map(|entry| GrantRule::read(entry, validators))
            .collect();
        let asks = !tool.extension.approval.is_empty() || entries.iter().any(|it| it.approval);
        let requires_approval = |name: &String| name == names::APPROVAL;
        // Nobody could be asked.
        if !asks && tool.extension.requires.iter().any(requires_approval) {
            return Err(ResultCode::UnsupportedRequirement);
        }
        // Without a rule that can be met, an empty list would mean that there are no conditions. An
        // approval that a policy asks for needs no rule.
        let requires_rules = !tool.extension.requires.iter().all(requires_approval);
        if (!entries.is_empty() || requires_rules) && rules.is_empty() {
            return Err(ResultCode::UnsupportedRequirement);
        }
        let tier = match &tool.extension.tier {
            None => Tier::System,
            Some(text) => Tier::parse(text).ok_or(ResultCode::UnsupportedRequirement)?,
        };
        // The compiler does the same; files of an earlier release, and files written by hand, may
        // not.
        let tier = tier.called_with(tool.execution.method);
        if tier > max_tier {
            return Err(ResultCode::PermissionDenied);
        }
        let schema_text = tool.input_schema.get();
        let (Some(shown), Some(schema)) = (
            shown_schema(schema_text),
            Schema::read(schema_text, validators),
        ) else {
            return Err(ResultCode::UnsupportedTool);
        };
        let output_schema = match &tool.extension.output_schema {
            None => None,
            Some(schema) => {
                Some(Schema::read(schema.get(), validators).ok_or(ResultCode::UnsupportedTool)?)
            }
        };
        Ok(Self {
            tool: tool.clone(),
            tier,
            annotations: Annotations::of(tool),
            digest: tool
                .extension
                .entry_digest
                .clone()
                .unwrap_or_else(|| own_digest(tool)),
            agent: Arc::clone(agent),
            shown_schema: shown,
            rules,
            schema,
            output_schema,
        })
    }

    /// The variables of conditions on a call of the tool.
    pub(crate) fn facts(&self, now: Timestamp) -> Facts<'_> {
        let (surface, name) = self.name().split_once('.').unwrap_or(("", self.name()));
        Facts {
            agent_name: &self.agent.name,
            agent_namespace: &self.agent.namespace,
            tool_name: name,
            tool_surface: surface,
            tool_tier: self.tier.name(),
            now,
        }
    }

    /// Canonical name, `surface.tool`.
    pub fn name(&self) -> &str {
        &self.tool.name
    }

    /// Returns true if the tool only reads: its tier or its annotation says so, and its method
    /// agrees.
    pub fn is_read_only(&self) -> bool {
        let annotated = Tier::ReadOnly.called_with(self.tool.execution.method);
        self.tier == Tier::ReadOnly || (self.annotations.read_only && annotated == Tier::ReadOnly)
    }

    /// The policy of the cluster that would deny the tool if it were not tried out.
    pub(crate) fn denying_policy(&self) -> Option<&str> {
        self.tool.extension.would_deny.as_deref()
    }

    /// Returns true if a second run of a call does no more than the first.
    pub fn is_repeatable(&self) -> bool {
        self.annotations.idempotent || self.is_read_only()
    }

    /// Returns true if the tool's service recognizes a repeated call by a key, so that the call has an
    /// effect once however often it is sent.
    pub fn recognizes_repetitions(&self) -> bool {
        let execution = &self.tool.execution;
        execution.transport.is_http() && execution.idempotency_header.is_some()
    }

    /// Returns true if a call may be sent again in its turn although an earlier attempt may have run.
    pub(crate) fn may_be_sent_again(&self) -> bool {
        self.is_repeatable() || self.recognizes_repetitions()
    }

    /// Checks a result's structured content against the reviewed output schema.
    pub fn check_output(&self, structured: Option<&str>) -> Result<(), OutputMismatch> {
        let Some(schema) = &self.output_schema else {
            return Ok(());
        };
        let structured = structured.ok_or(OutputMismatch::Missing)?;
        let value = serde_json::from_str(structured).map_err(|_| OutputMismatch::Uncheckable)?;
        schema
            .check_result(&value)
            .map_err(|rejected| match rejected {
                ArgumentsRejection::Unusable
                | ArgumentsRejection::TooLarge
                | ArgumentsRejection::Rounded { .. } => OutputMismatch::Uncheckable,
                ArgumentsRejection::Invalid(violations) => {
                    OutputMismatch::Invalid(violations.words(MAX_VIOLATIONS))
                }
            })
    }

    /// Returns true if the path template has `{claw_id}`.
    pub(crate) fn claw_id_in_path(&self) -> bool {
        let path = self.tool.execution.path.as_deref().unwrap_or_default();
        path.contains("{claw_id}")
    }
}

/// Computes a digest for a hand-written file, over everything that decides about a call, without
/// the credential.
fn own_digest(tool: &Tool) -> String {
    let mut execution = tool.execution.clone();
    execution.auth = None;
    let covered = (
        &tool.name,
        &tool.input_schema,
        &execution,
        &tool.extension.tier,
        &tool.extension.output_schema,
        &tool.annotations,
    );
    let bytes = serde_json::to_vec(&covered).expect("texts and enums always serialize");
    format!("own:{}", hex::encode(Sha256::digest(bytes)))
}
