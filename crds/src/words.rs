//! Messages of definitions for a text that does not match its pattern.
//!
//! The API server's refusal by a bare `pattern` shows only the regular expression. A rule in its
//! place refuses the same texts and says what to write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, ValidationRule,
};

/// A pattern of our types, and the instruction for a text that does not match.
const PATTERNS: [(&str, &str); 14] = [
    (
        r"^[^\x00-\x1f\x7f]+$",
        "write one line for the model, without line breaks and control characters",
    ),
    (
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "write the name of an object: lower-case letters, digits and '-', such as trading-api",
    ),
    (
        "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        "write the name of an object: lower-case letters, digits, '-' and '.', such as trading-api",
    ),
    (
        "^[-._a-zA-Z0-9]+$",
        "write a key of the object's data: letters, digits, '-', '_' and '.', such as token",
    ),
    (
        "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        "write the name of an HTTP header, without a colon or a value, such as X-Api-Key",
    ),
    (
        "^[A-Za-z0-9][A-Za-z0-9._-]*[*]?$",
        "write the name of an HTTP header, or its beginning and '*', such as X-Team-*",
    ),
    (
        r"^[-.a-z0-9*]+/\S+$",
        "write each entry as provider/model, with '*' for any characters, such as openai/gpt-5*",
    ),
    (
        "^https?://[^\\s]+$",
        "write a URL that begins with http:// or https://, without spaces",
    ),
    (
        "^https?://[^\\s@]+$",
        "write a URL that begins with http:// or https://, without spaces, user or password",
    ),
    (
        "^https?://[^\\s?#]+$",
        "write a URL that begins with http:// or https://, without spaces, query or fragment",
    ),
    (
        "^/[^\\s?#]*$",
        "write a path that begins with '/', without spaces, query or fragment, such as /mcp",
    ),
    (
        "^sha256:[0-9a-f]{64}$",
        "write sha256: and 64 hexadecimal digits in small letters, as status.descriptorDigest of the Surface has them",
    ),
    (
        "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?|\\[[0-9a-f:.]+\\])(:[0-9]{1,5})?$",
        "write a host in small letters, with a port or without, such as api.example.com:443",
    ),
    (
        "^([0-9]{1,9}(ms|s|m|h)){1,4}$",
        // The type's own rule has the message, with the bounds.
        "",
    ),
];

/// Replaces the schema's pattern by a rule with a message.
pub fn say(schema: &mut JSONSchemaProps) {
    let Some(pattern) = schema.pattern.take() else {
        return;
    };
    let (_, message) = PATTERNS
        .iter()
        .find(|(known, _)| *known == pattern)
        .unwrap_or_else(|| panic!("{pattern} has no words: add them to PATTERNS"));
    if message.is_empty() {
        return;
    }
    let rule = ValidationRule {
        rule: format!("self.matches({})", quoted(&pattern)),
        message: Some((*message).to_owned()),
        ..ValidationRule::default()
    };
    schema
        .x_kubernetes_validations
        .get_or_insert_default()
        .push(rule);
}

/// Quotes a text for CEL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
