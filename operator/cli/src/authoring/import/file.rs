//! The result of an import: numbered files.

use crate::print::{self, Document};

/// A file of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Begins with a number, since `kubectl apply -f folder/` sorts by name.
    pub name: &'static str,
    pub about: &'static str,
    pub documents: Vec<Document>,
}

impl File {
    pub fn text(&self) -> Result<String, serde_yaml::Error> {
        let about = print::commented(self.about);
        Ok(format!("{about}\n{}", print::documents(&self.documents)?))
    }
}
