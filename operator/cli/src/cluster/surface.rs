//! One Surface of the cluster, for review: reads it, asks its service, writes its tools.
//!
//! The service is reached through the API server's proxy: that takes one right on one Service, and
//! opens no port on this machine.

use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolcrib_compile::{ObjectRef, names};
use toolcrib_crds::Surface;

use super::{ReadError, Session};
use crate::authoring::mcp::http::Http;
use crate::failure::Failure;

/// A Surface as the API server has it.
pub struct StoredSurface {
    /// The object without the fields that the API server adds.
    pub surface: Value,
    version: Value,
}

/// The treatment of tools that another manager has written.
#[derive(Clone, Copy)]
pub enum Conflicts {
    Refuse,
    TakeOver,
}

impl Session {
    pub fn surface(&self, key: &ObjectRef) -> Result<Option<StoredSurface>, Failure> {
        Ok(self.object::<Surface>(key)?.map(StoredSurface::of))
    }

    /// Returns an MCP server behind a Service.
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

    /// Writes the tools into the Surface, if it is unchanged since it was read.
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
            // The version makes sure that the reviewed difference is still the real one.
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

/// Describes a conflict: other managers own the fields, or the Surface has changed since.
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

/// Returns a proxy path in which each name is one segment, whatever characters it has. Otherwise a
/// Surface could choose the requests that its reviewer sends to the API server.
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
    fn a_surface_cannot_choose_another_path_of_the_api_server() {
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
