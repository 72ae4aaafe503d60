//! What the API can say and this release does not serve. One list, so that a field is
//! either served or refused, never ignored; serving a feature means changing its line.

use crate::Code;
use crate::finding::Finding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    NativeMode,
    NativeBesideMediated,
    RunnerConfig,
    McpTransport,
    Responses,
}

impl Feature {
    /// `None`: served. Else what to do instead, in words that make a sentence.
    fn refusal(self) -> Option<&'static str> {
        match self {
            Feature::NativeMode => Some(
                "native mode is not served by this release, so no tool is given: use mode: Mediated",
            ),
            Feature::NativeBesideMediated => {
                Some("the mediator has no /mcp in this release: remove the field")
            }
            Feature::RunnerConfig => {
                Some("no mcp.json is written by this release: use runner: Generic")
            }
            Feature::McpTransport => Some(
                "tools without http go over MCP, which this release does not call: add http to the tool",
            ),
            Feature::Responses => None,
        }
    }
}

/// The finding against the use of a feature; `Ok`: it is served.
pub(crate) fn served(field: impl Into<String>, feature: Feature) -> Result<(), Finding> {
    match feature.refusal() {
        None => Ok(()),
        Some(advice) => Err(Finding::new(field, Code::NotServedYet, advice)),
    }
}
