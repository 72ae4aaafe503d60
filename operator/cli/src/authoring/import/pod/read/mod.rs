//! Reads a pod file from its YAML, with a finding for every part that is not translated.

mod values;

use std::collections::BTreeSet;

use toolcrib_compile::near;

use super::scalar::service_name;
use super::{
    AgentBlock, Allow, Entry, FeedRequest, LineValue, Models, PodFile, Reach, RequestLists,
    Service, ToolPolicy, ToolRequest,
};
use crate::authoring::import::finding::{Cause, Findings, Weight};
use crate::authoring::import::yaml::{Node, Size, Value, YamlError};

/// Limit on the values of all `*-defaults` times the number of agents, each of which gets a copy.
/// 200 agents with 100 tools each have 100,000.
const MAX_DEFAULT_VALUES: usize = 200_000;
/// Limit on the bytes of these values' text, counted in the same way.
const MAX_DEFAULT_TEXT: usize = 8 << 20;

/// Reads the file's tree. Fails if the defaults of all agents together exceed a bound.
pub fn read(root: &Node, found: &mut Findings) -> Result<PodFile, YamlError> {
    if let Some(kind) = kubernetes_kind(root) {
        return Err(YamlError {
            line: root.line,
            message: format!(
                "this is a Kubernetes object, {kind}, and no pod file: give the claw-pod.yml, with its services, and objects that exist already with -f"
            ),
        });
    }
    let mut file = PodFile::default();
    let mut reader = Reader {
        found,
        defaults: Size::default(),
    };
    for (key, line, value) in reader.map(root, "the file") {
        match key {
            "services" => {
                for (name, line, value) in reader.map(value, "services") {
                    let name = LineValue::new(line, name.to_owned());
                    file.services.push(reader.service(name, value));
                }
            }
            "x-claw" => reader.pod_block(value, &mut file),
            "name" => {
                file.name = file.name.take().or(reader.text(value, "name"));
            }
            // Anchors are usually defined under a key of `x-`, which has no meaning of its own.
            "version" => {}
            key if key.starts_with("x-") && near::nearest(key, ["x-claw"]).is_none() => {}
            key => reader.untranslated(line, "", key, &FILE_KEYS),
        }
    }
    if file.services.is_empty() && matches!(root.value, Value::Map(_)) {
        let text = "the file has no services: write each under services, with its image";
        reader.found.error(0, text);
    }
    let agents = file.services.iter().filter(|it| it.agent.is_some());
    check_defaults(reader.defaults, agents.count())?;
    Ok(file)
}

/// Returns `KIND of VERSION` if the file is an object of Kubernetes.
fn kubernetes_kind(root: &Node) -> Option<String> {
    let Value::Map(entries) = &root.value else {
        return None;
    };
    let text = |wanted: &str| {
        let entry = entries.iter().find(|(key, _)| key.text == wanted);
        match &entry?.1.value {
            Value::Text(text) => Some(&**text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    };
    crate::authoring::kubernetes_object(text("kind"), text("apiVersion"))
}

/// Refuses defaults that would be too large once every agent has a copy.
fn check_defaults(defaults: Size, agents: usize) -> Result<(), YamlError> {
    let values = defaults.values.saturating_mul(agents);
    let text = defaults.text.saturating_mul(agents);
    if values <= MAX_DEFAULT_VALUES && text <= MAX_DEFAULT_TEXT {
        return Ok(());
    }
    Err(YamlError {
        line: 0,
        message: format!(
            "{agents} agents with {} values of defaults are more than {MAX_DEFAULT_VALUES} values, or {MAX_DEFAULT_TEXT} bytes of text: write shorter *-defaults, or several pod files",
            defaults.values
        ),
    })
}

const FILE_KEYS: [&str; 3] = ["services", "x-claw", "name"];
const SERVICE_KEYS: [&str; 8] = [
    "image",
    "entrypoint",
    "command",
    "environment",
    "expose",
    "ports",
    "user",
    "x-claw",
];
const POLICY_KEYS: [&str; 4] = [
    "max-rounds",
    "timeout-per-tool-ms",
    "total-timeout-ms",
    "max-tool-result-bytes",
];
const AGENT_KEYS: [&str; 12] = [
    "describe-file",
    "mcp-stdio",
    "agent",
    "count",
    "cllama",
    "cllama-env",
    "surfaces",
    "tools",
    "feeds",
    "skills",
    "models",
    "tool-policy",
];

struct Reader<'a> {
    found: &'a mut Findings,
    /// The size of all `*-defaults`.
    defaults: Size,
}

impl Reader<'_> {
    /// Warns of a key that is not translated. `place` is the path before it.
    fn untranslated(&mut self, line: usize, place: &str, key: &str, known: &[&str]) {
        let said = match near::nearest(key, known.iter().copied()) {
            Some(meant) => format!("is not known: did you mean {meant}?"),
            None => {
                "is not translated: add it to the result by hand, if the pods need it".to_owned()
            }
        };
        self.found.warning(line, format!("{place}{key} {said}"));
    }

    fn pod_block(&mut self, node: &Node, file: &mut PodFile) {
        for (key, line, value) in self.map(node, "x-claw") {
            if key.ends_with("-defaults") {
                self.defaults = self.defaults.and(value.size());
            }
            if key == "pod" {
                file.name = self.text(value, "x-claw.pod");
            } else if key == "cllama-defaults" && matches!(value.value, Value::Map(_)) {
                for (key, line, value) in self.map(value, "cllama-defaults") {
                    match key {
                        "proxy" => file.defaults.cllama = Some(self.names(value, key)),
                        "env" => file.defaults.cllama_env = self.environment(value),
                        key => self.untranslated(line, "cllama-defaults.", key, &["proxy", "env"]),
                    }
                }
            } else if !key
                .strip_suffix("-defaults")
                .is_some_and(|key| self.request(key, value, &mut file.defaults))
            {
                self.untranslated(line, "x-claw.", key, &["pod"]);
            }
        }
    }

    fn service(&mut self, name: LineValue<String>, node: &Node) -> Service {
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
                "expose" => service.ports = self.ports(&service.name.value, value),
                "ports" => published = self.ports(&service.name.value, value),
                "user" => service.user = self.text(value, key),
                "x-claw" => self.service_block(value, line, &mut service),
                // A Deployment always restarts its pods, and names them itself.
                "restart" | "container_name" | "hostname" => {}
                "depends_on" => self.found.note(
                    line,
                    "depends_on has no counterpart: pods start in any order and try again",
                ),
                key => {
                    let place = format!("{}.", service.name.value);
                    self.untranslated(line, &place, key, &SERVICE_KEYS);
                }
            }
        }
        let mut known = BTreeSet::new();
        service.ports.extend(published);
        service.ports.retain(|port| known.insert(port.value));
        service
    }

    fn service_block(&mut self, node: &Node, line: usize, service: &mut Service) {
        let mut agent = AgentBlock {
            line,
            contract: None,
            replicas: None,
            requests: RequestLists::default(),
        };
        let mut is_agent = false;
        for (key, line, value) in self.map(node, "x-claw") {
            match key {
                "describe-file" => service.describe_file = self.text(value, key),
                "mcp-stdio" => {
                    service.mcp_stdio = Some(LineValue::new(line, self.mcp_stdio(value)))
                }
                key => {
                    is_agent = true;
                    match key {
                        "agent" => agent.contract = self.text(value, key),
                        "count" => agent.replicas = self.number(value, key),
                        key if self.request(key, value, &mut agent.requests) => {}
                        key => {
                            let place = format!("{}.x-claw.", service.name.value);
                            self.untranslated(line, &place, key, &AGENT_KEYS);
                        }
                    }
                }
            }
        }
        if is_agent {
            service.agent = Some(agent);
        }
    }

    /// Reads a key that agents and the defaults share; returns false for any other key.
    fn request(&mut self, key: &str, value: &Node, requests: &mut RequestLists) -> bool {
        match key {
            "cllama" => requests.cllama = Some(self.names(value, key)),
            "cllama-env" => requests.cllama_env = self.environment(value),
            "surfaces" => requests.surfaces = Some(self.entries(value, key, Self::surface)),
            "tools" => requests.tools = Some(self.entries(value, key, Self::tool)),
            "feeds" => requests.feeds = Some(self.entries(value, key, Self::feed)),
            "skills" => requests.skills = Some(self.entries(value, key, Self::skill)),
            "models" => requests.models = Some(LineValue::new(value.line, self.models(value))),
            "tool-policy" => requests.policy = Some(self.policy(value)),
            _ => return false,
        }
        true
    }

    /// Reads a list whose items may be `...`. An invalid item is left out with a finding.
    fn entries<T>(
        &mut self,
        node: &Node,
        key: &str,
        mut one: impl FnMut(&mut Self, &Node) -> Option<T>,
    ) -> Vec<Entry<LineValue<T>>> {
        let items: &[Node] = match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            Value::Text(_) | Value::Map(_) => {
                self.wrong(node, key, "a list");
                &[]
            }
        };
        let mut has_defaults = false;
        items
            .iter()
            .filter_map(|item| match item.text() {
                Some("...") if has_defaults => {
                    self.found
                        .warning(item.line, format!("{key} has ... a second time: keep one"));
                    None
                }
                Some("...") => {
                    has_defaults = true;
                    Some(Entry::Defaults)
                }
                _ => one(self, item).map(|value| Entry::Own(LineValue::new(item.line, value))),
            })
            .collect()
    }

    fn surface(&mut self, node: &Node) -> Option<Reach> {
        // `channel://discord: {…}` is a map with one key.
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

    fn tool(&mut self, node: &Node) -> Option<ToolRequest> {
        if let Some(service) = node.text() {
            return Some(ToolRequest {
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
                key => self.untranslated(line, "tools: ", key, &["service", "allow"]),
            }
        }
        let Some(service) = service else {
            self.found.error(
                node.line,
                "a tools entry names no service: add service: NAME",
            );
            return None;
        };
        Some(ToolRequest {
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
                // Some authors write `[all]`; no tool should have this name.
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

    fn feed(&mut self, node: &Node) -> Option<FeedRequest> {
        if let Some(name) = node.text() {
            return Some(FeedRequest::Named(name.to_owned()));
        }
        let (mut service, mut name, mut path, mut ttl) = (None, None, None, None);
        for (key, line, value) in self.map(node, "a feeds entry") {
            match key {
                "source" | "service" => service = self.text(value, key),
                "name" => name = self.text(value, key),
                "path" => path = self.text(value, key),
                "ttl" => ttl = self.seconds(value),
                key => self.untranslated(line, "feeds: ", key, &["source", "name", "path", "ttl"]),
            }
        }
        let text = |at: Option<LineValue<String>>| at.map(|at| at.value);
        match (text(service), text(name)) {
            (Some(service), name) => Some(FeedRequest::Of {
                service: service_name(&service),
                name,
                path: text(path),
                ttl,
            }),
            (None, Some(name)) => Some(FeedRequest::Named(name)),
            (None, None) => {
                self.found
                    .error(node.line, "a feeds entry names no source: add source: NAME");
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
            let mut refs = self.names(value, "models").value;
            if refs.iter().any(String::is_empty) {
                self.found.add_cause(
                    value.line,
                    Weight::Error,
                    format!(
                        "models: {slot} names no model: write PROVIDER/MODEL, such as openai/gpt-5"
                    ),
                    Cause::Provider(String::new()),
                );
                refs.retain(|name| !name.is_empty());
            }
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
                    self.untranslated(line, "tool-policy.", key, &POLICY_KEYS);
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
                key => self.untranslated(line, "mcp-stdio.", key, &["command", "args"]),
            }
        }
        command.extend(arguments);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authoring::import::yaml;

    fn read_text(text: &str) -> Result<PodFile, YamlError> {
        read(&yaml::parse(text)?, &mut Findings::default())
    }

    #[test]
    fn defaults_of_all_agents_together_have_a_bound() {
        let pod = |agents: usize, defaults: usize| {
            let names: Vec<String> = (0..defaults).map(|at| format!("s{at}")).collect();
            let services: Vec<String> = (0..agents)
                .map(|at| format!("  a{at}: {{x-claw: {{agent: ./a.md}}}}\n"))
                .collect();
            let names = names.join(", ");
            let services = services.concat();
            format!("x-claw: {{surfaces-defaults: [{names}]}}\nservices:\n{services}")
        };
        assert_eq!(read_text(&pod(100, 1000)).unwrap().services.len(), 100);
        let error = read_text(&pod(1000, 1000)).unwrap_err();
        assert!(error.message.contains("1000 agents"), "{error:?}");
        let long = pod(20, 1).replace("s0", &"s".repeat(1 << 20));
        let error = read_text(&long).unwrap_err();
        assert!(error.message.contains("20 agents"), "{error:?}");
    }

    #[test]
    fn each_port_and_the_defaults_are_read_once() {
        let text = "services:\n  a:\n    expose: [4000, 4000]\n    ports: ['80:4000', 5000]\n    x-claw: {surfaces: [..., b, ...]}\n";
        let file = read_text(text).unwrap();
        let ports: Vec<u16> = file.services[0].ports.iter().map(|it| it.value).collect();
        assert_eq!(ports, [4000, 5000]);
        let agent = file.services[0].agent.as_ref().unwrap();
        assert_eq!(agent.requests.surfaces.as_ref().unwrap().len(), 2);
    }
}
