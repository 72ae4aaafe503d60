//! Reads a descriptor member by member and collects findings.
//!
//! Here: fields, lists and named items of any type. Not here: their meaning.
//!
//! Invariant: a member that cannot be decoded is reported and left out; all others are kept.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_crds::decode_part;

use crate::Code;
use crate::diagnostics::finding::Finding;

/// Members of an object as JSON text. Each value is parsed by the code that knows its type.
pub(super) type Members = BTreeMap<String, Box<RawValue>>;

pub(super) fn member<'a>(members: &'a Members, name: &str) -> Option<&'a RawValue> {
    members.get(name).map(|value| &**value)
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
            let Some(name) = self.name(&raw, &at, invalid) else {
                continue;
            };
            if items.contains_key(&name) {
                self.find(
                    &format!("{at}.name"),
                    Code::Duplicate,
                    format!("{name:?} is declared before; the first one counts"),
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
    fn name(&mut self, raw: &RawValue, at: &str, code: Code) -> Option<String> {
        #[derive(Deserialize)]
        struct NameOnly {
            name: String,
        }
        let field = format!("{at}.name");
        let Ok(NameOnly { name }) = serde_json::from_str(raw.get()) else {
            self.find(&field, code, "is missing or not text: write the name");
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

/// Joins a field and a field below it.
pub(super) fn joined(field: &str, below: &str) -> String {
    match below {
        "" => field.to_owned(),
        below if below.starts_with('[') => format!("{field}{below}"),
        below => format!("{field}.{below}"),
    }
}
