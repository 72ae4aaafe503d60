//! A pod file into Toolcrib's objects. Pure.
//!
//! What becomes what:
//!
//! | in the pod file | here |
//! |---|---|
//! | a service that agents use (`surfaces`, `tools`, `feeds`) | Surface |
//! | a service with `x-claw` of an agent | Agent, and one ToolGrant of what it adds |
//! | `tools-defaults` | ToolDefaults; an agent whose `tools` has no `...` excludes them |
//! | `cllama-env`, the providers of `models` | ModelProvider |
//! | a variable in `environment` | a key of a Secret, without its value |
//! | a service's `image`, `expose` | Deployment, Service |
//!
//! Not here: reading files, and whether the objects compile.
//!
//! Invariants: no value of a variable leaves but in a Secret that was asked for with its
//! values; an agent's container gets no key that its mediator holds; nothing is dropped
//! without a finding.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::print::Document;

use super::file::File;
use super::finding::Findings;
use super::pod::{Allow, At, FeedWish, Models, PodFile, Reach, Service, ToolPolicy, spread};
use super::providers::KnownProvider;
use super::secrets::Secrets;
use super::variables::Values;
use super::{Given, workloads};

/// What one agent asks for, defaults applied, names as Kubernetes has them.
pub(super) struct Wish<'a> {
    pub name: String,
    pub service: &'a Service,
    pub line: usize,
    pub contract: Option<&'a At<String>>,
    pub skills: Vec<At<String>>,
    pub replicas: u16,
    reach: Vec<String>,
    /// What it is granted besides the defaults, by surface in the order of first mention.
    tools: Vec<(String, Allow)>,
    feeds: Vec<(String, String)>,
    takes_defaults: bool,
    models: Option<Models>,
    policy: Option<ToolPolicy>,
}

pub fn translate(pod: &PodFile, given: &Given, found: &mut Findings) -> Vec<File> {
    if given.namespace.is_none() && pod.name.is_none() {
        found.note(
            0,
            "the file names no pod: the namespace is default; choose another with --namespace",
        );
    }
    let namespace = namespace(pod, given.namespace.as_deref());
    let mut translation = Translation {
        pod,
        given,
        found,
        namespace,
        names: BTreeMap::new(),
        descriptors: given.descriptors.clone(),
        secrets: Secrets::default(),
    };
    translation.names();
    let defaults = translation.default_tools();
    let wishes = translation.wishes(&defaults);
    let surfaces = translation.surfaces_in_use(&wishes, &defaults);

    let surface_documents: Vec<Document> = surfaces
        .iter()
        .filter_map(|(name, line)| translation.surface(name, *line))
        .collect();
    let providers = translation.providers(&wishes);
    let mut grants = Vec::new();
    if !defaults.is_empty() {
        grants.push(translation.tool_defaults(&defaults));
    }
    grants.extend(wishes.iter().filter_map(|wish| translation.grant(wish)));
    let agents: Vec<Document> = wishes.iter().map(|wish| translation.agent(wish)).collect();
    let services = workloads::services(&mut translation, &surfaces);
    let pods = workloads::agents(&mut translation, &wishes);
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
    .said("Whoever may create pods here may be any of its agents.");
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

/// The one that was asked for, else the pod's name.
pub fn namespace(pod: &PodFile, asked: Option<&str>) -> String {
    match (asked, &pod.name) {
        (Some(namespace), _) => namespace.to_owned(),
        (None, Some(name)) => dns_label(&name.value),
        (None, None) => "default".to_owned(),
    }
}

pub(super) struct Translation<'a> {
    pub pod: &'a PodFile,
    pub given: &'a Given,
    pub found: &'a mut Findings,
    pub namespace: String,
    /// Name in the pod file → name in Kubernetes.
    names: BTreeMap<String, String>,
    /// By the name in the pod file.
    descriptors: BTreeMap<String, Value>,
    pub secrets: Secrets,
}

impl<'a> Translation<'a> {
    fn names(&mut self) {
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        for service in &self.pod.services {
            let written = &service.name.value;
            let name = dns_label(written);
            if name != *written {
                self.found.note(
                    service.name.line,
                    format!("{written} is called {name}: Kubernetes allows a-z, 0-9 and -"),
                );
            }
            if let Some(other) = taken.insert(name.clone(), written) {
                self.found.error(
                    service.name.line,
                    format!("{written} and {other} would both be called {name}: rename one"),
                );
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

    pub fn service(&self, name: &str) -> Option<&'a Service> {
        self.pod
            .services
            .iter()
            .find(|service| self.name(&service.name.value) == name)
    }

    fn default_tools(&mut self) -> Vec<(String, Allow, usize)> {
        let wanted = spread(None, self.pod.defaults.tools.as_ref());
        let line = |surface: &str| {
            wanted
                .iter()
                .find(|wish| self.name(&wish.value.service) == surface)
                .map_or(0, |wish| wish.line)
        };
        union(
            wanted
                .iter()
                .map(|wish| (self.name(&wish.value.service), wish.value.allow.clone())),
        )
        .into_iter()
        .map(|(surface, allow)| {
            let line = line(&surface);
            (surface, allow, line)
        })
        .collect()
    }

    fn wishes(&mut self, defaults: &[(String, Allow, usize)]) -> Vec<Wish<'a>> {
        let pod = self.pod;
        pod.services
            .iter()
            .filter(|service| service.agent.is_some())
            .filter_map(|service| self.wish(service, defaults))
            .collect()
    }

    fn wish(
        &mut self,
        service: &'a Service,
        defaults: &[(String, Allow, usize)],
    ) -> Option<Wish<'a>> {
        let agent = service.agent.as_ref()?;
        let shared = &self.pod.defaults;
        let own = &agent.wishes;
        let name = self.name(&service.name.value);
        let is_default = |entry: &super::pod::Entry<At<super::pod::ToolWish>>| {
            matches!(entry, super::pod::Entry::Defaults)
        };
        let takes_defaults = own
            .tools
            .as_ref()
            .is_none_or(|entries| entries.iter().any(is_default));
        let added = spread(own.tools.as_ref(), None);

        let mut reach: Vec<String> = Vec::new();
        for surface in spread(own.surfaces.as_ref(), shared.surfaces.as_ref()) {
            match surface.value {
                Reach::Service(service) => {
                    let surface = self.name(&service);
                    if !reach.contains(&surface) {
                        reach.push(surface);
                    }
                }
                Reach::Other(address) => self.found.warning(
                    surface.line,
                    format!("{address} is not translated: only services are surfaces here"),
                ),
            }
        }
        let mut imply = |surface: &str, line: usize, found: &mut Findings| {
            if !reach.iter().any(|known| known == surface) {
                found.note(
                    line,
                    format!(
                        "{name} gets the surface {surface}, since its tools or feeds are there"
                    ),
                );
                reach.push(surface.to_owned());
            }
        };
        if takes_defaults {
            for (surface, _, line) in defaults {
                imply(surface, *line, self.found);
            }
        }
        let names: Vec<(String, usize)> = added
            .iter()
            .map(|wish| (self.name(&wish.value.service), wish.line))
            .collect();
        for (surface, line) in &names {
            imply(surface, *line, self.found);
        }
        let mut feeds = Vec::new();
        for feed in spread(own.feeds.as_ref(), shared.feeds.as_ref()) {
            if let Some((surface, feed_name)) = self.feed(&feed) {
                if !reach.contains(&surface) {
                    self.found.note(
                        feed.line,
                        format!(
                            "{name} gets the surface {surface}, since its tools or feeds are there"
                        ),
                    );
                    reach.push(surface.clone());
                }
                feeds.push((surface, feed_name));
            }
        }

        let has_tools = !added.is_empty() || (takes_defaults && !defaults.is_empty());
        let cllama = own.cllama.as_ref().or(shared.cllama.as_ref());
        match cllama {
            None if has_tools => self.found.note(
                agent.line,
                format!("{name} has tools and no cllama, which claw up refuses: here each agent has a mediator"),
            ),
            None => {}
            Some(kinds) => {
                for kind in kinds.value.iter().filter(|kind| *kind != "passthrough") {
                    self.found.warning(
                        kinds.line,
                        format!("cllama: {kind} is not translated: the mediator is what passthrough is"),
                    );
                }
            }
        }
        Some(Wish {
            tools: union(
                names
                    .into_iter()
                    .zip(&added)
                    .map(|((surface, _), wish)| (surface, wish.value.allow.clone())),
            ),
            skills: spread(own.skills.as_ref(), shared.skills.as_ref()),
            replicas: agent.replicas.as_ref().map_or(1, |count| count.value),
            contract: agent.contract.as_ref(),
            models: own
                .models
                .as_ref()
                .or(shared.models.as_ref())
                .map(|at| at.value.clone()),
            policy: own.policy.clone().or_else(|| shared.policy.clone()),
            line: agent.line,
            name,
            service,
            reach,
            feeds,
            takes_defaults,
        })
    }

    /// The surface and name of a feed; one that only the pod file describes is added to its
    /// service's descriptor.
    fn feed(&mut self, wish: &At<FeedWish>) -> Option<(String, String)> {
        match &wish.value {
            FeedWish::Named(name) => {
                let has = |descriptor: &Value| {
                    feeds_of(descriptor).any(|feed| feed["name"] == name.as_str())
                };
                let from: Vec<&String> = self
                    .descriptors
                    .iter()
                    .filter(|(_, descriptor)| has(descriptor))
                    .map(|(service, _)| service)
                    .collect();
                match from.as_slice() {
                    [service] => Some((self.name(service), name.clone())),
                    [] => {
                        self.found.error(
                            wish.line,
                            format!("no descriptor has the feed {name}: give the service's with --describe"),
                        );
                        None
                    }
                    [_, _, ..] => {
                        self.found.error(
                            wish.line,
                            format!("several services have the feed {name}: write source: SERVICE with it"),
                        );
                        None
                    }
                }
            }
            FeedWish::Of {
                service,
                name,
                path,
                ttl,
            } => {
                let surface = self.name(service);
                let descriptor = self.descriptors.get_mut(service);
                let known = descriptor.as_ref().and_then(|descriptor| {
                    feeds_of(descriptor)
                        .find(|feed| {
                            name.as_ref()
                                .is_some_and(|name| feed["name"] == name.as_str())
                                || path
                                    .as_ref()
                                    .is_some_and(|path| feed["path"] == path.as_str())
                        })
                        .and_then(|feed| feed["name"].as_str().map(String::from))
                });
                if let Some(known) = known {
                    return Some((surface, known));
                }
                let (Some(Value::Object(descriptor)), Some(path)) = (descriptor, path) else {
                    self.found.error(
                        wish.line,
                        format!("the feed of {service} is not in its descriptor, or has no path: give the descriptor with --describe {service}=FILE"),
                    );
                    return None;
                };
                let name = name
                    .clone()
                    .unwrap_or_else(|| dns_label(path.rsplit('/').next().unwrap_or(path)));
                let feed = json!({"name": name, "path": path, "ttl": ttl.unwrap_or(60)});
                if let Some(feeds) = descriptor
                    .entry("feeds")
                    .or_insert_with(|| json!([]))
                    .as_array_mut()
                {
                    feeds.push(feed);
                }
                self.found.note(
                    wish.line,
                    format!("the feed {name} is added to the descriptor of {service}"),
                );
                Some((surface, name))
            }
        }
    }

    /// Every service that somebody may reach or that describes itself; with the line that
    /// says so.
    fn surfaces_in_use(
        &self,
        wishes: &[Wish<'_>],
        defaults: &[(String, Allow, usize)],
    ) -> Vec<(String, usize)> {
        let mut used: Vec<(String, usize)> = Vec::new();
        let asked = wishes
            .iter()
            .flat_map(|wish| {
                wish.reach
                    .iter()
                    .map(|surface| (surface.clone(), wish.line))
            })
            .chain(
                defaults
                    .iter()
                    .map(|(surface, _, line)| (surface.clone(), *line)),
            );
        let described = self
            .descriptors
            .keys()
            .map(|service| (self.name(service), 0));
        for (surface, line) in asked.chain(described) {
            if !used.iter().any(|(known, _)| *known == surface) {
                used.push((surface, line));
            }
        }
        // The service's own line is the better one, and its order in the file.
        let mut ordered: Vec<(String, usize)> = Vec::new();
        for service in &self.pod.services {
            let name = self.name(&service.name.value);
            if used.iter().any(|(known, _)| *known == name) {
                ordered.push((name, service.name.line));
            }
        }
        for (name, line) in used {
            if !ordered.iter().any(|(known, _)| *known == name) {
                ordered.push((name, line));
            }
        }
        ordered
    }

    fn surface(&mut self, name: &str, line: usize) -> Option<Document> {
        if self.given.existing.surfaces.contains(name) {
            return None;
        }
        let service = self.service(name);
        let existing = self.given.existing.services.get(name);
        let port = match (service.and_then(|service| service.ports.first()), existing) {
            (_, Some(port)) => *port,
            (Some(port), None) => Some(port.value),
            (None, None) => None,
        };
        if service.is_none() && existing.is_none() {
            self.found.error(
                line,
                format!("{name} is none of the file's services: give its Service with -f, so that its port is known"),
            );
            return None;
        }
        let Some(port) = port else {
            self.found.error(
                line,
                format!("no port of {name} is known: write expose: [\"PORT\"] on the service"),
            );
            return None;
        };
        let mut spec = json!({"service": {"name": name, "port": port}});
        let written = service.map_or(name, |service| service.name.value.as_str());
        let descriptor = self.descriptors.get(written).cloned();
        let mut document_comments = Vec::new();
        if let Some(auth) = descriptor
            .as_ref()
            .and_then(|descriptor| descriptor.get("auth"))
        {
            spec["auth"] = self.auth(name, auth, service);
            document_comments.push(format!(
                "Every agent calls {name} with this one credential; agents get one of their own in spec.auth.perAgent."
            ));
        }
        match descriptor {
            Some(descriptor) => {
                let wants_mcp = service.is_some_and(|service| service.mcp_stdio.is_some())
                    && descriptor.get("mcp").is_none();
                if wants_mcp {
                    spec["mcp"] = json!({"path": "/mcp"});
                }
                spec["descriptor"] = descriptor;
            }
            None => self.found.error(
                line,
                format!("{name} has no descriptor here (claw up takes it from the image): write it to a file and give --describe {written}=FILE"),
            ),
        }
        let mut document = Document::new(self.object("Surface", name, spec));
        document.comments = document_comments;
        Some(document)
    }

    /// `spec.auth` by what the descriptor says, and the Secret that it names.
    fn auth(&mut self, name: &str, auth: &Value, service: Option<&Service>) -> Value {
        let kind = auth["type"].as_str().unwrap_or("bearer");
        let keys: Vec<String> = match kind {
            "basic" => vec!["username".to_owned(), "password".to_owned()],
            _ => vec![auth["env"].as_str().unwrap_or("token").to_owned()],
        };
        let secret = format!("{name}-credential");
        let host = format!("{name}.{}.svc", self.namespace);
        for key in &keys {
            let from = service.and_then(|service| {
                service
                    .environment
                    .iter()
                    .find(|(variable, _)| variable == key)
                    .map(|(_, value)| value)
            });
            self.secrets.credential(&secret, &host, key, from);
        }
        match kind {
            "basic" => json!({"type": "Basic", "secretKeyRef": {"name": secret}}),
            "header" => {
                let mut spec =
                    json!({"type": "Header", "secretKeyRef": {"name": secret, "key": keys[0]}});
                if let Some(header) = auth["header"].as_str() {
                    spec["headerName"] = header.into();
                }
                spec
            }
            "bearer" => json!({"type": "Bearer", "secretKeyRef": {"name": secret, "key": keys[0]}}),
            // compile says what is wrong with it.
            _ => json!({"secretKeyRef": {"name": secret, "key": keys[0]}}),
        }
    }

    fn providers(&mut self, wishes: &[Wish<'_>]) -> Vec<Document> {
        let mut wanted: BTreeMap<KnownProvider, Option<At<super::variables::Template>>> =
            BTreeMap::new();
        let pod = self.pod;
        let env = wishes
            .iter()
            .filter_map(|wish| wish.service.agent.as_ref())
            .flat_map(|agent| &agent.wishes.cllama_env)
            .chain(&pod.defaults.cllama_env);
        for (variable, value) in env {
            match KnownProvider::by_variable(variable) {
                Some(provider) => {
                    wanted
                        .entry(provider)
                        .or_default()
                        .get_or_insert_with(|| value.clone());
                }
                None => self.found.warning(
                    value.line,
                    format!("cllama-env: {variable} is not translated: it is no known provider's key; write a ModelProvider by hand if it is one"),
                ),
            }
        }
        let mut unknown = BTreeSet::new();
        for wish in wishes {
            for reference in wish.models.iter().flat_map(refs) {
                let name = reference.split('/').next().unwrap_or_default();
                match KnownProvider::by_name(name) {
                    _ if self.given.existing.providers.contains(name) => {}
                    Some(provider) => {
                        wanted.entry(provider).or_default();
                    }
                    None if unknown.insert(name.to_owned()) => self.found.error(
                        wish.line,
                        format!("the provider {name} of model {reference} is not known: write a ModelProvider of that name and give it with -f"),
                    ),
                    None => {}
                }
            }
        }
        for provider in &self.given.providers {
            wanted.entry(*provider).or_default();
        }
        if wanted.is_empty() && self.given.existing.providers.is_empty() {
            for provider in KnownProvider::ALL {
                if self.given.values.contains_key(provider.variable()) {
                    self.found.note(
                        0,
                        format!(
                            "the model provider is {}, since the .env file has {}",
                            provider.name(),
                            provider.variable()
                        ),
                    );
                    wanted.insert(provider, None);
                }
            }
        }
        if wanted.is_empty() && self.given.existing.providers.is_empty() && !wishes.is_empty() {
            self.found.note(
                0,
                "no model provider is named: give --provider, or cllama-env in the file, or an .env file with its key",
            );
        }
        wanted
            .into_iter()
            .filter(|(provider, _)| !self.given.existing.providers.contains(provider.name()))
            .map(|(provider, value)| {
                let secret = format!("{}-key", provider.name());
                self.secrets.credential(
                    &secret,
                    provider.host(),
                    provider.variable(),
                    value.as_ref(),
                );
                let spec = json!({
                    "endpoints": provider.endpoints(),
                    "apiKeys": [{"secretKeyRef": {"name": secret, "key": provider.variable()}}],
                });
                Document::new(self.object("ModelProvider", provider.name(), spec))
            })
            .collect()
    }

    fn tool_defaults(&self, defaults: &[(String, Allow, usize)]) -> Document {
        let tools: Vec<Value> = defaults
            .iter()
            .map(|(surface, allow, _)| rule(surface, allow))
            .collect();
        Document::new(self.object("ToolDefaults", "default", json!({"tools": tools})))
            .said("tools-defaults: for every agent here that does not exclude them.")
    }

    fn agent(&self, wish: &Wish<'_>) -> Document {
        let surfaces: Vec<Value> = wish
            .reach
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut spec = json!({});
        if !surfaces.is_empty() {
            spec["surfaces"] = surfaces.into();
        }
        if !wish.takes_defaults && self.pod.defaults.tools.is_some() {
            spec["toolDefaults"] = "Exclude".into();
        }
        if let Some(models) = &wish.models {
            spec["models"] = models_of(models);
        }
        if let Some(policy) = &wish.policy {
            spec["policy"] = policy_of(policy);
        }
        Document::new(self.object("Agent", &wish.name, spec))
    }

    fn grant(&self, wish: &Wish<'_>) -> Option<Document> {
        if wish.tools.is_empty() && wish.feeds.is_empty() {
            return None;
        }
        let tools: Vec<Value> = wish
            .tools
            .iter()
            .map(|(surface, allow)| rule(surface, allow))
            .collect();
        let mut feeds: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
        for (surface, feed) in &wish.feeds {
            let names = feeds.entry(surface).or_default();
            if !names.contains(&feed) {
                names.push(feed);
            }
        }
        let feeds: Vec<Value> = feeds
            .into_iter()
            .map(|(surface, allow)| json!({"surface": {"name": surface}, "allow": allow}))
            .collect();
        let mut spec = json!({"agents": [wish.name]});
        for (field, rules) in [("tools", tools), ("feeds", feeds)] {
            if !rules.is_empty() {
                spec[field] = rules.into();
            }
        }
        Some(Document::new(self.object("ToolGrant", &wish.name, spec)))
    }

    fn object(&self, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "toolcrib.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        })
    }

    /// Variables that some mediator's credential stands in.
    pub fn credential_variables(&self) -> BTreeSet<String> {
        self.descriptors
            .values()
            .filter_map(|descriptor| descriptor["auth"]["env"].as_str().map(String::from))
            .collect()
    }

    pub fn values(&self) -> &'a Values {
        &self.given.values
    }
}

fn rule(surface: &str, allow: &Allow) -> Value {
    let allow = match allow {
        Allow::All => json!(["*"]),
        Allow::Named(names) => json!(names),
    };
    json!({"surface": {"name": surface}, "allow": allow})
}

/// `all` wins, else names are united; nothing named is nothing.
fn union(wishes: impl IntoIterator<Item = (String, Allow)>) -> Vec<(String, Allow)> {
    let mut united: Vec<(String, Allow)> = Vec::new();
    for (surface, allow) in wishes {
        match united.iter_mut().find(|(known, _)| *known == surface) {
            None => united.push((surface, allow)),
            Some((_, known)) => match (&mut *known, allow) {
                (Allow::All, _) => {}
                (known, Allow::All) => *known = Allow::All,
                (Allow::Named(known), Allow::Named(more)) => {
                    for name in more {
                        if !known.contains(&name) {
                            known.push(name);
                        }
                    }
                }
            },
        }
    }
    united.retain(|(_, allow)| *allow != Allow::Named(Vec::new()));
    united
}

fn refs(models: &Models) -> impl Iterator<Item = &String> {
    models
        .primary
        .iter()
        .chain(&models.fallbacks)
        .chain(&models.others)
}

/// Every slot may be asked for: that is what naming one means there.
fn models_of(models: &Models) -> Value {
    let mut allowed: Vec<&String> = Vec::new();
    for reference in refs(models) {
        if !allowed.contains(&reference) {
            allowed.push(reference);
        }
    }
    let mut spec = json!({"allowed": allowed});
    if let Some(primary) = &models.primary {
        spec["default"] = primary.as_str().into();
    }
    if !models.fallbacks.is_empty() {
        spec["fallbacks"] = json!(models.fallbacks);
    }
    spec
}

fn policy_of(policy: &ToolPolicy) -> Value {
    let mut spec = json!({});
    let milliseconds = |number: u64| match number % 1000 {
        0 => format!("{}s", number / 1000),
        _ => format!("{number}ms"),
    };
    if let Some(rounds) = policy.max_rounds {
        spec["maxRounds"] = rounds.into();
    }
    if let Some(timeout) = policy.tool_timeout_ms {
        spec["toolTimeout"] = milliseconds(timeout).into();
    }
    if let Some(timeout) = policy.total_timeout_ms {
        spec["totalTimeout"] = milliseconds(timeout).into();
    }
    if let Some(bytes) = policy.max_tool_result_bytes {
        spec["maxToolResultBytes"] = bytes.into();
    }
    spec
}

fn feeds_of(descriptor: &Value) -> impl Iterator<Item = &Value> {
    descriptor["feeds"].as_array().into_iter().flatten()
}

/// A DNS label made of `written`: what Kubernetes takes as a name.
pub fn dns_label(written: &str) -> String {
    let mut name: String = written
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(63)
        .collect();
    name = name.trim_matches('-').to_owned();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}
