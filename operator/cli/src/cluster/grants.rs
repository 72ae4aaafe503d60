//! Reads who wrote a grant, as the API server keeps it in the object.

use serde_json::Value;
use toolcrib_compile::{Kind, ObjectRef};
use toolcrib_crds::{ToolDefaults, ToolGrant};

use super::Session;
use crate::failure::Failure;

impl Session {
    /// Returns the `metadata.managedFields` of a ToolGrant, or of ToolDefaults by that kind; null if the
    /// object has none, or is gone.
    pub fn managed_fields(&self, kind: Kind, key: &ObjectRef) -> Result<Value, Failure> {
        let object = match kind == Kind::ToolDefaults {
            true => self.object::<ToolDefaults>(key)?,
            false => self.object::<ToolGrant>(key)?,
        };
        let fields = object.map(|mut it| it["metadata"]["managedFields"].take());
        Ok(fields.unwrap_or_default())
    }
}
