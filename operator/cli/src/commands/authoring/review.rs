//! Shared by the verbs that read tools from a server or an image: the reviewed Surface, and the
//! Surface for the next review.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};
use toolcrib_compile::yaml;

use crate::authoring::mcp::tools::{Drift, drift, normalized, remark_on};
use crate::authoring::openapi::{self, Remark, RemarkKind, Remarks};
use crate::failure::Failure;
use crate::print::{self, Document};
use crate::sources;

/// Name and namespace of a Surface.
pub struct SurfaceName<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
}

/// Finds the Surface of this name in the files; `None` if no file is named.
pub fn reviewed(of: &SurfaceName<'_>, paths: &[PathBuf]) -> Result<Option<Value>, Failure> {
    let mut found = None;
    for (path, text) in sources::read(paths).map_err(Failure::Usage)? {
        for document in yaml::documents(&text) {
            let line = document.line;
            let object = document
                .value
                .map_err(|message| Failure::usage(format_args!("{path}:{line}: {message}")))?;
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            if object["kind"] == "Surface"
                && metadata["name"] == of.name
                && namespace == of.namespace
            {
                found = Some(object);
            }
        }
    }
    if found.is_none() && !paths.is_empty() {
        return Err(Failure::usage(format_args!(
            "the files have no Surface {}/{}",
            of.namespace, of.name
        )));
    }
    if let Some(surface) = &found {
        usable(surface).map_err(Failure::usage)?;
    }
    Ok(found)
}

/// Checks that tools can be compared with those of the Surface, and written into it.
pub fn usable(surface: &Value) -> Result<(), &'static str> {
    let annotations = &surface["metadata"]["annotations"];
    if !surface["spec"].is_object() || !(annotations.is_null() || annotations.is_object()) {
        return Err(
            "the Surface cannot be compared: write fields under spec and metadata.annotations, as `kubectl get surface -o yaml` shows them",
        );
    }
    if !surface["spec"]["descriptorFrom"].is_null() {
        return Err(
            "the Surface's descriptor is in a ConfigMap; only one that is inline can be compared",
        );
    }
    Ok(())
}

pub const NOT_GRANTED: &str = "Nobody may call its tools yet: a ToolGrant gives them.";

/// The tools that an MCP server lists, compared with the reviewed ones.
pub struct Listing {
    pub tools: BTreeMap<String, Value>,
    pub remarks: Remarks,
    pub drift: Vec<Drift>,
}

impl Listing {
    pub fn of(reviewed: Option<&Value>, listed: &[Value], whose: &str) -> Result<Self, Failure> {
        let mut remarks = Remarks::default();
        let tools = normalized(listed, &mut remarks)
            .map_err(|message| Failure::Failed(anyhow::anyhow!("{whose}: {message}")))?;
        remark_on(&tools, &mut remarks);
        let drift = match reviewed {
            Some(surface) => drift(&mcp_tools(surface)?, &tools),
            None => Vec::new(),
        };
        Ok(Self {
            tools,
            remarks,
            drift,
        })
    }

    pub fn print_drift(&self) {
        for change in &self.drift {
            eprintln!("{change}");
        }
    }

    pub fn print_remarks(&self) {
        for line in openapi::lines(&self.remarks.0) {
            eprintln!("{line}");
        }
    }

    /// The exit code of `--check`.
    pub fn verdict(&self) -> ExitCode {
        ExitCode::from(u8::from(!self.drift.is_empty()))
    }

    pub fn loses(&self) -> bool {
        let is_loss = |drift: &Drift| matches!(drift, Drift::Removed(_));
        self.drift.iter().any(is_loss)
    }

    /// Returns the remarks that the reviewed tools do not have already.
    pub fn new_remarks(&self, reviewed: &Value) -> Result<Vec<&Remark>, Failure> {
        let before: Vec<Value> = mcp_tools(reviewed)?.into_values().collect();
        let known = Self::of(None, &before, "the Surface's tools")?.remarks;
        let new = self.remarks.0.iter().filter(|it| !known.0.contains(it));
        Ok(new.collect())
    }
}

/// Returns the reviewed tools that are called over MCP.
pub fn mcp_tools(surface: &Value) -> Result<BTreeMap<String, Value>, Failure> {
    let tools: Vec<Value> = inline(surface)
        .filter(|tool| !is_http(tool))
        .cloned()
        .collect();
    normalized(&tools, &mut Remarks::default())
        .map_err(|message| Failure::usage(format_args!("the Surface's tools: {message}")))
}

/// Replaces the MCP tools of a Surface; all else stays.
pub fn with_mcp_tools(mut surface: Value, now: BTreeMap<String, Value>) -> Value {
    let http = inline(&surface).filter(|tool| is_http(tool)).cloned();
    let tools: Vec<Value> = http.chain(now.into_values()).collect();
    let descriptor = &mut surface["spec"]["descriptor"];
    if !descriptor.is_object() {
        *descriptor = json!({});
    }
    descriptor["version"] = 2.into();
    descriptor["tools"] = tools.into();
    surface
}

fn inline(surface: &Value) -> impl Iterator<Item = &Value> {
    let tools = surface["spec"]["descriptor"]["tools"].as_array();
    tools.into_iter().flatten()
}

/// Whether the surface's owner wrote the tool: no MCP server lists a tool with `http`.
fn is_http(tool: &Value) -> bool {
    !tool["http"].is_null()
}

pub fn new_surface(of: &SurfaceName<'_>, spec: Value) -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {"name": of.name, "namespace": of.namespace},
        "spec": spec,
    })
}

/// Prints the Surface in the form of [`text`].
pub fn print(surface: Value, comment: impl Into<String>, remarks: &Remarks) -> Result<(), Failure> {
    let text = text(surface, comment, remarks)?;
    print::to_stdout(&text).context("cannot write to standard output")?;
    Ok(())
}

/// The Surface as YAML, with the remarks for its reviewer as comments.
pub fn text(
    surface: Value,
    comment: impl Into<String>,
    remarks: &Remarks,
) -> Result<String, Failure> {
    let mut document = Document::new(surface).with_comment(comment);
    let remarks = remarks.0.iter();
    for line in openapi::lines(remarks.filter(|it| it.kind == RemarkKind::Look)) {
        document = document.with_comment(line);
    }
    Ok(print::documents(&[document]).context("an object does not print as YAML")?)
}
