//! Foreign descriptions as objects for review: OpenAPI documents, images, MCP servers and pod files.
//!
//! [`import`] reads Clawdapus pod files, [`openapi`] documents, [`image`] registries, [`mcp`] MCP
//! servers; [`wrapped`] builds the objects around an MCP server on standard streams; [`connection`]
//! has the messages for a server that does not answer. The verbs are in `commands`.

mod connection;
pub mod image;
pub mod import;
pub mod mcp;
pub mod openapi;
pub mod wrapped;

/// Limits the bytes of a text of a file that a message repeats.
const SHOWN: usize = 60;

/// Returns `KIND of VERSION`, for a message, if a file with these fields is a Kubernetes object.
fn kubernetes_object(kind: Option<&str>, version: Option<&str>) -> Option<String> {
    let cut = |text| toolcrib_bounds::cut(text, SHOWN);
    Some(format!("{} of {}", cut(kind?), cut(version?)))
}
