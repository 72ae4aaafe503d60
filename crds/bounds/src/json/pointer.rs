//! JSON pointers: resolves a local `$ref` within its document, and writes a pointer as a field's path.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Returns the part of `root` that a local reference names: `#`, or `#/$defs/fish` with percent
/// encoding. `None` if the reference is not local, is an anchor, or has no target.
pub fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(&decoded(reference.strip_prefix('#')?)?)
}

/// Removes percent encoding from a fragment. `None` if the result is not UTF-8.
pub fn decoded(fragment: &str) -> Option<String> {
    let decoded = percent_decode_str(fragment).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// Converts `/spec/tools/0/allow` to `spec.tools[0].allow`.
pub fn field_path(pointer: &str) -> String {
    let mut field = String::new();
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        if name.chars().all(|c| c.is_ascii_digit()) {
            field.push_str(&format!("[{name}]"));
        } else {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(&name);
        }
    }
    field
}

/// A path in a JSON text, formatted only when a message needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// Formats the path as a JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Member(parent, key) => format!(
                "{}/{}",
                parent.pointer(),
                key.replace('~', "~0").replace('/', "~1")
            ),
            Path::Item(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn local_references_are_followed_however_they_are_encoded() {
        let root = json!({"$defs": {"a b": 1, "a/b": 2, "a~b": [3]}});
        for (reference, target) in [
            ("#", Some(&root)),
            ("#/$defs/a%20b", Some(&json!(1))),
            ("#/%24defs/a~1b", Some(&json!(2))),
            ("#/$defs/a~0b/0", Some(&json!(3))),
            ("#/$defs/none", None),
            ("#anchor", None),
            ("other.json#/$defs/a", None),
            ("#/%ff", None),
        ] {
            assert_eq!(resolve(&root, reference), target, "{reference}");
        }
    }

    #[test]
    fn a_path_is_written_as_a_pointer() {
        let root = Path::Root;
        let member = Path::Member(&root, "a/~b");
        assert_eq!(Path::Item(&member, 3).pointer(), "/a~1~0b/3");
    }
}
