//! The object that granted a tool.

use serde::{Deserialize, Serialize};

/// The object that granted the tool. `ToolDefaults` are named by their own name, `default`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRef {
    pub name: String,
    pub namespace: String,
}
