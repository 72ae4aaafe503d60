//! Objects from YAML text: the offline counterpart of the controller's snapshot.
//!
//! Pure: the caller reads the files. Values of Secrets are returned beside the [`Inputs`], never
//! in them. Fields that the API server would prune are pruned here too, with a warning. Documents
//! of kinds that compile does not read are returned unchanged.

pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcrib_bounds::FieldPath;
use toolcrib_crds::{
    Agent, AgentSpec, ClusterToolPolicy, DecodeError, ModelProvider, Surface, ToolDefaults,
    ToolGrant, decode,
};
use toolcrib_manifest::SecretText;

use crate::names::GROUP;
use crate::near;
use crate::objects::budget::too_heavy;
use crate::objects::facts::credential_value;
use crate::{
    Code, Diagnostic, Diagnostics, Inputs, Kind, ObjectRef, PodPort, Presence, SecretFacts,
    SecretKeyRef, ServiceFacts, Settings, Subject,
};

/// The objects of a set of YAML texts.
#[derive(Clone, Debug)]
pub struct LoadResult {
    pub inputs: Inputs,
    /// The values of all Secrets among the documents.
    pub secrets: BTreeMap<SecretKeyRef, SecretText>,
    /// The origin of each object.
    pub origins: BTreeMap<Subject, Origin>,
    /// Documents of other kinds: Deployments, Pods, …
    pub others: Vec<OtherDocument>,
    /// Findings about objects: unknown fields, objects that cannot be decoded.
    pub diagnostics: Vec<Diagnostic>,
    /// Texts that are not objects at all.
    pub errors: Vec<DocumentError>,
}

/// The place of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// As it was given.
    pub path: String,
    /// The line in which the document's content begins, from 1; in a [`DocumentError`], the line of
    /// the fault where the parser knows it.
    pub line: usize,
}

impl fmt::Display for Origin {
    /// `pond.yaml:12`, which editors and terminals open at that line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

#[derive(Clone, Debug)]
pub struct OtherDocument {
    pub origin: Origin,
    pub value: Value,
}

/// A document that could not be read as an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    pub origin: Origin,
    pub message: String,
}

/// Reads texts `(path, YAML)`. It never fails as a whole: a text or object that cannot be decoded
/// is left out, and is in `errors` or `diagnostics`.
pub fn load(
    documents: impl IntoIterator<Item = (String, String)>,
    settings: Settings,
) -> LoadResult {
    load_into(documents, settings, "default")
}

/// Does the same as [`load`], with a namespace for objects that name none.
pub fn load_into(
    documents: impl IntoIterator<Item = (String, String)>,
    settings: Settings,
    namespace: &str,
) -> LoadResult {
    let mut loader = Loader {
        namespace: namespace.to_owned(),
        loaded: LoadResult {
            inputs: Inputs::offline(settings),
            secrets: BTreeMap::new(),
            origins: BTreeMap::new(),
            others: Vec::new(),
            diagnostics: Vec::new(),
            errors: Vec::new(),
        },
        found: Diagnostics::default(),
    };
    for (path, text) in documents {
        loader.file(&path, &text);
    }
    let mut loaded = loader.loaded;
    loaded.diagnostics = loader.found.into_sorted();
    loaded
}

struct Loader {
    /// Namespace of objects that name none.
    namespace: String,
    loaded: LoadResult,
    found: Diagnostics,
}

impl Loader {
    fn file(&mut self, path: &str, text: &str) {
        for document in yaml::documents(text) {
            let origin = Origin {
                path: path.to_owned(),
                line: document.line,
            };
            match document.value {
                Ok(Value::Null) => {}
                Ok(value) => self.document(&origin, value),
                Err(message) => self.loaded.errors.push(DocumentError { origin, message }),
            }
        }
    }

    fn document(&mut self, origin: &Origin, value: Value) {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind)) = (text("/apiVersion"), text("/kind")) else {
            self.loaded.errors.push(DocumentError {
                origin: origin.clone(),
                message: "has no apiVersion and kind: write both, or remove the document"
                    .to_owned(),
            });
            return;
        };
        if let (true, Some(items)) = (
            kind.ends_with("List"),
            value.get("items").and_then(Value::as_array),
        ) {
            for item in items.clone() {
                self.document(origin, item);
            }
            return;
        }
        if (api_version, kind) == ("v1", "List") {
            self.loaded.errors.push(DocumentError {
                origin: origin.clone(),
                message: "is a List without a list of items: write items, each object after a dash"
                    .to_owned(),
            });
            return;
        }
        let Some(kind) = known(api_version, kind) else {
            let is_ours = api_version.split('/').next() == Some(GROUP);
            if is_ours {
                self.loaded.errors.push(DocumentError {
                    origin: origin.clone(),
                    message: format!(
                        "is {kind} of {api_version}, which this release does not know{}: write a kind of {GROUP}/{}: {}",
                        near::other(kind, KINDS),
                        toolcrib_crds::VERSION,
                        KINDS.join(", "),
                    ),
                });
            } else {
                self.loaded.others.push(OtherDocument {
                    origin: origin.clone(),
                    value,
                });
            }
            return;
        };
        let Some(name) = text("/metadata/name") else {
            self.loaded.errors.push(DocumentError {
                origin: origin.clone(),
                message: format!(
                    "is {} without metadata.name: write a name, in quotes if it looks like a number",
                    kind.name()
                ),
            });
            return;
        };
        let namespace = match kind {
            Kind::Namespace | Kind::ClusterToolPolicy => "",
            Kind::Surface
            | Kind::Agent
            | Kind::ToolGrant
            | Kind::ToolDefaults
            | Kind::ModelProvider
            | Kind::Service
            | Kind::Secret
            | Kind::ConfigMap => text("/metadata/namespace").unwrap_or(&self.namespace),
        };
        let subject = Subject::new(kind, &ObjectRef::new(namespace, name));
        if let Some(first) = self.loaded.origins.get(&subject) {
            self.found.add(
                &subject,
                "metadata.name",
                Code::Duplicate,
                format!("is declared in {first} and again in {origin}: keep one"),
            );
        }
        self.loaded.origins.insert(subject.clone(), origin.clone());
        if let Err(error) = self.object(&subject, value) {
            let reason = error.to_string();
            self.found
                .add(&subject, error.field, Code::Undecodable, error.message);
            self.loaded
                .inputs
                .set_undecodable(kind, subject.key.clone(), reason);
        }
    }

    fn object(&mut self, subject: &Subject, mut value: Value) -> Result<(), DecodeError> {
        if !subject.key.namespace.is_empty()
            && let Some(Value::Object(metadata)) = value.get_mut("metadata")
        {
            metadata.insert("namespace".to_owned(), subject.key.namespace.clone().into());
        }
        let key = subject.key.clone();
        match subject.kind {
            Kind::Surface => {
                let surface: Surface = self.ours(subject, &value)?;
                if !self.is_too_heavy(subject, &surface.spec) {
                    self.loaded.inputs.set_surface(Arc::new(surface));
                }
            }
            Kind::Agent => {
                let mut agent: Agent = self.ours(subject, &value)?;
                if self.is_too_heavy(subject, &agent.spec) {
                    agent.spec = AgentSpec::default();
                }
                self.loaded.inputs.set_agent(Arc::new(agent));
            }
            Kind::ToolGrant => {
                let grant: ToolGrant = self.ours(subject, &value)?;
                if !self.is_too_heavy(subject, &grant.spec) {
                    self.loaded.inputs.set_grant(Arc::new(grant));
                }
            }
            Kind::ToolDefaults => {
                let defaults: ToolDefaults = self.ours(subject, &value)?;
                if !self.is_too_heavy(subject, &defaults.spec) {
                    self.loaded.inputs.set_defaults(Arc::new(defaults));
                }
            }
            Kind::ModelProvider => {
                let provider: ModelProvider = self.ours(subject, &value)?;
                if !self.is_too_heavy(subject, &provider.spec) {
                    self.loaded.inputs.set_provider(Arc::new(provider));
                }
            }
            Kind::ClusterToolPolicy => {
                let policy: ClusterToolPolicy = self.ours(subject, &value)?;
                if !self.is_too_heavy(subject, &policy.spec) {
                    self.loaded.inputs.set_policy(Arc::new(policy));
                }
            }
            Kind::Service => {
                let service: Service = typed(subject.kind, &value)?;
                self.loaded
                    .inputs
                    .set_service(key, ServiceFacts::from_object(&service));
            }
            Kind::Secret => self.secret(key, &typed(subject.kind, &value)?),
            Kind::ConfigMap => {
                let config_map: ConfigMap = typed(subject.kind, &value)?;
                let data = config_map.data.unwrap_or_default();
                self.loaded
                    .inputs
                    .set_config_map(key, Presence::Present(data));
            }
            Kind::Namespace => {
                let NamespaceLabels { metadata } = typed(subject.kind, &value)?;
                let labels = metadata.labels.unwrap_or_default();
                self.loaded.inputs.set_namespace(key.name, labels);
            }
        }
        Ok(())
    }

    /// Whether an object is over its budget; reports it.
    fn is_too_heavy(&mut self, subject: &Subject, spec: &impl Serialize) -> bool {
        let Some(reason) = too_heavy(spec) else {
            return false;
        };
        // The compilation of an Agent reports it.
        if subject.kind != Kind::Agent {
            self.found
                .add(subject, "", Code::TooExpensive, reason.clone());
        }
        let inputs = &mut self.loaded.inputs;
        inputs.set_too_expensive(subject.kind, subject.key.clone(), reason);
        true
    }

    /// Decodes an object of one of our kinds, and reports the fields that the API server would
    /// prune.
    fn ours<T: DeserializeOwned + Serialize>(
        &mut self,
        subject: &Subject,
        value: &Value,
    ) -> Result<T, DecodeError> {
        let object: T = typed(subject.kind, value)?;
        let kept = serde_json::to_string(&object)
            .and_then(|text| serde_json::from_str::<Value>(&text))
            .map_err(|error| DecodeError {
                field: String::new(),
                message: error.to_string(),
            })?;
        let mut unknown = Vec::new();
        if let Some(spec) = value.get("spec") {
            pruned(
                spec,
                kept.get("spec").unwrap_or(&Value::Null),
                FieldPath::Member(&FieldPath::Root, "spec"),
                &mut unknown,
            );
        }
        for field in unknown {
            let kind = subject.kind.name();
            let name = field.rsplit('.').next().unwrap_or_default();
            let message = format!(
                "is not a field of {kind}{}, and the API server drops it: correct or remove it",
                near::other(name, toolcrib_crds::known_fields(kind, &field)),
            );
            self.found.add(subject, field, Code::UnknownField, message);
        }
        Ok(object)
    }

    fn secret(&mut self, key: ObjectRef, secret: &Secret) {
        let data = secret.data.iter().flatten();
        let data = data.map(|(name, bytes)| (name, bytes.0.clone()));
        let texts = secret.string_data.iter().flatten();
        let texts = texts.map(|(name, text)| (name, text.clone().into_bytes()));
        // `stringData` wins over `data` under the same name, as in the API server.
        let values: BTreeMap<String, SecretText> = data
            .chain(texts)
            .filter_map(|(name, bytes)| Some((name.clone(), credential_value(bytes)?)))
            .collect();
        let facts = SecretFacts::from_metadata(
            secret.labels(),
            secret.annotations(),
            secret.metadata.uid.as_deref().unwrap_or_default(),
            secret
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default(),
            Some(values.keys().cloned().collect::<BTreeSet<_>>()),
        );
        for (name, value) in values {
            self.loaded
                .secrets
                .insert(SecretKeyRef::new(key.clone(), name), value);
        }
        self.loaded.inputs.set_secret(key, Presence::Present(facts));
    }
}

impl ServiceFacts {
    pub fn from_object(service: &Service) -> Self {
        let spec = service.spec.as_ref();
        Self {
            ports: spec
                .and_then(|spec| spec.ports.as_ref())
                .into_iter()
                .flatten()
                .filter(|port| port.protocol.as_deref().is_none_or(|name| name == "TCP"))
                .filter_map(|port| {
                    let number = u16::try_from(port.port).ok()?;
                    let target = match &port.target_port {
                        Some(IntOrString::String(name)) => PodPort::Name(name.clone()),
                        Some(IntOrString::Int(target)) if *target > 0 => {
                            PodPort::Number(u16::try_from(*target).ok()?)
                        }
                        Some(IntOrString::Int(_)) | None => PodPort::Number(number),
                    };
                    Some((number, target))
                })
                .collect(),
            external_name: spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName"),
            headless: spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None"),
            selector: spec
                .and_then(|spec| spec.selector.clone())
                .unwrap_or_default(),
            addresses: Self::addresses(service),
        }
    }

    /// Returns a Service's cluster addresses; a headless Service has none.
    pub fn addresses(service: &Service) -> BTreeSet<IpAddr> {
        let Some(spec) = &service.spec else {
            return BTreeSet::new();
        };
        let all = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
        all.filter_map(|address| address.parse().ok()).collect()
    }
}

/// Our kinds, as users write them.
const KINDS: [&str; 6] = [
    "Surface",
    "Agent",
    "ToolGrant",
    "ToolDefaults",
    "ModelProvider",
    "ClusterToolPolicy",
];

fn known(api_version: &str, kind: &str) -> Option<Kind> {
    let ours = format!("{GROUP}/{}", toolcrib_crds::VERSION);
    let of_core = |kind| (api_version == "v1").then_some(kind);
    let of_ours = |kind| (api_version == ours).then_some(kind);
    match kind {
        "Surface" => of_ours(Kind::Surface),
        "Agent" => of_ours(Kind::Agent),
        "ToolGrant" => of_ours(Kind::ToolGrant),
        "ToolDefaults" => of_ours(Kind::ToolDefaults),
        "ModelProvider" => of_ours(Kind::ModelProvider),
        "ClusterToolPolicy" => of_ours(Kind::ClusterToolPolicy),
        "Service" => of_core(Kind::Service),
        "Secret" => of_core(Kind::Secret),
        "ConfigMap" => of_core(Kind::ConfigMap),
        "Namespace" => of_core(Kind::Namespace),
        _ => None,
    }
}

/// Decodes through JSON text, since a descriptor is kept as text.
fn typed<T: DeserializeOwned>(kind: Kind, value: &Value) -> Result<T, DecodeError> {
    decode(kind.name(), &value.to_string())
}

/// The part of a Namespace that compile reads.
#[derive(Deserialize)]
struct NamespaceLabels {
    metadata: ObjectLabels,
}

#[derive(Deserialize)]
struct ObjectLabels {
    labels: Option<BTreeMap<String, String>>,
}

/// Collects the paths of fields that `written` has and `kept` lacks. Empty values are not
/// reported.
fn pruned(written: &Value, kept: &Value, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => {
            for (name, value) in written {
                let path = FieldPath::Member(&path, name);
                match kept.get(name) {
                    Some(kept) => pruned(value, kept, path, unknown),
                    None if is_empty(value) => {}
                    None => unknown.push(path.to_string()),
                }
            }
        }
        (Value::Array(written), Value::Array(kept)) => {
            for (index, (written, kept)) in written.iter().zip(kept).enumerate() {
                pruned(written, kept, FieldPath::Item(&path, index), unknown);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objects as _;

    #[test]
    fn secret_values_are_text_without_the_last_newline() {
        let text = r#"
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: pond}
data: {keystore: /u3+7Q==, token: dHJvdXQK, other: cGVyY2g=}
stringData: {other: "carp\r\n"}
"#;
        let loaded = load(
            [("pond.yaml".to_owned(), text.to_owned())],
            Settings::default(),
        );
        assert_eq!(loaded.diagnostics, []);
        let values: Vec<(&str, &str)> = loaded
            .secrets
            .iter()
            .map(|(reference, value)| (&*reference.key, value.expose()))
            .collect();
        assert_eq!(values, [("other", "carp"), ("token", "trout")]);
        let creds = ObjectRef::new("pond", "creds");
        let Presence::Present(facts) = loaded.inputs.secret(&creds) else {
            panic!("it is there");
        };
        let keys = ["other", "token"].map(str::to_owned);
        assert_eq!(facts.keys, Some(keys.into()));
    }
}
