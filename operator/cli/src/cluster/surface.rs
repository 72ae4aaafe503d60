//! One Surface of the cluster, for review: read, its service asked, its tools written.
//!
//! The service is reached by the API server's proxy: one right, on one Service, and no port of
//! this machine is opened.

use kube::Resource as _;
use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::Surface;

use super::{ReadError, Session};
use crate::failure::Failure;
use crate::mcp::http::Http;

/// A Surface as the API server has it.
pub struct StoredSurface {
    /// What somebody wrote of it.
    pub surface: Value,
    version: Value,
}

/// What if somebody else has written the tools?
#[derive(Clone, Copy)]
pub enum Conflicts {
    Refuse,
    TakeOver,
}

impl Session {
    pub fn surface(&self, key: &ObjectRef) -> Result<Option<StoredSurface>, Failure> {
        let path = Surface::url_path(&(), Some(&key.namespace));
        let read = async {
            let request = Request::new(path)
                .get(&key.name, &GetParams::default())
                .map_err(kube::Error::BuildRequest)?;
            self.client().request::<Value>(request).await
        };
        match self.ask(read)? {
            Ok(object) => Ok(Some(StoredSurface::of(object))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let doing = format!("read Surface {key}");
                Err(self.failure(ReadError::Api { doing, error }))
            }
        }
    }

    /// An MCP server behind a Service.
    pub fn server(
        &self,
        service: &str,
        namespace: &str,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Http, Failure> {
        let path = proxy_path(service, namespace, path);
        Ok(Http::proxied(self.client_without_retry()?, path, headers))
    }

    /// The tools into the Surface that was read, if it is still that one.
    pub fn apply_tools(
        &self,
        held: &StoredSurface,
        tools: &Value,
        conflicts: Conflicts,
    ) -> Result<(), Failure> {
        let metadata = &held.surface["metadata"];
        let text = |member: &str| metadata[member].as_str().unwrap_or_default();
        let key = ObjectRef::new(text("namespace"), text("name"));
        let patch = json!({
            "apiVersion": Surface::api_version(&()),
            "kind": Surface::kind(&()),
            // With the version, since what was shown was the difference to that one.
            "metadata": {"name": key.name, "namespace": key.namespace, "resourceVersion": held.version},
            "spec": {"descriptor": {"version": 2, "tools": tools}},
        });
        let parameters = PatchParams::apply(names::DISCOVER_FIELD_MANAGER);
        let parameters = match conflicts {
            Conflicts::Refuse => parameters,
            Conflicts::TakeOver => parameters.force(),
        };
        let path = Surface::url_path(&(), Some(&key.namespace));
        let write = async {
            let request = Request::new(path)
                .patch(&key.name, &parameters, &Patch::Apply(&patch))
                .map_err(kube::Error::BuildRequest)?;
            self.client().request::<Value>(request).await
        };
        match self.ask(write)? {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Err(Failure::Failed(anyhow::anyhow!(conflict(&key, &status))))
            }
            Err(error) => {
                let doing = format!("apply Surface {key}");
                Err(self.failure(ReadError::Api { doing, error }))
            }
        }
    }
}

impl StoredSurface {
    fn of(object: Value) -> Self {
        let mut surface = json!({
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": {},
            "spec": object["spec"],
        });
        for member in ["name", "namespace", "labels", "annotations"] {
            let written = &object["metadata"][member];
            if !written.is_null() {
                surface["metadata"][member] = written.clone();
            }
        }
        let annotations = surface.pointer_mut("/metadata/annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        Self {
            surface,
            version: object["metadata"]["resourceVersion"].clone(),
        }
    }
}

/// Of fields that others have, or of a version that is no longer the one that was read.
fn conflict(key: &ObjectRef, status: &kube::core::Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_field = |reason: &str| reason == "FieldManagerConflict";
    let others: Vec<&str> = causes
        .filter(|cause| is_field(&cause.reason))
        .map(|cause| cause.message.as_str())
        .collect();
    match others.is_empty() {
        true => format!("Surface {key} was changed while it was compared: try again"),
        false => format!(
            "others have written the tools of Surface {key} ({}): write them where they are kept, or take them over with --force-conflicts",
            others.join(", ")
        ),
    }
}

/// Each name is one segment of the API server's path, whatever characters an object has in it: else
/// a Surface would choose what its reviewer asks of the API server.
fn proxy_path(service: &str, namespace: &str, path: &str) -> String {
    let segment = |text: &str| -> String {
        let bytes = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        });
        bytes.collect()
    };
    let below: Vec<String> = path.split('/').map(segment).collect();
    format!(
        "/api/v1/namespaces/{}/services/{}/proxy{}",
        segment(namespace),
        segment(service),
        below.join("/")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surface_chooses_no_other_path_of_the_api_server() {
        assert_eq!(
            proxy_path("https:carp:8443", "pond", "/v1/mcp"),
            "/api/v1/namespaces/pond/services/https:carp:8443/proxy/v1/mcp"
        );
        assert_eq!(
            proxy_path("victim:80/proxy/admin?x=:80", "pond", "/mcp?a#b"),
            "/api/v1/namespaces/pond/services/victim:80%2Fproxy%2Fadmin%3Fx%3D:80/proxy/mcp%3Fa%23b"
        );
    }
}
