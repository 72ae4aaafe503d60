//! The API kinds, one per file: spec, status and printed columns.

pub mod agent;
pub mod cluster_tool_policy;
pub mod model_provider;
pub mod surface;
pub mod tool_approval;
pub mod tool_decision;
pub mod tool_defaults;
pub mod tool_grant;
