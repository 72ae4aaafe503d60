//! Which documentation a field of a definition has.

/// Drops the documentation of an enum type: the field's own documentation says more, and kube's
/// rewriting of `Option<enum>` would replace it by the type's.
pub(crate) fn field_speaks(schema: &mut schemars::Schema) {
    schema.remove("description");
}
