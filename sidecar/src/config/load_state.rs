//! The state of the loaded files, and the effect of each reading on it, as one pure function.

use std::sync::Arc;

use toolcrib_manifest::{AgentFile, Dns, LinkConfig};

use super::version::{ConfigError, Contact, Version};

/// The result of reading the directory.
#[derive(Debug)]
pub enum Observation {
    Loaded(Box<Version>),
    Broken {
        error: ConfigError,
        contact: Option<Contact>,
    },
    /// None of the four files exists.
    Absent,
}

/// The state of the loaded files.
#[derive(Clone, Debug)]
pub enum LoadState {
    /// Started; no file was seen yet.
    Waiting,
    InForce {
        version: Arc<Version>,
        /// The reason why newer files are not loaded.
        error: Option<ConfigError>,
    },
    /// No request can be served: 503 `manifest_broken`.
    Broken {
        error: ConfigError,
        /// The operator's contact, to which the error is reported.
        contact: Option<Contact>,
    },
    /// All files vanished after a load: everything is denied, 403 `access_withdrawn`.
    Withdrawn {
        /// The agent whose access was withdrawn: a wrong token still gets only 401.
        agent: Option<Arc<AgentFile>>,
    },
}

/// The settings of the files for resolving names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    pub dns: Option<&'a Dns>,
    /// The namespace of a name with one label.
    pub namespace: &'a str,
}

impl LoadState {
    pub fn version(&self) -> Option<&Arc<Version>> {
        match self {
            LoadState::InForce { version, .. } => Some(version),
            LoadState::Waiting | LoadState::Broken { .. } | LoadState::Withdrawn { .. } => None,
        }
    }

    /// The link to the operator, which is used even of a version that is not served.
    pub fn link(&self) -> Option<&LinkConfig> {
        match self {
            LoadState::InForce { version, .. } => version.agent.link.as_ref(),
            LoadState::Broken { contact, .. } => contact.as_ref()?.link.as_ref(),
            LoadState::Waiting | LoadState::Withdrawn { .. } => None,
        }
    }

    /// The settings for resolving names; `None`: no files have any.
    pub fn names(&self) -> Option<Names<'_>> {
        let agent = match self {
            LoadState::InForce { version, .. } => &version.agent,
            LoadState::Withdrawn { agent } => agent.as_ref()?,
            LoadState::Broken { contact, .. } => {
                return contact.as_ref().map(|contact| Names {
                    dns: contact.dns.as_ref(),
                    namespace: &contact.namespace,
                });
            }
            LoadState::Waiting => return None,
        };
        Some(Names {
            dns: agent.dns.as_ref(),
            namespace: &agent.namespace,
        })
    }

    /// The operator's contact in a version that is not served, else the one known before.
    fn contact_beside(&self, said: Option<Contact>) -> Option<Contact> {
        let known = || match self {
            LoadState::InForce { version, .. } => Some(Contact {
                link: version.agent.link.clone(),
                dns: version.agent.dns.clone(),
                namespace: version.agent.namespace.clone(),
            }),
            LoadState::Broken { contact, .. } => contact.clone(),
            LoadState::Waiting | LoadState::Withdrawn { .. } => None,
        };
        said.filter(|said| said.link.is_some()).or_else(known)
    }

    pub fn error(&self) -> Option<String> {
        match self {
            LoadState::Waiting => Some("no files yet".to_string()),
            LoadState::InForce { error, .. } => error.as_ref().map(ToString::to_string),
            LoadState::Broken { error, .. } => Some(error.to_string()),
            LoadState::Withdrawn { .. } => {
                Some("all files were deleted; access is withdrawn".to_string())
            }
        }
    }

    pub fn after(&self, seen: Observation) -> LoadState {
        match (seen, self) {
            (Observation::Loaded(version), _) => LoadState::InForce {
                version: Arc::from(version),
                error: None,
            },
            // The refused version may hold the restriction that matters, so the last good
            // version is not served either.
            (
                Observation::Broken {
                    error: error @ ConfigError::Requires(_),
                    contact,
                },
                _,
            ) => LoadState::Broken {
                error,
                contact: self.contact_beside(contact),
            },
            (Observation::Broken { error, .. }, LoadState::InForce { version, .. }) => {
                LoadState::InForce {
                    version: version.clone(),
                    error: Some(error),
                }
            }
            (
                Observation::Broken { error, contact },
                LoadState::Waiting | LoadState::Broken { .. } | LoadState::Withdrawn { .. },
            ) => LoadState::Broken {
                error,
                contact: self.contact_beside(contact),
            },
            (Observation::Absent, LoadState::Waiting) => LoadState::Waiting,
            (Observation::Absent, LoadState::InForce { version, .. }) => LoadState::Withdrawn {
                agent: Some(version.agent.clone()),
            },
            (Observation::Absent, LoadState::Broken { .. }) => LoadState::Withdrawn { agent: None },
            (Observation::Absent, LoadState::Withdrawn { .. }) => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_manifest::RawJson;

    use super::*;
    use crate::config::version::{Files, parse};

    fn version() -> Box<Version> {
        let files = Files {
            agent:
                br#"{"version":1,"agent":"otter","namespace":"pond","claw_id":"otter","tokens":[]}"#
                    .to_vec(),
            tools: br#"{"version":1,"tools":[]}"#.to_vec(),
            providers: br#"{"version":1,"providers":{}}"#.to_vec(),
            feeds: b"[]".to_vec(),
        };
        Box::new(parse(&files, &|_| None).unwrap())
    }

    fn broken() -> Observation {
        Observation::Broken {
            error: ConfigError::Missing(vec!["feeds.json"]),
            contact: None,
        }
    }

    fn refused() -> Observation {
        Observation::Broken {
            error: ConfigError::Requires("quarantine".into()),
            contact: None,
        }
    }

    /// Checks the state after the events, as one word, with `!` if an error is reported too.
    fn check(events: Vec<Observation>, expected: &str) {
        let mut load_state = LoadState::Waiting;
        for event in events {
            load_state = load_state.after(event);
        }
        let seen = match &load_state {
            LoadState::Waiting => "waiting",
            LoadState::InForce { error: None, .. } => "in force",
            LoadState::InForce { error: Some(_), .. } => "in force!",
            LoadState::Broken { .. } => "broken",
            LoadState::Withdrawn { agent: Some(_) } => "withdrawn",
            LoadState::Withdrawn { agent: None } => "withdrawn, nobody's",
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn observations_change_the_load_state() {
        let loaded = || Observation::Loaded(version());
        let absent = || Observation::Absent;
        check(vec![absent()], "waiting");
        check(vec![absent(), loaded()], "in force");
        check(vec![broken()], "broken");
        check(vec![broken(), loaded()], "in force");
        check(vec![loaded(), broken()], "in force!");
        check(vec![loaded(), broken(), loaded()], "in force");
        check(vec![loaded(), refused()], "broken");
        check(vec![loaded(), broken(), refused(), broken()], "broken");
        check(vec![loaded(), absent()], "withdrawn");
        check(vec![loaded(), absent(), absent()], "withdrawn");
        // The last good version was withdrawn; a broken one does not bring it back.
        check(vec![loaded(), absent(), broken()], "broken");
        check(vec![loaded(), absent(), loaded()], "in force");
        check(vec![broken(), absent()], "withdrawn, nobody's");
    }

    /// The operator must learn that this release does not know a restriction.
    #[test]
    fn a_refused_version_keeps_its_link() {
        let link = |port: u16| LinkConfig {
            url: format!("https://operator.test:{port}"),
            ca: "pem".into(),
            audience: "toolcrib.dev/link".into(),
        };
        let dns = || Dns {
            cluster_domain: "reef.example".parse().unwrap(),
            name_servers: vec!["10.96.0.10".parse().unwrap()],
        };
        let refused = |link: Option<LinkConfig>| Observation::Broken {
            error: ConfigError::Requires("quarantine".into()),
            contact: Some(Contact {
                dns: link.as_ref().map(|_| dns()),
                link,
                namespace: "pond".into(),
            }),
        };
        let mut linked = version();
        Arc::make_mut(&mut linked.agent).link = Some(link(1));
        let load_state = LoadState::Waiting.after(Observation::Loaded(linked));
        assert_eq!(load_state.link(), Some(&link(1)));
        // The link of the refused version, else the one known before.
        let told = load_state.after(refused(Some(link(2))));
        assert!(matches!(told, LoadState::Broken { .. }));
        assert_eq!(told.link(), Some(&link(2)));
        assert_eq!(load_state.after(refused(None)).link(), Some(&link(1)));
        assert_eq!(told.after(broken()).link(), Some(&link(2)));
        let at_start = LoadState::Waiting.after(refused(Some(link(3))));
        assert_eq!(at_start.link(), Some(&link(3)));
        // Without name servers the link's host could not be resolved.
        let names = at_start.names().unwrap();
        assert_eq!((names.dns, names.namespace), (Some(&dns()), "pond"));
        assert_eq!(told.after(Observation::Absent).link(), None);
    }

    #[test]
    fn a_broken_file_is_named_and_never_quoted() {
        let mut files = Files {
            agent: br#"{"version":1,"agent":"otter","namespace":"pond","claw_id":"otter","tokens":"sekrit"}"#.to_vec(),
            tools: br#"{"version":1,"tools":[]}"#.to_vec(),
            providers: br#"{"version":1,"providers":{}}"#.to_vec(),
            feeds: b"[]".to_vec(),
        };
        let error = parse(&files, &|_| None).unwrap_err().to_string();
        assert!(
            error.starts_with("agent.json: cannot be decoded at line 1"),
            "{error}"
        );
        assert!(!error.contains("sekrit"), "{error}");
        files.agent = br#"{"version":2}"#.to_vec();
        let error = parse(&files, &|_| None).unwrap_err().to_string();
        assert!(error.contains("missing field"), "{error}");
    }

    #[test]
    fn one_bad_tool_is_withheld_and_no_other() {
        let tools = r#"{"version":1,"tools":[
            {"name":"desk.fine","inputSchema":{"type":"object"},"execution":{"transport":"http",
             "service":"desk","base_url":"http://desk","method":"GET","path":"/",
             "auth":{"type":"bearer","file":"keys/desk"}}},
            {"name":"desk.lost","inputSchema":{"type":"object"},"execution":{"transport":"http",
             "service":"desk","base_url":"http://desk","method":"GET","path":"/",
             "auth":{"type":"bearer","file":"keys/lost"}}},
            {"name":"desk.mcp","inputSchema":{"type":"object"},"execution":{"transport":"mcp",
             "service":"desk","base_url":"http://desk","tool_name":"mcp"}},
            {"name":"desk.oauth","inputSchema":{"type":"object"},"execution":{"transport":"http",
             "service":"desk","base_url":"http://desk","method":"GET","path":"/",
             "auth":{"type":"oauth","token_url":"https://t","client_id":"c","client_secret":"s3cret-oauth"}}},
            {"name":"desk.later","inputSchema":{"type":"object"},"execution":{"transport":"http",
             "service":"desk","base_url":"http://desk","method":"GET","path":"/"},
             "x-toolcrib":{"requires":["quarantine"]}}]}"#;
        let files = Files {
            agent:
                br#"{"version":1,"agent":"otter","namespace":"pond","claw_id":"otter","tokens":[]}"#
                    .to_vec(),
            tools: tools.as_bytes().to_vec(),
            providers: br#"{"version":1,"providers":{}}"#.to_vec(),
            feeds: br#"[{"name":"lost","source":"desk","path":"/l","url":"http://desk/l",
                "auth":{"type":"bearer","file":"keys/lost"}},
                {"name":"short","source":"desk","path":"/s","url":"http://desk/s","auth":"bare-bearer"}]"#
                .to_vec(),
        };
        let read = |path: &str| {
            (path == "keys/desk").then(|| toolcrib_manifest::SecretText::new("from-a-file"))
        };
        let version = parse(&files, &read).unwrap();
        let offered: Vec<_> = version
            .catalog
            .tools()
            .iter()
            .map(|tool| tool.name())
            .collect();
        assert_eq!(offered, ["desk.fine", "desk.mcp", "desk.oauth"]);
        let withheld: Vec<_> = version
            .withheld()
            .into_iter()
            .map(|entry| (entry.tool, entry.reason))
            .collect();
        let pair = |tool: &str, reason: &str| (tool.to_string(), reason.to_string());
        assert_eq!(
            withheld,
            [
                pair("desk.later", "unsupported_requirement"),
                pair("desk.lost", "credential_missing"),
                pair("feed desk/lost", "credential_missing"),
            ]
        );
        let secrets: Vec<_> = version.secrets.iter().map(|it| it.expose()).collect();
        assert_eq!(secrets, ["bare-bearer", "from-a-file", "s3cret-oauth"]);
        assert_eq!(version.feeds.len(), 1);
        let schema: &RawJson = &version.catalog.tools()[0].tool.input_schema;
        assert_eq!(schema.get(), r#"{"type":"object"}"#);
    }
}
