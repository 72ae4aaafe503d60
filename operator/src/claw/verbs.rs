//! The verbs of claw-api, and the parser of a request's path and query.
//!
//! Strict: an argument that is unknown, repeated or out of range is refused with a message, since
//! the caller is a model that can correct its request.

use std::collections::BTreeMap;

use url::form_urlencoded;

/// A verb of claw-api; its tool has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    ListAgents,
    GetAgent,
    ExplainTool,
    RecentCalls,
    ExplainCall,
}

/// Limit of the agents in a page.
pub const MOST: usize = 100;
/// Number of agents in a page if the request has no `limit`.
const USUAL: usize = 20;
/// Limit of an argument in bytes. Names are shorter, and positions are made of names and a time.
const LONGEST: usize = 1024;

impl Verb {
    pub const ALL: [Self; 5] = [
        Self::ListAgents,
        Self::GetAgent,
        Self::ExplainTool,
        Self::RecentCalls,
        Self::ExplainCall,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ListAgents => "list_agents",
            Self::GetAgent => "get_agent",
            Self::ExplainTool => "explain_tool",
            Self::RecentCalls => "recent_calls",
            Self::ExplainCall => "explain_call",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// The verb's path, with `{agent}` for the agent's name.
    pub fn path(self) -> &'static str {
        match self {
            Self::ListAgents => "/v1/agents",
            Self::GetAgent => "/v1/agents/{agent}",
            Self::ExplainTool => "/v1/agents/{agent}/tool",
            Self::RecentCalls => "/v1/calls",
            Self::ExplainCall => "/v1/agents/{agent}/call",
        }
    }

    /// The arguments that the query may have.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::ListAgents => &["namespace", "limit", "continue"],
            Self::GetAgent => &["namespace"],
            Self::ExplainTool => &["namespace", "tool"],
            Self::RecentCalls => &["namespace", "agent", "limit", "continue"],
            Self::ExplainCall => &["namespace", "call"],
        }
    }
}

/// A parsed path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourcePath<'a> {
    Agents,
    Agent(&'a str),
    Tool(&'a str),
    Calls,
    Call(&'a str),
}

impl<'a> ResourcePath<'a> {
    pub fn of(path: &'a str) -> Option<Self> {
        let segments: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
        match segments[..] {
            ["agents"] => Some(Self::Agents),
            ["agents", agent] => Some(Self::Agent(agent)),
            ["agents", agent, "tool"] => Some(Self::Tool(agent)),
            ["agents", agent, "call"] => Some(Self::Call(agent)),
            ["calls"] => Some(Self::Calls),
            _ => None,
        }
    }

    pub fn verb(self) -> Verb {
        match self {
            Self::Agents => Verb::ListAgents,
            Self::Agent(_) => Verb::GetAgent,
            Self::Tool(_) => Verb::ExplainTool,
            Self::Calls => Verb::RecentCalls,
            Self::Call(_) => Verb::ExplainCall,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    ListAgents {
        namespace: Option<String>,
        page: Page,
    },
    GetAgent {
        namespace: Option<String>,
        agent: String,
    },
    ExplainTool {
        namespace: Option<String>,
        agent: String,
        tool: String,
    },
    RecentCalls {
        namespace: Option<String>,
        agent: Option<String>,
        page: Page,
    },
    ExplainCall {
        namespace: Option<String>,
        agent: String,
        call: String,
    },
}

/// The requested page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// 1 to [`MOST`].
    pub limit: usize,
    /// The value of `continue` in the previous page.
    pub after: Option<String>,
}

impl Question {
    /// Parses a request. The error is a message for the model that sent it.
    pub fn read(place: ResourcePath<'_>, query: Option<&str>) -> Result<Self, String> {
        let mut arguments = Arguments::read(place.verb(), query.unwrap_or_default())?;
        let namespace = arguments.take("namespace");
        Ok(match place {
            ResourcePath::Agents => Self::ListAgents {
                namespace,
                page: arguments.page()?,
            },
            ResourcePath::Agent(agent) => Self::GetAgent {
                namespace,
                agent: agent.to_owned(),
            },
            ResourcePath::Tool(agent) => Self::ExplainTool {
                namespace,
                agent: agent.to_owned(),
                tool: arguments
                    .take("tool")
                    .ok_or("tool is missing: name it as SURFACE.TOOL")?,
            },
            ResourcePath::Call(agent) => Self::ExplainCall {
                namespace,
                agent: agent.to_owned(),
                call: arguments
                    .take("call")
                    .ok_or("call is missing: name an id that recent_calls lists")?,
            },
            ResourcePath::Calls => Self::RecentCalls {
                namespace,
                agent: arguments.take("agent"),
                page: arguments.page()?,
            },
        })
    }
}

struct Arguments(BTreeMap<&'static str, String>);

impl Arguments {
    fn read(verb: Verb, query: &str) -> Result<Self, String> {
        let known = verb.arguments();
        let mut read = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(known) = known.iter().find(|known| **known == name) else {
                return Err(format!(
                    "unknown argument: the arguments are {}",
                    known.join(", ")
                ));
            };
            if value.len() > LONGEST {
                return Err(format!("{known} is longer than {LONGEST} bytes"));
            }
            if read.insert(*known, value.into_owned()).is_some() {
                return Err(format!("{known} is repeated: give it once"));
            }
        }
        Ok(Self(read))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn page(&mut self) -> Result<Page, String> {
        let limit = match self.take("limit") {
            None => USUAL,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=MOST).contains(limit))
                .ok_or_else(|| format!("limit must be a number from 1 to {MOST}"))?,
        };
        Ok(Page {
            limit,
            after: self.take("continue"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(target: &str, expected: Result<Question, &str>) {
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        let place = ResourcePath::of(path).expect("a place");
        let read = Question::read(place, query);
        assert_eq!(read, expected.map_err(str::to_owned), "{target}");
    }

    fn page(limit: usize, after: Option<&str>) -> Page {
        Page {
            limit,
            after: after.map(str::to_owned),
        }
    }

    #[test]
    fn requests_are_parsed() {
        check(
            "/v1/agents",
            Ok(Question::ListAgents {
                namespace: None,
                page: page(20, None),
            }),
        );
        check(
            "/v1/agents?limit=7&continue=pond%2Fotter&namespace=pond",
            Ok(Question::ListAgents {
                namespace: Some("pond".into()),
                page: page(7, Some("pond/otter")),
            }),
        );
        check(
            "/v1/agents/otter?namespace=pond",
            Ok(Question::GetAgent {
                namespace: Some("pond".into()),
                agent: "otter".into(),
            }),
        );
        check(
            "/v1/agents/otter/tool?tool=fish.list",
            Ok(Question::ExplainTool {
                namespace: None,
                agent: "otter".into(),
                tool: "fish.list".into(),
            }),
        );
        check(
            "/v1/agents/otter/call?call=r1-1-0&namespace=pond",
            Ok(Question::ExplainCall {
                namespace: Some("pond".into()),
                agent: "otter".into(),
                call: "r1-1-0".into(),
            }),
        );
        check(
            "/v1/calls?agent=otter&limit=100",
            Ok(Question::RecentCalls {
                namespace: None,
                agent: Some("otter".into()),
                page: page(100, None),
            }),
        );
    }

    #[test]
    fn an_invalid_argument_is_refused_with_a_message() {
        let limit = "limit must be a number from 1 to 100";
        for text in ["0", "101", "-1", "x", "", "1e1"] {
            check(&format!("/v1/agents?limit={text}"), Err(limit));
        }
        check(
            "/v1/agents?limit=1&limit=2",
            Err("limit is repeated: give it once"),
        );
        check(
            "/v1/agents?sort=name",
            Err("unknown argument: the arguments are namespace, limit, continue"),
        );
        check(
            "/v1/agents/otter?limit=1",
            Err("unknown argument: the arguments are namespace"),
        );
        check(
            "/v1/agents/otter/tool",
            Err("tool is missing: name it as SURFACE.TOOL"),
        );
        check(
            "/v1/agents/otter/call",
            Err("call is missing: name an id that recent_calls lists"),
        );
        check(
            &format!("/v1/calls?agent={}", "x".repeat(LONGEST + 1)),
            Err("agent is longer than 1024 bytes"),
        );
    }

    #[test]
    fn each_verb_has_one_path_and_no_other_path_is_accepted() {
        for verb in Verb::ALL {
            let path = verb.path().replace("{agent}", "otter");
            assert_eq!(
                ResourcePath::of(&path).map(ResourcePath::verb),
                Some(verb),
                "{path}"
            );
            assert_eq!(Verb::named(verb.name()), Some(verb));
        }
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/agents/a/b",
            "/v2/agents",
            "/v1/calls/a",
        ] {
            assert_eq!(ResourcePath::of(path), None, "{path}");
        }
    }
}
