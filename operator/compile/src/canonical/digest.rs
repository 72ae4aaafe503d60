//! Canonical text, its size, and digests of it.

use serde::Serialize;
use sha2::{Digest, Sha256};
use toolcrib_manifest::{Annotations, Execution, RawJson, Tool};

use crate::canonical::normalize;

/// Lower-case hex SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Canonical JSON: sorted keys, no needless white space, numbers as written.
pub fn canonical(value: &impl Serialize) -> String {
    normalize::sorted(&text(value)).expect("serialized contract types stay within the depth bound")
}

/// Serializes with serde. The output is canonical for types whose fields are in key order, as in
/// the four files, and whose schemas are normalized.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("types of the contract have string keys")
}

/// Counts the bytes of [`text`] without storing them.
pub(crate) fn size(value: &(impl Serialize + ?Sized)) -> usize {
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("types of the contract have string keys");
    count.0
}

/// Digest of everything that changes a call of this tool: schemas, execution without `auth`, tier,
/// the annotations that change how a call runs, and whether policies ask for an approval. A turn loses the tool if the digest changes; a
/// rotated credential does not change it.
pub fn entry_digest(tool: &Tool) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        /// Left out if unset, so that digests of earlier releases stay valid.
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<Annotations>,
        /// Left out if false, so that digests of earlier releases stay valid.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        approval: bool,
        execution: Execution,
        /// Left out if absent, so that digests of earlier releases stay valid.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_schema: Option<&'a RawJson>,
        schema: &'a RawJson,
        tier: &'a Option<String>,
    }
    let mut execution = tool.execution.clone();
    execution.auth = None;
    let annotations = Annotations::of(tool);
    let is_set = !annotations.is_default(tool.extension.tier.as_deref());
    let entry = text(&Entry {
        annotations: is_set.then_some(annotations),
        approval: !tool.extension.approval.is_empty(),
        execution,
        output_schema: tool.extension.output_schema.as_ref(),
        schema: &tool.input_schema,
        tier: &tool.extension.tier,
    });
    format!("v1:{}", sha256(entry.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tool(tier: &str, annotations: Option<Value>) -> Tool {
        let mut tool = json!({
            "name": "pond.fish", "inputSchema": {"type": "object"},
            "execution": {"transport": "http", "service": "pond", "base_url": "http://pond.reed.svc:80",
                "method": "GET", "path": "/fish"},
            "x-toolcrib": {"tier": tier},
        });
        if let Some(annotations) = annotations {
            tool["annotations"] = annotations;
        }
        serde_json::from_value(tool).expect("a tool")
    }

    #[track_caller]
    fn check(tier: &str, annotations: Value, covered: bool) {
        let plain = entry_digest(&tool(tier, None));
        let with = entry_digest(&tool(tier, Some(annotations.clone())));
        assert_eq!(plain != with, covered, "{annotations}");
    }

    #[test]
    fn annotations_that_change_a_call_change_its_digest() {
        check("System", json!({"idempotent": true}), true);
        check("System", json!({"idempotentHint": true}), true);
        check("System", json!({"polling": true}), true);
        check("System", json!({"parallel_safe": true}), true);
        check(
            "System",
            json!({"x-claw": {"terminalOnSuccess": true}}),
            true,
        );
        check("System", json!({"readOnly": true}), true);
        // An annotation that adds nothing keeps the digest of earlier releases.
        check("ReadOnly", json!({"readOnly": true}), false);
        check(
            "System",
            json!({"title": "Fish", "idempotent": false}),
            false,
        );
    }
}
