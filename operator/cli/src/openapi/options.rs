//! What a Surface is to be made of an OpenAPI document.

/// The Surface that is wanted.
#[derive(Debug)]
pub struct SurfaceOptions {
    pub name: String,
    pub namespace: String,
    /// Left out: the document's first server.
    pub address: Option<Address>,
    pub choice: Choice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Service { name: String, port: u16 },
    Url(url::Url),
}

/// Which operations: by tag, operationId, or `METHOD /path`; `*` stands for anything.
#[derive(Debug, Default)]
pub struct Choice {
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}
