//! The parts of a Clawdapus pod file: services, agents, and the agents' requests.
//!
//! Here: the types. [`read`] builds them from YAML, [`scalar`] parses the small formats within a
//! text. Not here: the translation to objects. Defaults are not applied yet, since `...` is part
//! of the file.

mod read;
mod scalar;

pub use read::read;
pub use scalar::duration_seconds;

use super::variables::Template;

/// A value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineValue<T> {
    pub line: usize,
    pub value: T,
}

impl<T> LineValue<T> {
    pub fn new(line: usize, value: T) -> Self {
        Self { line, value }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PodFile {
    pub name: Option<LineValue<String>>,
    /// The `*-defaults` of the file, in the form of an agent's own requests.
    pub defaults: RequestLists,
    pub services: Vec<Service>,
}

#[derive(Clone, Debug)]
pub struct Service {
    pub name: LineValue<String>,
    pub image: Option<LineValue<Template>>,
    pub entrypoint: Option<Vec<Template>>,
    pub command: Option<Vec<Template>>,
    pub environment: Vec<(String, LineValue<Template>)>,
    /// Container ports, from `expose`, then `ports`.
    pub ports: Vec<LineValue<u16>>,
    pub user: Option<LineValue<String>>,
    pub describe_file: Option<LineValue<String>>,
    pub mcp_stdio: Option<LineValue<Vec<String>>>,
    /// `None`: the service is not an agent.
    pub agent: Option<AgentBlock>,
}

/// The `x-claw` block that makes a service an agent.
#[derive(Clone, Debug)]
pub struct AgentBlock {
    pub line: usize,
    pub contract: Option<LineValue<String>>,
    pub replicas: Option<LineValue<u16>>,
    pub requests: RequestLists,
}

/// The requests of one agent, or the defaults of the file. `None`: not declared.
#[derive(Clone, Debug, Default)]
pub struct RequestLists {
    pub cllama: Option<LineValue<Vec<String>>>,
    pub cllama_env: Vec<(String, LineValue<Template>)>,
    pub surfaces: Option<Vec<Entry<LineValue<Reach>>>>,
    pub tools: Option<Vec<Entry<LineValue<ToolRequest>>>>,
    pub feeds: Option<Vec<Entry<LineValue<FeedRequest>>>>,
    pub skills: Option<Vec<Entry<LineValue<String>>>>,
    pub models: Option<LineValue<Models>>,
    pub policy: Option<ToolPolicy>,
}

/// An entry of a list that may include the file's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<T> {
    /// `...`
    Defaults,
    Own(T),
}

/// Returns the list with the defaults in place of each `...`; without a list, the defaults.
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

/// An entry of `surfaces`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Service(String),
    /// Another scheme, such as `volume://…`.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequest {
    pub service: String,
    pub allow: Allow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    All,
    Named(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedRequest {
    /// The name of a feed in some service's descriptor.
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
    /// The models of all other slots.
    pub others: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    pub max_rounds: Option<u64>,
    pub tool_timeout_ms: Option<u64>,
    pub total_timeout_ms: Option<u64>,
    pub max_tool_result_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
