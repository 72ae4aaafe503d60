//! Reads a descriptor member by member and collects findings.
//!
//! Here: fields, lists and named items of any type. Not here: their meaning.
//!
//! Invariant: a member that cannot be decoded is reported and left out; all others are kept.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_crds::{decode_part, known_fields};

use crate::Code;
use crate::diagnostics::finding::Finding;
use crate::near::{self, Suggestions};

/// Members of an object as JSON text. Each value is parsed by the code that knows its type.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

pub(super) fn member<'a>(members: &'a Members, name: &str) -> Option<&'a RawValue> {
    members.get(name).map(|value| &**value)
}

/// Returns the members of an object, and none of another value.
pub(super) fn members_of(written: Option<&RawValue>) -> Members {
    written
        .and_then(|written| serde_json::from_str(written.get()).ok())
        .unwrap_or_default()
}

/// Declared items by name. `Err`: the item is declared and not usable, with the reason.
pub(crate) type ByName<T> = BTreeMap<String, Result<T, Finding>>;

#[derive(Default)]
pub(super) struct Reader {
    pub findings: Vec<Finding>,
}

impl Reader {
    pub(super) fn find(&mut self, field: &str, code: Code, message: impl Into<String>) {
        self.findings.push(Finding::new(field, code, message));
    }

    /// Reads one field of the descriptor. A field that cannot be decoded is reported and left out.
    pub(super) fn field<T: DeserializeOwned>(
        &mut self,
        members: &Members,
        name: &str,
    ) -> Option<T> {
        let written = members.get(name)?;
        let at = ["spec", "descriptor", name];
        match decode_part::<Option<T>>("Surface", &at, written.get()) {
            Ok(value) => value,
            Err(error) => {
                let field = joined(name, &error.field);
                self.find(&field, Code::DescriptorInvalid, error.message);
                None
            }
        }
    }

    /// Reads the items of the list `list`, each by itself; the first of several with one name
    /// wins. `item` gets the item, its path, and a list for warnings. It returns findings with
    /// fields relative to that path.
    pub(super) fn items<T>(
        &mut self,
        written: Option<&RawValue>,
        list: &str,
        invalid: Code,
        item: impl Fn(&RawValue, &str, &mut Vec<Finding>) -> Result<T, Finding>,
    ) -> ByName<T> {
        let mut items = ByName::new();
        for (index, raw) in self.list(written, list).into_iter().enumerate() {
            let at = format!("{list}[{index}]");
            let members = members_of(Some(&raw));
            self.misspelt(&members, &at);
            let Some(name) = self.name(&members, &at, invalid) else {
                continue;
            };
            if items.contains_key(&name) {
                self.find(
                    &format!("{at}.name"),
                    Code::Duplicate,
                    format!("{name:?} is declared before, and the first one counts: rename or remove this one"),
                );
                continue;
            }
            let mut warnings = Vec::new();
            let read = item(&raw, &at, &mut warnings).map_err(|finding| finding.within(&at));
            self.findings
                .extend(warnings.into_iter().map(|finding| finding.within(&at)));
            self.findings.extend(read.as_ref().err().cloned());
            items.insert(name, read);
        }
        items
    }

    /// Warns of the keys of the object at `at` that are not known and resemble a known one: a
    /// misspelt `annotations` would lower a tool's tier in silence. Other unknown keys are allowed.
    pub(super) fn misspelt(&mut self, members: &Members, at: &str) {
        let known = known(at);
        let mut suggestions = Suggestions::default();
        for key in unknown(members.keys(), &known) {
            if let Some(meant) = suggestions.nearest(key, known.iter().copied()) {
                let message = format!("is not known and means nothing: did you mean {meant}?");
                self.find(&joined(at, key), Code::UnknownField, message);
            }
        }
    }

    fn list(&mut self, written: Option<&RawValue>, name: &str) -> Vec<Box<RawValue>> {
        let Some(written) = written else {
            return Vec::new();
        };
        serde_json::from_str::<Option<Vec<Box<RawValue>>>>(written.get())
            .unwrap_or_else(|_| {
                self.find(
                    name,
                    Code::DescriptorInvalid,
                    "must be a list: write each entry of it after a dash",
                );
                None
            })
            .unwrap_or_default()
    }

    /// Returns the `name` of a list's item if the name can be granted and called.
    fn name(&mut self, members: &Members, at: &str, code: Code) -> Option<String> {
        let field = format!("{at}.name");
        let Some(written) = member(members, "name") else {
            let message = missing("name", members.keys(), &known(at), "write the name");
            self.find(&field, code, message);
            return None;
        };
        let Ok(name) = serde_json::from_str::<String>(written.get()) else {
            self.find(&field, code, "is not text: write the name");
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

/// Returns the keys that the definition of Surface describes in the object at `at` of a descriptor:
/// `auth`, `tools[2]`. An empty path is the descriptor itself.
pub(super) fn known(at: &str) -> Vec<&'static str> {
    known_fields("Surface", &format!("{}.*", joined("spec.descriptor", at)))
}

/// Returns the message for the required key `name`, which is missing. `cure` says what to write.
pub(super) fn missing<'a>(
    name: &str,
    keys: impl IntoIterator<Item = &'a String>,
    known: &[&str],
    cure: &str,
) -> String {
    match near::nearest(name, unknown(keys, known)) {
        Some(other) => {
            format!("is missing, and {other} beside it is not known: did you mean {name}?")
        }
        None => format!("is missing: {cure}"),
    }
}

fn unknown<'a>(
    keys: impl IntoIterator<Item = &'a String>,
    known: &[&str],
) -> impl Iterator<Item = &'a str> {
    let keys = keys.into_iter().map(String::as_str);
    keys.filter(|key| !known.contains(key))
}

/// Joins a field and a field below it.
pub(super) fn joined(field: &str, below: &str) -> String {
    match below {
        "" => field.to_owned(),
        below if field.is_empty() => below.to_owned(),
        below if below.starts_with('[') => format!("{field}{below}"),
        below => format!("{field}.{below}"),
    }
}
