//! The first pass over a schema: limits its nodes, depth and paths, and accepts a reference only if
//! it is a path from the root of the same document.

use serde_json::Value;

use super::{Defect, DefectKind, MAX_DEPTH, MAX_NODES, MAX_PATH_BYTES};
use crate::json::pointer::Path;

/// Keywords whose value names another part of the document.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The counts of one pass over a schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outline {
    pub nodes: usize,
    /// Bytes of the paths of all nodes together.
    pub path_bytes: usize,
}

/// Checks the root and counts everything below it. `text` is the source of `root`.
pub(super) fn check(root: &Value, text: &str) -> Result<Outline, Defect> {
    let Value::Object(members) = root else {
        return Err(Defect::of_schema(
            DefectKind::Invalid,
            "must be a JSON Schema object, such as {\"type\": \"object\", \"properties\": {}}",
        ));
    };
    match members.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => {
            return Err(Defect::new(
                DefectKind::Invalid,
                &Path::Member(&Path::Root, "type"),
                format!("is {other}: arguments are always an object, so it must be \"object\""),
            ));
        }
    }
    // `id` is Draft 4's keyword; later drafts leave it as an ordinary name.
    let ids: &[&str] = if text.contains("draft-04") {
        &["$id", "id"]
    } else {
        &["$id"]
    };
    let mut outline = Outline::default();
    outline.node(root, &Path::Root, 0, 0, ids)?;
    Ok(outline)
}

impl Outline {
    /// Recurses at most `MAX_DEPTH` deep.
    fn node(
        &mut self,
        value: &Value,
        at: &Path,
        path_bytes: usize,
        depth: usize,
        ids: &[&str],
    ) -> Result<(), Defect> {
        self.nodes += 1;
        self.path_bytes += path_bytes;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(Defect::of_schema(
                DefectKind::TooLarge,
                format!(
                    "has more than {MAX_NODES} values or is nested deeper than {MAX_DEPTH} \
                     levels: simplify the schema"
                ),
            ));
        }
        if self.path_bytes > MAX_PATH_BYTES {
            return Err(Defect::of_schema(
                DefectKind::TooLarge,
                format!(
                    "has paths of more than {MAX_PATH_BYTES} bytes together: shorten the names \
                     above its larger parts"
                ),
            ));
        }
        match value {
            Value::Object(members) => {
                for (key, child) in members {
                    let at = Path::Member(at, key);
                    if let (true, Value::String(target)) =
                        (REFERENCES.contains(&key.as_str()), child)
                    {
                        check_target(target, &at)?;
                    }
                    if depth > 0 && ids.contains(&key.as_str()) && child.is_string() {
                        return Err(Defect::new(
                            DefectKind::Invalid,
                            &at,
                            "makes this part a document of its own, from which its references \
                             count: remove it, and refer to the part as \"#/$defs/…\"",
                        ));
                    }
                    // A slash or a tilde takes two bytes in a path.
                    let more = key.len() + 1 + key.matches(['/', '~']).count();
                    self.node(child, &at, path_bytes + more, depth + 1, ids)?;
                }
                Ok(())
            }
            Value::Array(items) => items.iter().enumerate().try_for_each(|(index, child)| {
                let at = Path::Item(at, index);
                self.node(child, &at, path_bytes + 5, depth + 1, ids)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }
}

/// Accepts a reference only if it is a path from the root.
fn check_target(target: &str, at: &Path) -> Result<(), Defect> {
    if !target.starts_with('#') {
        return Err(Defect::new(
            DefectKind::RemoteReference,
            at,
            format!(
                "refers to {target:?}: copy that schema under $defs and refer to it as \"#/$defs/…\""
            ),
        ));
    }
    if target != "#" && !target.starts_with("#/") {
        return Err(Defect::new(
            DefectKind::Invalid,
            at,
            format!("refers to {target:?} by an anchor: write its path, such as \"#/$defs/…\""),
        ));
    }
    Ok(())
}
