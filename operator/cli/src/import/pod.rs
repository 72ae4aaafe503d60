//! A Clawdapus pod file as it is written: services, agents, and what the agents ask for.
//!
//! Here: its shape, and a finding for every part that has no place in it. Not here: what it
//! becomes. Defaults are not applied yet, since a `...` is part of what was written.

use super::finding::Findings;
use super::variables::Template;
use super::yaml::{Node, Value};

/// A value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    pub line: usize,
    pub value: T,
}

impl<T> At<T> {
    pub fn new(line: usize, value: T) -> Self {
        Self { line, value }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PodFile {
    pub name: Option<At<String>>,
    /// The `*-defaults` of the file, as a service without anything of its own has them.
    pub defaults: Wishes,
    pub services: Vec<Service>,
}

#[derive(Clone, Debug)]
pub struct Service {
    pub name: At<String>,
    pub image: Option<At<Template>>,
    pub entrypoint: Option<Vec<Template>>,
    pub command: Option<Vec<Template>>,
    pub environment: Vec<(String, At<Template>)>,
    /// Container ports, from `expose`, then `ports`.
    pub ports: Vec<At<u16>>,
    pub user: Option<At<String>>,
    pub describe_file: Option<At<String>>,
    pub mcp_stdio: Option<At<Vec<String>>>,
    /// `None`: no agent.
    pub agent: Option<AgentBlock>,
}

/// What makes a service an agent.
#[derive(Clone, Debug)]
pub struct AgentBlock {
    pub line: usize,
    pub contract: Option<At<String>>,
    pub replicas: Option<At<u16>>,
    pub wishes: Wishes,
}

/// What may be declared for one agent and as the file's default. `None`: not declared.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub cllama: Option<At<Vec<String>>>,
    pub cllama_env: Vec<(String, At<Template>)>,
    pub surfaces: Option<Vec<Entry<At<Reach>>>>,
    pub tools: Option<Vec<Entry<At<ToolWish>>>>,
    pub feeds: Option<Vec<Entry<At<FeedWish>>>>,
    pub skills: Option<Vec<Entry<At<String>>>>,
    pub models: Option<At<Models>>,
    pub policy: Option<ToolPolicy>,
}

/// An entry of a list that may take over the file's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    /// `...`
    Defaults,
    Own(T),
}

/// The list with the defaults in place of each `...`; without a list, the defaults.
pub fn spread<T: Clone>(own: Option<&Vec<Entry<T>>>, defaults: Option<&Vec<Entry<T>>>) -> Vec<T> {
    let defaults: Vec<T> = defaults
        .into_iter()
        .flatten()
        .filter_map(|entry| match entry {
            Entry::Own(value) => Some(value.clone()),
            Entry::Defaults => None,
        })
        .collect();
    match own {
        None => defaults,
        Some(own) => own
            .iter()
            .flat_map(|entry| match entry {
                Entry::Defaults => defaults.clone(),
                Entry::Own(value) => vec![value.clone()],
            })
            .collect(),
    }
}

/// A `surfaces` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Service(String),
    /// `volume://…` and the like.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolWish {
    pub service: String,
    pub allow: Allow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    All,
    Named(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedWish {
    /// A name that some service's descriptor has.
    Named(String),
    Of {
        service: String,
        name: Option<String>,
        path: Option<String>,
        ttl: Option<u64>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models {
    pub primary: Option<String>,
    pub fallbacks: Vec<String>,
    /// All other slots.
    pub others: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    pub max_rounds: Option<u64>,
    pub tool_timeout_ms: Option<u64>,
    pub total_timeout_ms: Option<u64>,
    pub max_tool_result_bytes: Option<u64>,
}

/// Reads the file's tree.
pub fn read(root: &Node, found: &mut Findings) -> PodFile {
    let mut file = PodFile::default();
    let mut reader = Reader { found };
    for (key, line, value) in reader.map(root, "the file") {
        match key {
            "services" => {
                for (name, line, value) in reader.map(value, "services") {
                    let name = At::new(line, name.to_owned());
                    file.services.push(reader.service(name, value));
                }
            }
            "x-claw" => reader.pod_block(value, &mut file),
            "name" => {
                file.name = file.name.take().or(reader.text(value, "name"));
            }
            // What anchors are usually kept under means nothing by itself.
            "version" => {}
            key if key.starts_with("x-") => {}
            key => reader.untranslated(line, key),
        }
    }
    file
}

struct Reader<'a> {
    found: &'a mut Findings,
}

impl Reader<'_> {
    fn untranslated(&mut self, line: usize, what: &str) {
        self.found
            .warning(line, format!("{what} is not translated"));
    }

    fn pod_block(&mut self, node: &Node, file: &mut PodFile) {
        for (key, line, value) in self.map(node, "x-claw") {
            if key == "pod" {
                file.name = self.text(value, "x-claw.pod");
            } else if key == "cllama-defaults" && matches!(value.value, Value::Map(_)) {
                for (key, line, value) in self.map(value, "cllama-defaults") {
                    match key {
                        "proxy" => file.defaults.cllama = Some(self.names(value, key)),
                        "env" => file.defaults.cllama_env = self.environment(value),
                        key => self.untranslated(line, &format!("cllama-defaults.{key}")),
                    }
                }
            } else if !key
                .strip_suffix("-defaults")
                .is_some_and(|key| self.wish(key, value, &mut file.defaults))
            {
                self.untranslated(line, &format!("x-claw.{key}"));
            }
        }
    }

    fn service(&mut self, name: At<String>, node: &Node) -> Service {
        let mut service = Service {
            name,
            image: None,
            entrypoint: None,
            command: None,
            environment: Vec::new(),
            ports: Vec::new(),
            user: None,
            describe_file: None,
            mcp_stdio: None,
            agent: None,
        };
        let mut published = Vec::new();
        for (key, line, value) in self.map(node, "a service") {
            match key {
                "image" => service.image = self.template(value, key),
                "entrypoint" => service.entrypoint = self.words(value, key),
                "command" => service.command = self.words(value, key),
                "environment" => service.environment = self.environment(value),
                "expose" => service.ports = self.ports(value),
                "ports" => published = self.ports(value),
                "user" => service.user = self.text(value, key),
                "x-claw" => self.service_block(value, line, &mut service),
                // A Deployment restarts always, and has no names of its own.
                "restart" | "container_name" | "hostname" => {}
                "depends_on" => self.found.note(
                    line,
                    "depends_on has no counterpart: pods start in any order and try again",
                ),
                key => self.untranslated(line, &format!("{}.{key}", service.name.value)),
            }
        }
        for port in published {
            if !service.ports.iter().any(|known| known.value == port.value) {
                service.ports.push(port);
            }
        }
        service
    }

    fn service_block(&mut self, node: &Node, line: usize, service: &mut Service) {
        let mut agent = AgentBlock {
            line,
            contract: None,
            replicas: None,
            wishes: Wishes::default(),
        };
        let mut is_agent = false;
        for (key, line, value) in self.map(node, "x-claw") {
            match key {
                "describe-file" => service.describe_file = self.text(value, key),
                "mcp-stdio" => service.mcp_stdio = Some(At::new(line, self.mcp_stdio(value))),
                key => {
                    is_agent = true;
                    match key {
                        "agent" => agent.contract = self.text(value, key),
                        "count" => agent.replicas = self.number(value, key),
                        key if self.wish(key, value, &mut agent.wishes) => {}
                        key => {
                            let what = format!("{}.x-claw.{key}", service.name.value);
                            self.untranslated(line, &what);
                        }
                    }
                }
            }
        }
        if is_agent {
            service.agent = Some(agent);
        }
    }

    /// One of the keys that an agent and the defaults share; false: it is none.
    fn wish(&mut self, key: &str, value: &Node, wishes: &mut Wishes) -> bool {
        match key {
            "cllama" => wishes.cllama = Some(self.names(value, key)),
            "cllama-env" => wishes.cllama_env = self.environment(value),
            "surfaces" => wishes.surfaces = Some(self.entries(value, key, Self::surface)),
            "tools" => wishes.tools = Some(self.entries(value, key, Self::tool)),
            "feeds" => wishes.feeds = Some(self.entries(value, key, Self::feed)),
            "skills" => wishes.skills = Some(self.entries(value, key, Self::skill)),
            "models" => wishes.models = Some(At::new(value.line, self.models(value))),
            "tool-policy" => wishes.policy = Some(self.policy(value)),
            _ => return false,
        }
        true
    }

    /// A list whose items may be `...`. What cannot be read is left out with a finding.
    fn entries<T>(
        &mut self,
        node: &Node,
        key: &str,
        mut one: impl FnMut(&mut Self, &Node) -> Option<T>,
    ) -> Vec<Entry<At<T>>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            Value::Text(_) | Value::Map(_) => {
                self.wrong(node, key, "a list");
                &[]
            }
        };
        items
            .iter()
            .filter_map(|item| match item.text() {
                Some("...") => Some(Entry::Defaults),
                _ => one(self, item).map(|value| Entry::Own(At::new(item.line, value))),
            })
            .collect()
    }

    fn surface(&mut self, node: &Node) -> Option<Reach> {
        // `channel://discord: {…}` is a map of one key.
        let written = match &node.value {
            Value::Map(entries) => match entries.as_slice() {
                [(key, _)] => key.text.as_str(),
                _ => "",
            },
            Value::Text(text) => text.as_str(),
            Value::Null | Value::List(_) => "",
        };
        let address = written.split_whitespace().next().unwrap_or_default();
        if address.is_empty() {
            self.wrong(node, "surfaces", "names such as service://trading-api");
            return None;
        }
        Some(match address.split_once("://") {
            None => Reach::Service(address.to_owned()),
            Some(("service", name)) => Reach::Service(name.to_owned()),
            Some(_) => Reach::Other(address.to_owned()),
        })
    }

    fn tool(&mut self, node: &Node) -> Option<ToolWish> {
        if let Some(service) = node.text() {
            return Some(ToolWish {
                service: service_name(service),
                allow: Allow::All,
            });
        }
        let mut service = None;
        let mut allow = Allow::All;
        for (key, line, value) in self.map(node, "a tools entry") {
            match key {
                "service" => service = self.text(value, key),
                "allow" => allow = self.allow(value)?,
                key => self.untranslated(line, &format!("tools: {key}")),
            }
        }
        let Some(service) = service else {
            self.found
                .error(node.line, "a tools entry names no service: add service");
            return None;
        };
        Some(ToolWish {
            service: service_name(&service.value),
            allow,
        })
    }

    fn allow(&mut self, node: &Node) -> Option<Allow> {
        match &node.value {
            Value::Text(text) if text == "all" => Some(Allow::All),
            Value::List(items) => {
                let names: Vec<String> = items
                    .iter()
                    .filter_map(|item| self.text(item, "allow"))
                    .map(|name| name.value)
                    .collect();
                // `[all]` is how some write it; a tool may not be named so by accident.
                Some(match names.as_slice() {
                    [only] if only == "all" => Allow::All,
                    _ => Allow::Named(names),
                })
            }
            Value::Null | Value::Text(_) | Value::Map(_) => {
                self.found.error(
                    node.line,
                    format!("allow is {}: write all, or a list of tools", node.shown()),
                );
                None
            }
        }
    }

    fn feed(&mut self, node: &Node) -> Option<FeedWish> {
        if let Some(name) = node.text() {
            return Some(FeedWish::Named(name.to_owned()));
        }
        let (mut service, mut name, mut path, mut ttl) = (None, None, None, None);
        for (key, line, value) in self.map(node, "a feeds entry") {
            match key {
                "source" | "service" => service = self.text(value, key),
                "name" => name = self.text(value, key),
                "path" => path = self.text(value, key),
                "ttl" => ttl = self.seconds(value),
                key => self.untranslated(line, &format!("feeds: {key}")),
            }
        }
        let text = |at: Option<At<String>>| at.map(|at| at.value);
        match (text(service), text(name)) {
            (Some(service), name) => Some(FeedWish::Of {
                service: service_name(&service),
                name,
                path: text(path),
                ttl,
            }),
            (None, Some(name)) => Some(FeedWish::Named(name)),
            (None, None) => {
                self.found
                    .error(node.line, "a feeds entry names no source: add source");
                None
            }
        }
    }

    fn skill(&mut self, node: &Node) -> Option<String> {
        self.text(node, "skills").map(|text| text.value)
    }

    fn models(&mut self, node: &Node) -> Models {
        let mut models = Models::default();
        for (slot, _, value) in self.map(node, "models") {
            let refs = self.names(value, "models").value;
            match slot {
                "primary" | "default" => models.primary = refs.into_iter().next(),
                "fallback" | "fallbacks" => models.fallbacks.extend(refs),
                _ => models.others.extend(refs),
            }
        }
        models
    }

    fn policy(&mut self, node: &Node) -> ToolPolicy {
        let mut policy = ToolPolicy::default();
        for (key, line, value) in self.map(node, "tool-policy") {
            let place = match key.replace('_', "-").as_str() {
                "max-rounds" => &mut policy.max_rounds,
                "timeout-per-tool-ms" => &mut policy.tool_timeout_ms,
                "total-timeout-ms" => &mut policy.total_timeout_ms,
                "max-tool-result-bytes" => &mut policy.max_tool_result_bytes,
                _ => {
                    self.untranslated(line, &format!("tool-policy.{key}"));
                    continue;
                }
            };
            *place = self.number(value, key).map(|number| number.value);
        }
        policy
    }

    fn mcp_stdio(&mut self, node: &Node) -> Vec<String> {
        let mut command = Vec::new();
        let mut arguments = Vec::new();
        for (key, line, value) in self.map(node, "mcp-stdio") {
            match key {
                "command" => command = self.names(value, key).value,
                "args" => arguments = self.names(value, key).value,
                key => self.untranslated(line, &format!("mcp-stdio.{key}")),
            }
        }
        command.extend(arguments);
        command
    }

    /// `NAME: value` or `- NAME=value`; without a value, the variable of that name.
    fn environment(&mut self, node: &Node) -> Vec<(String, At<Template>)> {
        let pairs: Vec<(String, usize, Option<String>)> = match &node.value {
            Value::Map(_) => self
                .map(node, "environment")
                .into_iter()
                .map(|(name, line, value)| (name.to_owned(), line, value.text().map(String::from)))
                .collect(),
            Value::List(items) => items
                .iter()
                .filter_map(|item| {
                    let text = self.text(item, "environment")?;
                    Some(match text.value.split_once('=') {
                        Some((name, value)) => (name.to_owned(), item.line, Some(value.to_owned())),
                        None => (text.value, item.line, None),
                    })
                })
                .collect(),
            Value::Null => Vec::new(),
            Value::Text(_) => {
                // Not quoted: it may be a credential.
                self.found
                    .error(node.line, "environment is a text: write a map or a list");
                Vec::new()
            }
        };
        pairs
            .into_iter()
            .filter_map(|(name, line, value)| {
                let template = match value {
                    None => Template::variable(&name),
                    Some(value) => self.parsed(line, &name, &value)?,
                };
                Some((name, At::new(line, template)))
            })
            .collect()
    }

    /// Container ports: `"4000"`, `"8080:4000/tcp"`, `{target: 4000}`.
    fn ports(&mut self, node: &Node) -> Vec<At<u16>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null | Value::Text(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let mut ports = Vec::new();
        for item in items {
            let target = item.get("target").unwrap_or(item);
            let port = target
                .text()
                .and_then(|text| text.strip_suffix("/tcp").unwrap_or(text).rsplit(':').next())
                .and_then(|port| port.parse().ok());
            match port {
                Some(port) => ports.push(At::new(item.line, port)),
                None => self.wrong(item, "a port", "one TCP port, such as \"4000\""),
            }
        }
        ports
    }

    /// A command: a list, or a text that is split as a shell would.
    fn words(&mut self, node: &Node, key: &str) -> Option<Vec<Template>> {
        let words = match &node.value {
            Value::Null => return None,
            Value::Text(text) => match split_words(text) {
                Some(words) => words,
                None => {
                    self.wrong(node, key, "words with closed quotes, or a list");
                    return None;
                }
            },
            Value::List(_) | Value::Map(_) => self.names(node, key).value,
        };
        words
            .iter()
            .map(|word| self.parsed(node.line, key, word))
            .collect()
    }

    /// A text, or a list of texts.
    fn names(&mut self, node: &Node, key: &str) -> At<Vec<String>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            Value::Text(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let names = items
            .iter()
            .filter_map(|item| self.text(item, key))
            .map(|text| text.value)
            .collect();
        At::new(node.line, names)
    }

    fn number<T: std::str::FromStr>(&mut self, node: &Node, key: &str) -> Option<At<T>> {
        let number = node.text().and_then(|text| text.parse().ok());
        if number.is_none() {
            self.wrong(node, key, "a number");
        }
        number.map(|number| At::new(node.line, number))
    }

    fn seconds(&mut self, node: &Node) -> Option<u64> {
        let seconds = node.text().and_then(duration_seconds);
        if seconds.is_none() {
            self.wrong(node, "ttl", "seconds, or a duration such as 5m");
        }
        seconds
    }

    fn template(&mut self, node: &Node, key: &str) -> Option<At<Template>> {
        let text = self.text(node, key)?;
        let template = self.parsed(text.line, key, &text.value)?;
        Some(At::new(text.line, template))
    }

    fn parsed(&mut self, line: usize, key: &str, text: &str) -> Option<Template> {
        match Template::parse(text) {
            Ok(template) => Some(template),
            Err(message) => {
                self.found.error(line, format!("{key} {message}"));
                None
            }
        }
    }

    fn text(&mut self, node: &Node, key: &str) -> Option<At<String>> {
        match node.text() {
            Some(text) => Some(At::new(node.line, text.to_owned())),
            None => {
                self.wrong(node, key, "text");
                None
            }
        }
    }

    fn map<'n>(&mut self, node: &'n Node, key: &str) -> Vec<(&'n str, usize, &'n Node)> {
        match &node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.text.as_str(), key.line, value))
                .collect(),
            Value::Null => Vec::new(),
            Value::Text(_) | Value::List(_) => {
                self.wrong(node, key, "a map");
                Vec::new()
            }
        }
    }

    fn wrong(&mut self, node: &Node, what: &str, wanted: &str) {
        self.found.error(
            node.line,
            format!("{what} is {}: write {wanted}", node.shown()),
        );
    }
}

/// `30`, `30s`, `5m`, `1h`.
pub fn duration_seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// `service://x` and `x` are the same where only a service can stand.
fn service_name(written: &str) -> String {
    written
        .strip_prefix("service://")
        .unwrap_or(written)
        .to_owned()
}

/// Words as a shell splits them, without its substitutions. `None`: a quote stays open.
fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let split = |text| split_words(text).map(|words| words.join("|"));
        assert_eq!(
            split("run --at 'a b' \"c d\""),
            Some("run|--at|a b|c d".into())
        );
        assert_eq!(split(r"a\ b ''"), Some("a b|".into()));
        assert_eq!(split("open 'quote"), None);
    }

    #[test]
    fn a_list_is_replaced_or_extended() {
        let defaults = Some(vec![Entry::Own(1), Entry::Own(2)]);
        assert_eq!(spread(None, defaults.as_ref()), [1, 2]);
        assert_eq!(spread(Some(&vec![]), defaults.as_ref()), [0; 0]);
        let own = vec![Entry::Own(3), Entry::Defaults, Entry::Own(4)];
        assert_eq!(spread(Some(&own), defaults.as_ref()), [3, 1, 2, 4]);
        assert_eq!(spread(Some(&own), None), [3, 4]);
    }
}
