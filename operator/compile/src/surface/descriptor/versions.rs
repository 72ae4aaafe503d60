//! Versions of the descriptor, and the fields that came with each.
//!
//! Not here: reading any of the fields.
//!
//! Invariant: a field of a later version than the declared one is ignored, with a finding.

use serde_json::value::RawValue;

use super::DescribedAuth;
use super::members::{Members, Reader, member};
use crate::Code;
use crate::diagnostics::finding::Finding;

#[derive(Clone, Copy)]
pub(super) enum Version {
    One,
    /// Adds `tools`, `mcp` and `auth.env`.
    Two,
}

impl Version {
    pub(super) fn of(members: &Members) -> Result<Self, Finding> {
        let Some(written) = members.get("version") else {
            return Ok(Version::One);
        };
        match written.get() {
            "1" => Ok(Version::One),
            "2" => Ok(Version::Two),
            other => Err(Finding::new(
                "version",
                Code::UnsupportedDescriptorVersion,
                format!("is {other}: this release reads versions 1 and 2: write version: 2"),
            )),
        }
    }

    /// Returns a top-level field of version 2 if this is version 2.
    pub(super) fn later<'a>(self, members: &'a Members, name: &str) -> Option<&'a RawValue> {
        match self {
            Version::One => None,
            Version::Two => member(members, name),
        }
    }

    /// Returns `auth` without the fields of later versions.
    pub(super) fn auth(self, auth: DescribedAuth) -> DescribedAuth {
        match self {
            Version::One => DescribedAuth { env: None, ..auth },
            Version::Two => auth,
        }
    }

    /// Reports the fields of later versions, which are ignored.
    pub(super) fn refuse_later_fields(self, members: &Members, reader: &mut Reader) {
        match self {
            Version::One => {}
            Version::Two => return,
        }
        for field in ["tools", "mcp"] {
            if members.contains_key(field) {
                reader.find(
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
            reader.find(
                "auth.env",
                Code::DescriptorFieldIgnored,
                "is ignored: it comes with version 2 of the descriptor; set version: 2",
            );
        }
    }
}
