//! Reports each fault of a pod file once.
//!
//! A fault that the translation reports also causes findings of the compiler: if a Surface is not
//! written, an Agent and a ToolGrant refer to a missing object. This module removes such findings. Not
//! here: finding the faults.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use toolcrib_compile::{Code, Diagnostic, Kind, Severity};

use super::file::File;
use super::finding::{Cause, Findings};

/// Returns the diagnostics without those that a finding or another diagnostic explains. Diagnostics
/// of objects that are not in `files` are all kept. The result is sorted.
pub fn without(
    files: &[File],
    findings: &mut Findings,
    diagnostics: Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    let documents = files.iter().flat_map(|file| &file.documents);
    let objects: BTreeMap<(&str, &str), &Value> = documents
        .filter_map(|document| {
            let object = &document.object;
            let name = object["metadata"]["name"].as_str()?;
            Some(((object["kind"].as_str()?, name), object))
        })
        .collect();
    let of = |diagnostic: &Diagnostic| {
        let subject = &diagnostic.object;
        let name = subject.key.name.as_str();
        objects.get(&(subject.kind.name(), name)).copied()
    };
    let errors = diagnostics
        .iter()
        .filter(|it| it.severity == Severity::Error && of(it).is_some());
    let faulty: BTreeSet<(Kind, String)> = errors
        .map(|it| (it.object.kind, it.object.key.name.clone()))
        .collect();

    let mut seen: BTreeSet<(Diagnostic, String)> = BTreeSet::new();
    let mut left = Vec::new();
    for diagnostic in diagnostics {
        let Some(object) = of(&diagnostic) else {
            left.push(diagnostic);
            continue;
        };
        let value = at(object, &diagnostic.field);
        let is_effect = match reference(&diagnostic, value) {
            Some(Reference::Object(kind, name)) => {
                faulty.contains(&(kind, name.to_owned()))
                    || (kind == Kind::Surface
                        && findings.causes().contains(&Cause::Surface(name.to_owned())))
            }
            Some(Reference::Provider(name)) => {
                let causes = findings.causes();
                causes.contains(&Cause::Provider(name.to_owned()))
            }
            Some(Reference::AnyProvider) => {
                if diagnostic.severity == Severity::Error {
                    findings.make_error(&Cause::AnyProvider);
                }
                let mut causes = findings.causes().iter();
                causes.any(|it| matches!(it, Cause::AnyProvider | Cause::Provider(_)))
            }
            None => findings.causes().contains(&Cause::SurfaceField(
                diagnostic.object.key.name.clone(),
                diagnostic.field.clone(),
            )),
        };
        // Several fields of an Agent can name the same model of the pod file.
        let is_repeated = value.and_then(Value::as_str).is_some_and(|value| {
            let anywhere = Diagnostic {
                field: String::new(),
                ..diagnostic.clone()
            };
            !seen.insert((anywhere, value.to_owned()))
        });
        if !is_effect && !is_repeated {
            left.push(diagnostic);
        }
    }
    left
}

/// The object that a field names.
enum Reference<'a> {
    Object(Kind, &'a str),
    Provider(&'a str),
    AnyProvider,
}

/// Returns the unusable object that a diagnostic is about. `value` is the value of the diagnostic's
/// field, which names the object.
fn reference<'a>(diagnostic: &Diagnostic, value: Option<&'a Value>) -> Option<Reference<'a>> {
    let code = diagnostic.code;
    let is_surface = [
        Code::SurfaceNotFound,
        Code::DescriptorNotFound,
        Code::UnsupportedDescriptorVersion,
    ]
    .contains(&code);
    if is_surface && diagnostic.object.kind != Kind::Surface {
        let value = value?;
        let name = value.as_str().or(value["name"].as_str())?;
        Some(Reference::Object(Kind::Surface, name))
    } else if code == Code::AgentNotFound {
        Some(Reference::Object(Kind::Agent, value?.as_str()?))
    } else if code == Code::ModelNotServed {
        // For an Agent without a model, the field is `spec.models`.
        let model = value?.as_str().unwrap_or_default();
        Some(Reference::Provider(model.split('/').next()?))
    } else if code == Code::NoModelProvider {
        Some(Reference::AnyProvider)
    } else {
        None
    }
}

/// The value of a field, which is written as in `kubectl explain`: `spec.tools[0].surface`.
fn at<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    field.split(['.', '[']).try_fold(object, |value, part| {
        let part = part.trim_end_matches(']');
        match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            Value::Object(members) => members.get(part),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    })
}
