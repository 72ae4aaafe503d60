//! The CustomResourceDefinitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolApproval, ToolDecision, ToolDefaults,
    ToolGrant, words,
};

pub const GROUP: &str = "toolcrib.dev";
pub const VERSION: &str = "v1alpha1";

/// All definitions, in name order.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        Agent::crd(),
        ClusterToolPolicy::crd(),
        ModelProvider::crd(),
        Surface::crd(),
        ToolApproval::crd(),
        ToolDecision::crd(),
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
                bound_foreign(schema);
                default_status(schema);
            }
        }
    }
    definitions
}

/// Removes schemars' additions that Kubernetes does not need: `nullable` on every optional field (a
/// null that is refused at admission cannot evade `has()` in a rule), bare patterns, and Rust's
/// unsigned formats (the API server warns about them, and the bounds are equivalent). A part that
/// accepts every value stays nullable.
fn tidy(schema: &mut JSONSchemaProps) {
    let open = schema.type_.is_none() && schema.x_kubernetes_preserve_unknown_fields == Some(true);
    if !open {
        schema.nullable = None;
    }
    if let Some(values) = schema.enum_.as_mut() {
        values.retain(|value| !value.0.is_null());
    }
    schema.format = match schema.format.take().as_deref() {
        Some("uint8" | "uint16" | "uint32") => Some("int32".to_string()),
        Some("uint" | "uint64") => Some("int64".to_string()),
        other => other.map(str::to_string),
    };
    words::say(schema);
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

/// Adds bounds to Kubernetes' own types, which have none: those of a Condition in Kubernetes' own
/// definitions, and of labels. A selector has at most 64 terms, unless it has bounds of its own.
fn bound_foreign(schema: &mut JSONSchemaProps) {
    const TERMS: i64 = 64;
    const LABEL_KEY: i64 = 317;
    const LABEL_VALUE: i64 = 63;
    let Some(fields) = schema.properties.as_mut() else {
        return;
    };
    if fields.contains_key("lastTransitionTime") && fields.contains_key("reason") {
        longest(fields.get_mut("type"), 316);
        longest(fields.get_mut("reason"), 1024);
        longest(fields.get_mut("message"), 32_768);
        one_of(fields.get_mut("status"), &["True", "False", "Unknown"]);
    }
    if let Some(labels) = fields.get_mut("matchLabels") {
        labels.max_properties = labels.max_properties.or(Some(TERMS));
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = labels.additional_properties.as_mut() {
            longest(Some(value), LABEL_VALUE);
        }
    }
    if let Some(terms) = fields.get_mut("matchExpressions")
        && terms.max_items.is_none()
    {
        terms.max_items = Some(TERMS);
        if let Some(term) = item(terms).and_then(|term| term.properties.as_mut()) {
            longest(term.get_mut("key"), LABEL_KEY);
            let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
            one_of(term.get_mut("operator"), &operators);
            if let Some(values) = term.get_mut("values") {
                values.max_items = Some(TERMS);
                longest(item(values), LABEL_VALUE);
            }
        }
    }
    for field in fields.values_mut() {
        bound_foreign(field);
        if let Some(item) = item(field) {
            bound_foreign(item);
        }
    }
}

/// Defaults `status.observedGeneration` to -1, a generation that no object has. Without it, tools that compute
/// health (kstatus, so Flux and Helm 4) take a new object for ready before the controller has seen it.
fn default_status(schema: &mut JSONSchemaProps) {
    const FIELD: &str = "observedGeneration";
    let fields = schema.properties.as_mut();
    let Some(status) = fields.and_then(|fields| fields.get_mut("status")) else {
        return;
    };
    let fields = status.properties.as_ref();
    if fields.is_some_and(|fields| fields.contains_key(FIELD)) {
        status.default = Some(JSON(serde_json::json!({FIELD: -1})));
    }
}

fn item(list: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    match list.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn longest(text: Option<&mut JSONSchemaProps>, length: i64) {
    if let Some(text) = text {
        text.max_length = Some(length);
    }
}

fn one_of(text: Option<&mut JSONSchemaProps>, words: &[&str]) {
    if let Some(text) = text {
        let words = words.iter().map(|word| JSON((*word).into()));
        text.enum_ = Some(words.collect());
    }
}
