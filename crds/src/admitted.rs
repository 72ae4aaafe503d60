//! Evaluates the API server's admission of an object: the definitions' own schema and rules (CEL),
//! without a server, so that files get the same refusals as with `kubectl apply`.
//!
//! Behind the feature `admission`: the operator does not need it, because the API server has
//! checked every object. Not here: relations between objects.
//!
//! Invariants: a rule that cannot be evaluated refuses the object, and evaluation is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator as Schema};
use kube::core::cel::{CompiledSchema, Validator as Rules, compile_schema};
use serde_json::Value;
use toolcrib_bounds::json::pointer::field_path;

use crate::{decode, definitions};

/// A refused object: the field, as in `kubectl explain`, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    pub field: String,
    pub message: String,
}

/// etcd's default limit; larger objects are refused whatever they hold.
const MAX_BYTES: usize = 1_572_864;
/// As in the API server: rules are not evaluated on an object that violates a limit on which their
/// cost or their types rest.
const BLOCKING: [&str; 5] = ["maxItems", "maxLength", "maxProperties", "required", "type"];
/// Limits the refusals of one object that are reported by its schema, and by its rules.
const MAX_REFUSALS: usize = 16;
/// Limits the bytes of a message: it quotes the value, which may be a whole document.
const MESSAGE: usize = 304;

/// Returns the reasons for which the API server would refuse an object of one of our kinds; empty
/// if it would accept it. The object must be pruned already, as in the API server.
pub fn refusals(kind: &str, object: &Value) -> Vec<Refusal> {
    let Some(definition) = compiled().get(kind) else {
        return Vec::new();
    };
    let bytes = object.to_string().len();
    if bytes > MAX_BYTES {
        let message = format!("the object has {bytes} bytes, {MAX_BYTES} are stored at most");
        return vec![Refusal {
            field: String::new(),
            message,
        }];
    }
    let mut refusals = Vec::new();
    let mut blocked = false;
    for error in definition.schema.iter_errors(object).take(MAX_REFUSALS) {
        let keyword = error.schema_path().as_str().rsplit('/').next();
        blocked |= keyword.is_some_and(|keyword| BLOCKING.contains(&keyword));
        let at = field_path(error.instance_path().as_str());
        let refusal = match keyword {
            Some("uniqueItems") => duplicate(&at, error.instance()),
            _ => None,
        };
        refusals.push(refusal.unwrap_or_else(|| Refusal {
            field: at,
            message: toolcrib_bounds::cut(&words(kind, &error), MESSAGE).into_owned(),
        }));
    }
    if !blocked {
        let errors = Rules::new().validate_compiled(&definition.rules, object, None);
        let by_rule = errors.as_ref().err().map(|errors| errors.as_slice());
        let by_rule = by_rule.unwrap_or_default().iter().take(MAX_REFUSALS);
        refusals.extend(by_rule.map(|error| Refusal {
            field: error.field_path.clone(),
            message: error.message.clone(),
        }));
        let unique = definition.unique_names.as_ref();
        refusals.extend(unique.and_then(|rule| rule.refusal(object)));
    }
    refusals.sort();
    refusals
}

/// The rule that each surface of an Agent has a name of its own. Its CEL compares each entry with
/// all entries; the evaluator needs a hundred thousand instructions for one comparison. So the rule
/// is taken out of the definition and evaluated here, in one pass over the entries.
struct UniqueNames {
    message: String,
}

impl UniqueNames {
    const KIND: &str = "Agent";
    const LIST: &str = "/spec/surfaces";
    /// The list's rules in the definition's schema.
    const RULES: &str = "/properties/spec/properties/surfaces/x-kubernetes-validations";

    /// Takes the rule out of the schema of an Agent.
    fn take(schema: &mut Value) -> Self {
        let rules = schema.pointer_mut(Self::RULES).map(Value::take);
        let rules = rules.as_ref().and_then(Value::as_array);
        let [rule] = rules.map_or(&[][..], Vec::as_slice) else {
            panic!("{} has one rule", Self::LIST);
        };
        Self {
            message: rule["message"].as_str().expect("a message").to_owned(),
        }
    }

    fn refusal(&self, agent: &Value) -> Option<Refusal> {
        let mut seen = BTreeSet::new();
        let surfaces = agent.pointer(Self::LIST)?.as_array()?;
        let mut names = surfaces
            .iter()
            .filter_map(|surface| surface.get("as").or(surface.get("name"))?.as_str());
        names.any(|name| !seen.insert(name)).then(|| Refusal {
            field: field_path(Self::LIST),
            message: self.message.clone(),
        })
    }
}

/// Describes the fault that a schema finds, and its cure.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other rules of a schema have no words of ours"
)]
fn words(kind: &str, error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            format!("{name} is missing: write it")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("is longer than {limit} characters: shorten it")
        }
        ValidationErrorKind::MinLength { .. } => {
            "is empty: write it, or remove the field".to_owned()
        }
        ValidationErrorKind::MaxItems { limit } => {
            format!("has more than {limit} entries: remove some, or use a second object")
        }
        ValidationErrorKind::MinItems { limit: 1 } => "is an empty list: add an entry".to_owned(),
        ValidationErrorKind::MinItems { limit } => {
            format!("has fewer than {limit} entries: add some")
        }
        ValidationErrorKind::MaxProperties { limit } => {
            format!("has more than {limit} keys: remove some")
        }
        ValidationErrorKind::Type { .. }
        | ValidationErrorKind::Enum { .. }
        | ValidationErrorKind::Minimum { .. }
        | ValidationErrorKind::Maximum { .. } => {
            let place = error.instance_path().as_str();
            decode::correction(kind, place, error.instance()).unwrap_or_else(|| error.to_string())
        }
        _ => error.to_string(),
    }
}

/// Finds the first repeated element of a list, in the API server's words.
fn duplicate(list: &str, value: &Value) -> Option<Refusal> {
    let mut seen = BTreeSet::new();
    let items = value.as_array()?.iter().map(Value::to_string);
    let (index, item) = items
        .enumerate()
        .find(|(_, item)| !seen.insert(item.clone()))?;
    let item = toolcrib_bounds::cut(&item, MESSAGE);
    Some(Refusal {
        field: format!("{list}[{index}]"),
        message: format!("Duplicate value: {item}: remove it"),
    })
}

struct Definition {
    schema: Schema,
    rules: CompiledSchema,
    unique_names: Option<UniqueNames>,
}

fn compiled() -> &'static BTreeMap<String, Definition> {
    static DEFINITIONS: OnceLock<BTreeMap<String, Definition>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        definitions()
            .into_iter()
            .filter_map(|definition| {
                let kind = definition.spec.names.kind;
                let version = definition.spec.versions.into_iter().next()?;
                let schema = version.schema?.open_api_v3_schema?;
                let mut schema = serde_json::to_value(schema).expect("a schema is plain data");
                let unique_names =
                    (kind == UniqueNames::KIND).then(|| UniqueNames::take(&mut schema));
                let rules = compile_schema(&schema);
                let schema = jsonschema::options()
                    .with_draft(jsonschema::Draft::Draft202012)
                    .build(&as_json_schema(schema))
                    .expect("a structural schema is a JSON Schema");
                let definition = Definition {
                    schema,
                    rules,
                    unique_names,
                };
                Some((kind, definition))
            })
            .collect()
    })
}

/// Translates the keyword of structural schemas that JSON Schema lacks: lists that are sets.
fn as_json_schema(mut schema: Value) -> Value {
    if let Value::Object(members) = &mut schema {
        if members.get("x-kubernetes-list-type") == Some(&Value::from("set")) {
            members.insert("uniqueItems".to_owned(), true.into());
        }
        // Formats are Go's (int32, date-time); bounds are separate keywords.
        members.remove("format");
        for (name, member) in members.iter_mut() {
            match name.as_str() {
                "properties" => {
                    for property in member
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|map| map.values_mut())
                    {
                        *property = as_json_schema(property.take());
                    }
                }
                "items" | "additionalProperties" => *member = as_json_schema(member.take()),
                _ => {}
            }
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Evaluates the definition's own rule of an Agent's surfaces.
    fn by_cel(agent: &Value) -> Option<Refusal> {
        let definitions = definitions().into_iter();
        let mut agents = definitions.filter(|it| it.spec.names.kind == UniqueNames::KIND);
        let version = agents.next()?.spec.versions.into_iter().next()?;
        let schema = serde_json::to_value(version.schema?.open_api_v3_schema?).ok()?;
        let errors = Rules::new().validate(&schema, agent, None).err()?;
        let [error] = errors.as_slice() else {
            panic!("{errors:?}");
        };
        Some(Refusal {
            field: error.field_path.clone(),
            message: error.message.clone(),
        })
    }

    #[test]
    fn names_of_surfaces_are_compared_as_by_the_definitions_rule() {
        let entries = [
            json!({"name": "reef"}),
            json!({"name": "reef", "namespace": "lake"}),
            json!({"name": "pond"}),
            json!({"name": "pond", "as": "reef"}),
            json!({"name": "reef", "as": "pond"}),
            json!({"name": "reef", "as": "sea"}),
        ];
        let (mut refused, mut accepted) = (0, 0);
        for chosen in 0..1 << entries.len() {
            let surfaces: Vec<&Value> = (0..entries.len())
                .filter(|at| chosen >> at & 1 == 1)
                .map(|at| &entries[at])
                .collect();
            let agent = json!({"metadata": {"name": "otter"}, "spec": {"surfaces": surfaces}});
            let expected = by_cel(&agent);
            assert_eq!(
                refusals("Agent", &agent),
                Vec::from_iter(expected.clone()),
                "{agent}"
            );
            match expected {
                Some(_) => refused += 1,
                None => accepted += 1,
            }
        }
        assert!(refused > 10 && accepted > 10, "{refused} {accepted}");
    }
}
