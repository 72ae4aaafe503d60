//! Services that agents use, as Surfaces: their addresses, their descriptors, and the credentials
//! that the descriptors ask for.

use serde_json::{Value, json};

use super::requests::AgentRequest;
use super::{Lines, Translation};
use crate::authoring::import::finding::{Cause, Weight};
use crate::authoring::import::pod::{Allow, Service};
use crate::authoring::wrapped;
use crate::print::Document;

impl Translation<'_> {
    /// Returns every service that an agent names or that has a descriptor: first the services of
    /// the file in its order with their own lines, then all others with the line that names them.
    pub(super) fn surfaces_in_use(
        &self,
        requests: &[AgentRequest<'_>],
        defaults: &[(String, Allow, usize)],
    ) -> Lines {
        let mut used = Lines::new();
        let asked = requests
            .iter()
            .flat_map(|request| {
                request
                    .reach
                    .iter()
                    .map(|surface| (surface.clone(), request.line))
            })
            .chain(
                defaults
                    .iter()
                    .map(|(surface, _, line)| (surface.clone(), *line)),
            );
        let described = self
            .feeds
            .described()
            .map(|service| (self.name(service), 0));
        for (surface, line) in asked.chain(described) {
            used.entry(surface).or_insert(line);
        }
        let mut ordered = Lines::new();
        for service in &self.pod.services {
            let name = self.name(&service.name.value);
            if used.contains_key(&name) {
                ordered.entry(name).or_insert(service.name.line);
            }
        }
        for (name, line) in used {
            ordered.entry(name).or_insert(line);
        }
        ordered
    }

    pub(super) fn surface(&mut self, name: &str, line: usize) -> Option<Document> {
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
        let unwritten = Cause::Surface(name.to_owned());
        if service.is_none() && existing.is_none() {
            self.found.add_cause(
                line,
                Weight::Error,
                format!("{name} is none of the file's services: give its Service with -f, so that its port is known"),
                unwritten,
            );
            return None;
        }
        let Some(port) = port else {
            let refused = Cause::Port(name.to_owned());
            if !self.found.has_effect(&refused, unwritten.clone()) {
                self.found.add_cause(
                    line,
                    Weight::Error,
                    format!("no port of {name} is known: write expose: [\"PORT\"] on the service"),
                    unwritten,
                );
            }
            return None;
        };
        let mut spec = json!({"service": {"name": name, "port": port}});
        let written = service.map_or(name, |service| service.name.value.as_str());
        let descriptor = self.feeds.descriptor(written).cloned();
        let mut document_comments = Vec::new();
        let described = descriptor
            .as_ref()
            .and_then(|descriptor| descriptor.get("auth"))
            .filter(|auth| auth["type"] != "none");
        let is_wrapped = service.is_some_and(|service| service.mcp_stdio.is_some());
        if is_wrapped {
            spec["auth"] = self.wrapper_auth(name);
            if described.is_some() {
                self.found.note(
                    line,
                    format!("{name}: the descriptor's auth is not used, since its wrapper asks for a token of its own"),
                );
            }
        } else if let Some(auth) = described {
            spec["auth"] = self.auth(name, auth, service);
            document_comments.push(format!(
                "Every agent calls {name} with this one credential; agents get one of their own in spec.auth.perAgent."
            ));
        }
        match descriptor {
            Some(descriptor) => {
                if is_wrapped && descriptor.get("mcp").is_none() {
                    spec["mcp"] = json!({"path": wrapped::PATH});
                }
                spec["descriptor"] = descriptor;
            }
            None => self.found.error_once(
                line,
                format!("{name} has no descriptor here (claw up takes it from the image): write it to a file and give --describe {written}=FILE"),
                unwritten,
            ),
        }
        let mut document = Document::new(self.object("Surface", name, spec));
        document.comments = document_comments;
        Some(document)
    }

    /// Returns `spec.auth` of a program behind the wrapper, and adds its Secret.
    fn wrapper_auth(&mut self, name: &str) -> Value {
        let secret = wrapped::token_secret(name);
        let host = wrapped::host(name, &self.namespace);
        self.secrets
            .credential(&secret, &host, wrapped::TOKEN_KEY, None);
        wrapped::auth(name)
    }

    /// Returns `spec.auth` by the descriptor's `auth`, and adds its Secret.
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
            // Compile reports the fault.
            _ => json!({"secretKeyRef": {"name": secret, "key": keys[0]}}),
        }
    }
}
