//! Foreign descriptions as objects for review: OpenAPI documents, images, MCP servers and pod files.
//!
//! [`import`] reads Clawdapus pod files, [`openapi`] documents, [`image`] registries, [`mcp`] MCP
//! servers; [`wrapped`] builds the objects around an MCP server on standard streams. The verbs are
//! in `commands`.

pub mod image;
pub mod import;
pub mod mcp;
pub mod openapi;
pub mod wrapped;
