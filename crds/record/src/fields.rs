//! Parts of fields that several lines share.

pub(crate) fn is_empty<T>(list: &[T]) -> bool {
    list.is_empty()
}

/// The schema of [`GrantRef`].
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "GrantRef")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct GrantSchema {
    /// `default` for ToolDefaults.
    name: String,
    namespace: String,
}
