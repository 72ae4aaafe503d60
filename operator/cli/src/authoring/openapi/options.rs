//! The options for converting an OpenAPI document to a Surface.

/// The requested Surface.
#[derive(Debug)]
pub struct SurfaceOptions {
    pub name: String,
    pub namespace: String,
    /// `None`: the document's first server.
    pub address: Option<Address>,
    pub choice: Choice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Service { name: String, port: u16 },
    Url(url::Url),
}

/// The requested operations: by tag, operationId, or `METHOD /path`; `*` matches any text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}
