//! References to an object, and to one key of a Secret.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolcrib_crds::AgentSurface;
use toolcrib_manifest::SecretText;

/// Namespace and name of an object whose kind is known from the context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    pub namespace: String,
    pub name: String,
}

impl ObjectRef {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Returns the surface that an entry of an agent's spec names.
pub fn surface_key(agent: &ObjectRef, entry: &AgentSurface) -> ObjectRef {
    ObjectRef::new(
        entry.namespace.as_deref().unwrap_or(&agent.namespace),
        entry.name.clone(),
    )
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            // An object of the whole cluster.
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One key of a Secret. Its text form, `${secret:NAMESPACE/NAME/KEY}`, replaces the value wherever
/// a compilation is printed, compared or hashed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SecretKeyRef {
    pub secret: ObjectRef,
    pub key: String,
}

impl SecretKeyRef {
    pub fn new(secret: ObjectRef, key: impl Into<String>) -> Self {
        Self {
            secret,
            key: key.into(),
        }
    }

    /// Returns the text that replaces the value.
    pub fn placeholder(&self) -> SecretText {
        SecretText::new(format!("${{secret:{self}}}"))
    }

    /// Parses the text of [`Self::placeholder`].
    pub fn from_placeholder(text: &SecretText) -> Option<Self> {
        text.expose()
            .strip_prefix("${secret:")?
            .strip_suffix('}')
            .and_then(Self::parse)
    }

    /// Parses `NAMESPACE/NAME/KEY`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (namespace, name, key) = (parts.next()?, parts.next()?, parts.next()?);
        let whole =
            parts.next().is_none() && !namespace.is_empty() && !name.is_empty() && !key.is_empty();
        whole.then(|| Self::new(ObjectRef::new(namespace, name), key))
    }
}

/// `NAMESPACE/NAME/KEY`.
impl fmt::Display for SecretKeyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.secret, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_reads_back() {
        let reference = SecretKeyRef::new(ObjectRef::new("pond", "fish-creds"), "token");
        let text = reference.placeholder();
        assert_eq!(text.expose(), "${secret:pond/fish-creds/token}");
        assert_eq!(SecretKeyRef::from_placeholder(&text), Some(reference));
    }

    #[test]
    fn other_text_is_not_a_reference() {
        for text in ["pond/fish", "pond/fish/", "pond/fish/key/more", "", "//"] {
            assert_eq!(SecretKeyRef::parse(text), None, "{text:?}");
        }
    }
}
