//! The requests of each agent: its own lists and the pod's defaults, with `...` replaced, and the
//! surfaces that its tools and feeds imply.

use indexmap::{IndexMap, IndexSet};

use super::{Lines, Translation};
use crate::authoring::import::finding::{Cause, Findings};
use crate::authoring::import::names::dns_label;
use crate::authoring::import::pod::{
    Allow, Entry, FeedRequest, LineValue, Models, Reach, Service, ToolPolicy, ToolRequest, spread,
};

/// The requests of one agent with defaults applied, and with Kubernetes' names.
pub(in crate::authoring::import) struct AgentRequest<'a> {
    pub name: String,
    pub service: &'a Service,
    pub line: usize,
    pub contract: Option<&'a LineValue<String>>,
    pub skills: Vec<LineValue<String>>,
    pub replicas: u16,
    pub(super) reach: IndexSet<String>,
    /// Tools granted beyond the defaults, by surface in the order of first mention.
    pub(super) tools: Vec<(String, Allow)>,
    pub(super) feeds: Vec<(String, String)>,
    pub(super) takes_defaults: bool,
    pub(super) models: Option<Models>,
    pub(super) policy: Option<ToolPolicy>,
}

impl<'a> Translation<'a> {
    pub(super) fn default_tools(&mut self) -> Vec<(String, Allow, usize)> {
        let wanted = spread(None, self.pod.defaults.tools.as_ref());
        let mut lines = Lines::new();
        let named = wanted.into_iter().map(|request| {
            let surface = self.name(&request.value.service);
            lines.entry(surface.clone()).or_insert(request.line);
            (surface, request.value.allow)
        });
        let united = union(named);
        let with_line = |(surface, allow)| {
            let line = lines[&surface];
            (surface, allow, line)
        };
        united.into_iter().map(with_line).collect()
    }

    pub(super) fn requests(
        &mut self,
        defaults: &[(String, Allow, usize)],
    ) -> Vec<AgentRequest<'a>> {
        let pod = self.pod;
        pod.services
            .iter()
            .filter(|service| service.agent.is_some())
            .filter_map(|service| self.request(service, defaults))
            .collect()
    }

    fn request(
        &mut self,
        service: &'a Service,
        defaults: &[(String, Allow, usize)],
    ) -> Option<AgentRequest<'a>> {
        let agent = service.agent.as_ref()?;
        if !self.is_written(service) {
            return None;
        }
        let shared = &self.pod.defaults;
        let own = &agent.requests;
        let name = self.name(&service.name.value);
        let is_default = |entry: &Entry<LineValue<ToolRequest>>| matches!(entry, Entry::Defaults);
        let takes_defaults = own
            .tools
            .as_ref()
            .is_none_or(|entries| entries.iter().any(is_default));
        let added = spread(own.tools.as_ref(), None);

        let mut reach: IndexSet<String> = IndexSet::new();
        for surface in spread(own.surfaces.as_ref(), shared.surfaces.as_ref()) {
            match surface.value {
                Reach::Service(service) => {
                    reach.insert(self.name(&service));
                }
                Reach::Other(address) => self.found.warning(
                    surface.line,
                    format!("{address} is not translated: only a service can be a surface here, as service://NAME"),
                ),
            }
        }
        let mut imply = |surface: &str, line: usize, found: &mut Findings| {
            if reach.insert(surface.to_owned()) {
                found.note(
                    line,
                    format!(
                        "{name} gets the surface {surface}, since its tools or feeds are there"
                    ),
                );
            }
        };
        if takes_defaults {
            for (surface, _, line) in defaults {
                imply(surface, *line, self.found);
            }
        }
        let names: Vec<(String, usize)> = added
            .iter()
            .map(|request| (self.name(&request.value.service), request.line))
            .collect();
        for (surface, line) in &names {
            imply(surface, *line, self.found);
        }
        let mut feeds = Vec::new();
        for feed in spread(own.feeds.as_ref(), shared.feeds.as_ref()) {
            if let Some((surface, feed_name)) = self.feed(&feed) {
                imply(&surface, feed.line, self.found);
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
        Some(AgentRequest {
            tools: union(
                names
                    .into_iter()
                    .zip(&added)
                    .map(|((surface, _), request)| (surface, request.value.allow.clone())),
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

    /// Returns the surface and name of a feed. A feed that only the pod file describes is added to
    /// its service's descriptor.
    fn feed(&mut self, request: &LineValue<FeedRequest>) -> Option<(String, String)> {
        match &request.value {
            FeedRequest::Named(name) => {
                let mut from = self.feeds.services(name);
                match (from.next(), from.next()) {
                    (Some(service), None) => Some((self.name(service), name.clone())),
                    (None, _) => {
                        self.found.error(
                            request.line,
                            format!("no descriptor has the feed {name}: give the service's with --describe"),
                        );
                        None
                    }
                    (Some(_), Some(_)) => {
                        self.found.error(
                            request.line,
                            format!("several services have the feed {name}: write source: SERVICE with it"),
                        );
                        None
                    }
                }
            }
            FeedRequest::Of {
                service,
                name,
                path,
                ttl,
            } => {
                let surface = self.name(service);
                let known = self.feeds.known(service, name.as_deref(), path.as_deref());
                if let Some(known) = known {
                    return Some((surface, known.to_owned()));
                }
                let added = path.as_ref().and_then(|path| {
                    let name = name
                        .clone()
                        .unwrap_or_else(|| dns_label(path.rsplit('/').next().unwrap_or(path)));
                    let is_added = self.feeds.add(service, &name, path, ttl.unwrap_or(60));
                    is_added.then_some(name)
                });
                let Some(name) = added else {
                    let message = format!(
                        "the feed of {service} is not in its descriptor, or has no path: give the descriptor with --describe {service}=FILE"
                    );
                    if self.feeds.descriptor(service).is_some() {
                        self.found.error(request.line, message);
                    } else {
                        let cause = Cause::Surface(surface);
                        self.found.error_once(request.line, message, cause);
                    }
                    return None;
                };
                self.found.note(
                    request.line,
                    format!("the feed {name} is added to the descriptor of {service}"),
                );
                Some((surface, name))
            }
        }
    }
}

/// Unites the names of each surface. `all` wins; a surface without names is left out.
fn union(requests: impl IntoIterator<Item = (String, Allow)>) -> Vec<(String, Allow)> {
    // `None`: all tools.
    let mut united: IndexMap<String, Option<IndexSet<String>>> = IndexMap::new();
    for (surface, allow) in requests {
        let known = united
            .entry(surface)
            .or_insert_with(|| Some(IndexSet::new()));
        match allow {
            Allow::All => *known = None,
            Allow::Named(more) => {
                if let Some(known) = known {
                    known.extend(more);
                }
            }
        }
    }
    let allow = |names: Option<IndexSet<String>>| match names {
        None => Some(Allow::All),
        Some(names) if names.is_empty() => None,
        Some(names) => Some(Allow::Named(names.into_iter().collect())),
    };
    united
        .into_iter()
        .filter_map(|(surface, names)| Some((surface, allow(names)?)))
        .collect()
}
