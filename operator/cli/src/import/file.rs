//! The result: numbered files.

use crate::print::{self, Document};

/// One file of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Numbered, since `kubectl apply -f folder/` goes by name.
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
