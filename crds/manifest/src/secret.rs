//! Text that must not be printed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A credential, or (in a compilation that was not materialized) the reference
/// `${secret:NAMESPACE/NAME/KEY}` to one. `Debug` never shows it; [`SecretText::expose`] is the
/// only access to the text, so a reviewer can grep for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}
