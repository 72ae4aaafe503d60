//! One loaded version of the granted tools, read once and shared by its turns.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use toolcrib_manifest::{Annotations, Policy, Tier, Tool, ToolsFile, Withheld};

use crate::codes::ResultCode;
use crate::schema::{Rejected, Schema, Validators, shown_schema};

/// The tools of one `tools.json`, by canonical name.
#[derive(Debug)]
pub struct Catalog {
    tools: Vec<Arc<CatalogTool>>,
    by_name: HashMap<String, usize>,
    withheld: HashMap<String, ResultCode>,
    policy: Policy,
}

/// A tool that may be presented.
#[derive(Debug)]
pub struct CatalogTool {
    pub tool: Tool,
    pub tier: Tier,
    pub annotations: Annotations,
    /// Digest of the tool as it was reviewed and granted; equal digests are the same tool.
    pub digest: String,
    /// What the model is shown: the schema without `claw_id`.
    pub(crate) shown_schema: String,
    pub(crate) schema: Schema,
    output_schema: Option<Schema>,
}

/// A result is not what the tool's output schema says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputMismatch {
    #[error("it has no structured content")]
    Missing,
    #[error("{message}, at `{path}`")]
    Invalid { message: String, path: String },
    #[error("it cannot be checked")]
    Uncheckable,
}

impl Catalog {
    /// Never fails: a tool that cannot be offered as it was restricted is withheld.
    /// `tools` may name one twice; the first counts.
    pub fn load(file: &ToolsFile, max_tier: Tier) -> Self {
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
            match CatalogTool::read(tool, max_tier, &validators) {
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

    /// In the order of the file.
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools
    }

    pub fn get(&self, canonical: &str) -> Option<&Arc<CatalogTool>> {
        self.by_name.get(canonical).map(|at| &self.tools[*at])
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// For `/readyz` and the link, sorted by name.
    pub fn withheld(&self) -> Vec<Withheld> {
        let mut withheld: Vec<Withheld> = self
            .withheld
            .iter()
            .map(|(tool, code)| Withheld {
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
    fn read(tool: &Tool, max_tier: Tier, validators: &Arc<Validators>) -> Result<Self, ResultCode> {
        // This release knows no restriction by name.
        if !tool.extension.requires.is_empty() {
            return Err(ResultCode::UnsupportedRequirement);
        }
        let tier = match &tool.extension.tier {
            None => Tier::System,
            Some(text) => Tier::parse(text).ok_or(ResultCode::UnsupportedRequirement)?,
        };
        // The compiler does the same; files of an earlier release, or written by hand, may not.
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
            shown_schema: shown,
            schema,
            output_schema,
        })
    }

    /// Canonical, `surface.tool`.
    pub fn name(&self) -> &str {
        &self.tool.name
    }

    /// What a model or a client is shown: without `claw_id`, which the mediator supplies.
    pub fn shown_schema(&self) -> &str {
        &self.shown_schema
    }

    /// Whether the tool only reads: its tier or its annotation says so, and its method agrees.
    pub fn is_read_only(&self) -> bool {
        let annotated = Tier::ReadOnly.called_with(self.tool.execution.method);
        self.tier == Tier::ReadOnly || (self.annotations.read_only && annotated == Tier::ReadOnly)
    }

    /// Whether a second run of a call does no more than the first.
    pub fn is_repeatable(&self) -> bool {
        self.annotations.idempotent || self.is_read_only()
    }

    /// Whether a result's structured content is what was reviewed.
    pub fn check_output(&self, structured: Option<&str>) -> Result<(), OutputMismatch> {
        let Some(schema) = &self.output_schema else {
            return Ok(());
        };
        let structured = structured.ok_or(OutputMismatch::Missing)?;
        let value = serde_json::from_str(structured).map_err(|_| OutputMismatch::Uncheckable)?;
        schema
            .check_result(&value)
            .map_err(|rejected| match rejected {
                Rejected::Unusable | Rejected::TooLarge | Rejected::Rounded { .. } => {
                    OutputMismatch::Uncheckable
                }
                Rejected::Invalid { message, path, .. } => {
                    OutputMismatch::Invalid { message, path }
                }
            })
    }

    /// Whether the path template has `{claw_id}`.
    pub(crate) fn claw_id_in_path(&self) -> bool {
        let path = self.tool.execution.path.as_deref().unwrap_or_default();
        path.contains("{claw_id}")
    }
}

/// For a hand-written file: what decides about a call, without its credential.
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
