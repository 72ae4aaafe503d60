//! Decodes one object; an error names the wrong field and says what to write.
//!
//! One function for the operator, the compiler and the command line, so that their messages are
//! equal. The advice comes from the definition's schema, not from serde, whose errors name Rust
//! types and columns of a text that no user wrote.
//!
//! Invariant: a message quotes a text only if it cannot be a credential: a number or a boolean in
//! quotes, one of the field's own values in another case, or the name of an object without secrets.

mod field;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use self::field::Field;
#[cfg(feature = "admission")]
pub(crate) use self::schema::correction;
pub use self::schema::known_fields;

/// The reason for which an object cannot be decoded as its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Path as in `kubectl explain`, with indices: `spec.tools[2].surface`. Empty for the whole
    /// object.
    pub field: String,
    /// The fault in that field, and its cure.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Decodes JSON text as `kind`, which is the name of the type in Kubernetes.
pub fn decode<T: DeserializeOwned>(kind: &str, text: &str) -> Result<T, DecodeError> {
    decode_part(kind, &[], text)
}

/// Decodes JSON text as a part of a `kind`. `at` is the path to that part, with `[]` for an entry
/// of a list. The error's field is relative to that part.
pub fn decode_part<T: DeserializeOwned>(
    kind: &str,
    at: &[&str],
    text: &str,
) -> Result<T, DecodeError> {
    located(text, || {
        let mut place = Field::root(kind, text);
        place.descend(at);
        place
    })
}

/// Decodes JSON text as a kind without a definition. `help` says where the user finds an example.
pub fn decode_own<T: DeserializeOwned + JsonSchema>(
    kind: &str,
    help: &str,
    text: &str,
) -> Result<T, DecodeError> {
    let schema = OnceLock::new();
    located(text, || {
        let schema = schema.get_or_init(schema::schema_of::<T>);
        Field::root(kind, text).described_by(schema, help)
    })
}

/// Returns an object's text without `metadata.managedFields`, which are as deep as the object and
/// not used here.
pub fn without_managed_fields(text: &str) -> Result<String, serde_json::Error> {
    type Members<'a> = BTreeMap<String, &'a RawValue>;
    let mut object: Members<'_> = serde_json::from_str(text)?;
    let metadata = match object.get("metadata") {
        None => return Ok(text.to_owned()),
        Some(metadata) => {
            let mut metadata: Members<'_> = serde_json::from_str(metadata.get())?;
            metadata.remove("managedFields");
            RawValue::from_string(serde_json::to_string(&metadata)?)?
        }
    };
    object.insert("metadata".to_owned(), &metadata);
    serde_json::to_string(&object)
}

/// Decodes `text`; an error carries the path from the root.
fn located<'a, T: DeserializeOwned>(
    text: &'a str,
    root: impl FnOnce() -> Field<'a>,
) -> Result<T, DecodeError> {
    // Decodes a second time with the path only after an error, since tracking the path is slow and
    // nearly every object decodes.
    serde_json::from_str(text).or_else(|_| {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let mut place = root();
            for segment in error.path() {
                if !place.enter(segment) {
                    break;
                }
            }
            place.error()
        })
    })
}
