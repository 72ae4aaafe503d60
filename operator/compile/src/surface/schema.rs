//! Checks that the mediator can check arguments against a JSON Schema in bounded time.
//!
//! `toolcrib_bounds::schema` holds the rule, and the mediator uses it too. Here a defect becomes a
//! finding.

use serde_json::Value;
use toolcrib_bounds::schema::{self, Defect, DefectKind};

use crate::Code;
use crate::diagnostics::finding::Finding;

/// Checks a normalized schema. The finding's field is relative to the schema.
pub(crate) fn check(text: &str) -> Result<Value, Finding> {
    schema::check(text).map_err(finding)
}

fn finding(defect: Defect) -> Finding {
    let code = match defect.kind {
        DefectKind::Invalid => Code::InvalidSchema,
        DefectKind::TooLarge => Code::SchemaTooLarge,
        DefectKind::RemoteReference => Code::RemoteReference,
        DefectKind::Pattern => Code::UnsupportedPattern,
    };
    Finding::new(field(&defect.pointer), code, defect.message)
}

/// Converts a JSON pointer to the notation of fields.
pub(crate) fn field(pointer: &str) -> String {
    pointer
        .split('/')
        .filter(|part| !part.is_empty())
        .fold(String::new(), |field, part| {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{field}[{part}]")
            } else if field.is_empty() {
                part.to_owned()
            } else {
                format!("{field}.{part}")
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_defect_is_a_finding_with_its_field_and_code() {
        for (schema, code, field) in [
            (
                json!({"properties": {"fish": {"type": "strnig"}}}),
                Code::InvalidSchema,
                "properties.fish.type",
            ),
            (json!({"enum": vec![0; 9000]}), Code::SchemaTooLarge, ""),
            (
                json!({"allOf": [{"$ref": "file:///etc/passwd"}]}),
                Code::RemoteReference,
                "allOf[0].$ref",
            ),
            (
                json!({"properties": {"fish": {"pattern": "^(?!x)"}}}),
                Code::UnsupportedPattern,
                "",
            ),
        ] {
            let finding = check(&schema.to_string()).expect_err("is refused");
            assert_eq!(
                (finding.code, &*finding.field),
                (code, field),
                "{finding:?}"
            );
        }
        check("{}").expect("is taken");
    }
}
