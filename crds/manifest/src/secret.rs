//! Text that must not be printed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A credential, or (in a compilation that was not materialized) the reference
/// `${secret:NAMESPACE/NAME/KEY}` that stands for one. `Debug` never shows it; the only
/// way to the text is [`SecretText::expose`], which is what a reviewer greps for.
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
