//! Translates a pod file to Toolcrib's objects. Pure.
//!
//! The translation:
//!
//! | in the pod file | here |
//! |---|---|
//! | a service that agents use (`surfaces`, `tools`, `feeds`) | Surface |
//! | a service with `x-claw` of an agent | Agent, and one ToolGrant for its own additions |
//! | `tools-defaults` | ToolDefaults; an agent whose `tools` has no `...` excludes them |
//! | `cllama-env`, the providers of `models` | ModelProvider |
//! | a variable in `environment` | a key of a Secret, without its value |
//! | a service's `image`, `expose` | Deployment, Service |
//!
//! Reading order: [`feeds`] (the feeds of all descriptors), [`requests`] (the requests of each
//! agent), [`surfaces`], [`providers`], [`agents`] (with their grants). Not here: reading files,
//! and whether the objects compile.
//!
//! Invariants: the value of a variable is written only to a Secret, and only on request. An
//! agent's container gets no key that its mediator holds. Every part that is dropped has a
//! finding. The work is linear in the pod file, once each agent has its defaults.

mod feeds;
mod requests;
mod workloads;

mod agents;
mod providers;
mod surfaces;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde_json::{Value, json};

use crate::print::Document;

use super::ImportOptions;
use super::file::File;
use super::finding::Findings;
use super::names::dns_label;
use super::pod::{PodFile, Service};
use super::secrets::Secrets;
use super::variables::Values;
use feeds::Feeds;
pub(super) use requests::AgentRequest;

pub fn translate(pod: &PodFile, given: &ImportOptions, found: &mut Findings) -> Vec<File> {
    if given.namespace.is_none() && pod.name.is_none() {
        found.note(
            0,
            "the file names no pod: the namespace is default; choose another with --namespace",
        );
    }
    let namespace = namespace(pod, given.namespace.as_deref());
    if let (None, Some(name)) = (&given.namespace, &pod.name)
        && name.value != namespace
    {
        let note = format!(
            "the pod {:?} is the namespace {namespace}: Kubernetes allows a-z, 0-9 and -",
            name.value
        );
        found.note(name.line, note);
    }
    let mut translation = Translation {
        pod,
        given,
        found,
        namespace,
        names: BTreeMap::new(),
        services: BTreeMap::new(),
        credential_variables: credential_variables(&given.descriptors),
        feeds: Feeds::new(given.descriptors.clone()),
        mountable: workloads::MAX_MOUNTED,
        secrets: Secrets::default(),
    };
    translation.names();
    let defaults = translation.default_tools();
    let requests = translation.requests(&defaults);
    let surfaces = translation.surfaces_in_use(&requests, &defaults);

    let surface_documents: Vec<Document> = surfaces
        .iter()
        .filter_map(|(name, line)| translation.surface(name, *line))
        .collect();
    let providers = translation.providers(&requests);
    let mut grants = Vec::new();
    if !defaults.is_empty() {
        grants.push(translation.tool_defaults(&defaults));
    }
    grants.extend(
        requests
            .iter()
            .filter_map(|request| translation.grant(request)),
    );
    let agents: Vec<Document> = requests
        .iter()
        .map(|request| translation.agent(request))
        .collect();
    let services = workloads::services(&mut translation, &surfaces);
    let pods = workloads::agents(&mut translation, &requests);
    let secrets = translation.secrets.documents(
        &translation.namespace,
        &given.values,
        given.secret_values,
        translation.found,
    );
    let namespace = Document::new(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": translation.namespace},
    }))
    .with_comment("Users who may create pods here may run any of its agents.");
    let secrets_about = match given.secret_values {
        super::SecretValues::Placeholders => {
            "Credentials, without their values: export the variables, then `envsubst < 10-secrets.yaml | kubectl apply -f -`; or make these Secrets in your own way, with the same labels and annotations."
        }
        super::SecretValues::Written => "Credentials with their values: do not commit this file.",
    };
    [
        ("00-namespace.yaml", "Imported from a pod file.", vec![namespace]),
        ("10-secrets.yaml", secrets_about, secrets),
        (
            "20-services.yaml",
            "The services, as Compose ran them.",
            services,
        ),
        (
            "30-models.yaml",
            "The model providers; agents never hold their keys.",
            providers,
        ),
        (
            "40-surfaces.yaml",
            "What the services offer, and how the mediator reaches them.",
            surface_documents,
        ),
        (
            "50-agents.yaml",
            "Identities, and what each may reach at all. That is not yet being allowed to call anything there.",
            agents,
        ),
        (
            "60-grants.yaml",
            "Who may call what. Grants only add, and taking one away takes its tools away.",
            grants,
        ),
        (
            "70-pods.yaml",
            "The agents' programs. The label makes a pod its agent; neither key nor address is in it.",
            pods,
        ),
    ]
    .into_iter()
    .filter(|(_, _, documents)| !documents.is_empty())
    .map(|(name, about, documents)| File {
        name,
        about,
        documents,
    })
    .collect()
}

/// Returns the requested namespace, else the pod's name.
pub fn namespace(pod: &PodFile, asked: Option<&str>) -> String {
    match (asked, &pod.name) {
        (Some(namespace), _) => namespace.to_owned(),
        (None, Some(name)) => dns_label(&name.value),
        (None, None) => "default".to_owned(),
    }
}

pub(super) struct Translation<'a> {
    pub pod: &'a PodFile,
    pub given: &'a ImportOptions,
    pub found: &'a mut Findings,
    pub namespace: String,
    /// Name in the pod file → name in Kubernetes.
    names: BTreeMap<String, String>,
    /// Services by their name in Kubernetes.
    services: BTreeMap<String, &'a Service>,
    /// Variables that hold a credential of some mediator.
    pub credential_variables: BTreeSet<String>,
    feeds: Feeds,
    /// Bytes that may still be mounted from files of agents.
    pub mountable: usize,
    pub secrets: Secrets,
}

/// Surfaces in the order of their first mention, each with the line that mentions it.
pub(super) type Lines = IndexMap<String, usize>;

fn credential_variables(descriptors: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let variables = descriptors.values().map(|it| &it["auth"]["env"]);
    variables
        .filter_map(|variable| variable.as_str().map(String::from))
        .collect()
}

impl<'a> Translation<'a> {
    fn names(&mut self) {
        let pod = self.pod;
        for service in &pod.services {
            let written = &service.name.value;
            let name = dns_label(written);
            if name != *written {
                self.found.note(
                    service.name.line,
                    format!("{written} is called {name}: Kubernetes allows a-z, 0-9 and -"),
                );
            }
            match self.services.entry(name.clone()) {
                Entry::Vacant(place) => {
                    place.insert(service);
                }
                Entry::Occupied(first) => self.found.error(
                    service.name.line,
                    format!(
                        "{written} and {} would both be called {name}: rename one; nothing is written for {written}",
                        first.get().name.value
                    ),
                ),
            }
            self.names.insert(written.clone(), name);
        }
    }

    pub fn name(&self, written: &str) -> String {
        self.names
            .get(written)
            .cloned()
            .unwrap_or_else(|| dns_label(written))
    }

    /// True if the service gets objects: of two services with the same name only the first does.
    pub fn is_written(&self, service: &Service) -> bool {
        let written = self.service(&self.name(&service.name.value));
        written.is_some_and(|written| std::ptr::eq(written, service))
    }

    pub fn service(&self, name: &str) -> Option<&'a Service> {
        self.services.get(name).copied()
    }

    fn object(&self, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        })
    }

    pub fn values(&self) -> &'a Values {
        &self.given.values
    }
}
