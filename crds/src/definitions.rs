//! The CustomResourceDefinitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{Agent, ModelProvider, Surface, ToolDefaults, ToolGrant};

pub const GROUP: &str = "toolcrib.dev";
pub const VERSION: &str = "v1alpha1";

/// All definitions, in name order.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        Agent::crd(),
        ModelProvider::crd(),
        Surface::crd(),
        ToolDefaults::crd(),
        ToolGrant::crd(),
    ];
    for definition in &mut definitions {
        for version in &mut definition.spec.versions {
            if let Some(schema) = version
                .schema
                .as_mut()
                .and_then(|v| v.open_api_v3_schema.as_mut())
            {
                tidy(schema);
            }
        }
    }
    definitions
}

/// For the enums: a field's own documentation says more than its type's, and kube's
/// rewriting of `Option<enum>` would put the type's in its place.
pub(crate) fn field_speaks(schema: &mut schemars::Schema) {
    schema.remove("description");
}

/// What schemars says and Kubernetes has no use for: `nullable` on every optional field
/// (a null that is refused at admission cannot slip past `has()` in a rule) and Rust's
/// unsigned formats (which the API server warns about; the bounds say the same).
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(values) = schema.enum_.as_mut() {
        values.retain(|value| !value.0.is_null());
    }
    schema.format = match schema.format.take().as_deref() {
        Some("uint8" | "uint16" | "uint32") => Some("int32".to_string()),
        Some("uint" | "uint64") => Some("int64".to_string()),
        other => other.map(str::to_string),
    };
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|map| map.values_mut())
    {
        tidy(property);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => tidy(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        tidy(values);
    }
}
