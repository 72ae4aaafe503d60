//! What the API can say and this release does not serve. One list, so that a field is
//! either served or refused, never ignored; serving a feature means taking its line out.

use crate::Code;
use crate::finding::Finding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    NativeMode,
    NativeBesideMediated,
    RunnerConfig,
}

/// With what to do instead, in words that make a sentence.
const NOT_YET: [(Feature, &str); 3] = [
    (
        Feature::NativeMode,
        "native mode is not served by this release, so no tool is given: use mode: Mediated",
    ),
    (
        Feature::NativeBesideMediated,
        "the mediator has no /mcp in this release: remove the field",
    ),
    (
        Feature::RunnerConfig,
        "no mcp.json is written by this release: use runner: Generic",
    ),
];

/// The finding against the use of a feature; `Ok`: it is served.
pub(crate) fn served(field: impl Into<String>, feature: Feature) -> Result<(), Finding> {
    match NOT_YET.iter().find(|(refused, _)| *refused == feature) {
        None => Ok(()),
        Some((_, advice)) => Err(Finding::new(field, Code::NotServedYet, *advice)),
    }
}
