//! Error codes: JSON-RPC's, then MCP's.

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;

/// A header differs from the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare a capability that the request needs.
pub const MISSING_CAPABILITY: i64 = -32021;
/// This revision is not supported, or no longer supported.
pub const UNSUPPORTED_VERSION: i64 = -32022;
