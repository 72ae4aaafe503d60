//! Reads who wrote a grant, as the API server keeps it in the object.

use kube::Resource as _;
use kube::api::GetParams;
use kube::core::Request;
use serde_json::Value;
use toolcrib_compile::{Kind, ObjectRef};
use toolcrib_crds::{ToolDefaults, ToolGrant};

use super::{ReadError, Session};
use crate::failure::Failure;

impl Session {
    /// Returns the `metadata.managedFields` of a ToolGrant, or of ToolDefaults by that kind; null if it has
    /// none.
    pub fn managed_fields(&self, kind: Kind, key: &ObjectRef) -> Result<Value, Failure> {
        let path = match kind == Kind::ToolDefaults {
            true => ToolDefaults::url_path(&(), Some(&key.namespace)),
            false => ToolGrant::url_path(&(), Some(&key.namespace)),
        };
        let read = async {
            let request = Request::new(path)
                .get(&key.name, &GetParams::default())
                .map_err(kube::Error::BuildRequest)?;
            self.client().request::<Value>(request).await
        };
        match self.ask(read)? {
            Ok(object) => Ok(object["metadata"]["managedFields"].clone()),
            Err(error) => {
                let doing = format!("read {} {key}", kind.name());
                Err(self.failure(ReadError::Api { doing, error }))
            }
        }
    }
}
