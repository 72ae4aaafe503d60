//! Whose token it is, and what it opens.
//!
//! Tokens are those that compile puts into agents' files for claw-api's own Surface; of each
//! only its hash is held. A token that two Agents hold is nobody's: who asked could not be told.
//! Until this leader has compiled every agent that was there when it began, a token that it does
//! not know may still be somebody's.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toolcrib_compile::{
    Compilation, CredentialKind, ObjectRef, SecretKeyRef, SourceState, ToolSummary,
};
use toolcrib_manifest::{Auth, SecretText};

use super::verbs::Verb;

/// A shorter one could be guessed: everybody in the cluster may try.
pub const SHORTEST_TOKEN: usize = 16;

/// One token of an agent, and the verbs that are granted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    sha256: [u8; 32],
    pub verbs: BTreeSet<Verb>,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub agent: ObjectRef,
    pub verbs: BTreeSet<Verb>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    One(Caller),
    Nobodys,
    /// Not every agent is compiled yet.
    NotKnownYet,
}

#[derive(Debug, Default)]
pub struct Holders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those that hold a token.
    agents: BTreeMap<ObjectRef, Vec<Holding>>,
    not_compiled_yet: BTreeSet<ObjectRef>,
}

impl Holders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Starts over, with these agents to be compiled.
    pub fn begin(&self, agents: impl IntoIterator<Item = ObjectRef>) {
        *self.state() = State {
            agents: BTreeMap::new(),
            not_compiled_yet: agents.into_iter().collect(),
        };
    }

    /// What the agent holds from now on.
    pub fn compiled(&self, agent: &ObjectRef, holdings: Vec<Holding>) {
        let mut state = self.state();
        state.not_compiled_yet.remove(agent);
        if holdings.is_empty() {
            state.agents.remove(agent);
        } else {
            state.agents.insert(agent.clone(), holdings);
        }
    }

    /// It is gone, or cannot be read.
    pub fn forget(&self, agent: &ObjectRef) {
        self.compiled(agent, Vec::new());
    }

    pub fn whose(&self, token: &[u8]) -> Whose {
        let sha256: [u8; 32] = Sha256::digest(token).into();
        let state = self.state();
        let mut found: BTreeMap<&ObjectRef, BTreeSet<Verb>> = BTreeMap::new();
        for (agent, holdings) in &state.agents {
            for holding in holdings {
                if bool::from(holding.sha256.ct_eq(&sha256)) {
                    found.entry(agent).or_default().extend(&holding.verbs);
                }
            }
        }
        if found.len() > 1 {
            let agents: Vec<String> = found.keys().map(ToString::to_string).collect();
            tracing::warn!(?agents, "these hold the same token for claw-api: refused");
            return Whose::Nobodys;
        }
        match found.pop_first() {
            Some((agent, verbs)) => Whose::One(Caller {
                agent: agent.clone(),
                verbs,
            }),
            None if state.not_compiled_yet.is_empty() => Whose::Nobodys,
            None => Whose::NotKnownYet,
        }
    }
}

/// What the agent of `compiled` holds for tools of `surface`. `value` gives a Secret's.
pub fn holdings(
    compiled: &Compilation,
    surface: &ObjectRef,
    value: impl Fn(&SecretKeyRef) -> Option<SecretText>,
) -> Vec<Holding> {
    let mut verbs: BTreeMap<SecretKeyRef, BTreeSet<Verb>> = BTreeMap::new();
    let own = compiled
        .tools
        .iter()
        .filter(|tool| tool.surface == *surface && tool.credential == CredentialKind::PerAgent);
    for tool in own {
        let Some((_, name)) = tool.name.split_once('.') else {
            continue;
        };
        if let (Some(verb), Some(reference)) = (Verb::named(name), token_of(compiled, tool)) {
            verbs.entry(reference).or_default().insert(verb);
        }
    }
    verbs
        .into_iter()
        .filter_map(|(reference, verbs)| {
            let token = value(&reference)?;
            let token = token.expose().as_bytes();
            (token.len() >= SHORTEST_TOKEN).then(|| Holding {
                sha256: Sha256::digest(token).into(),
                verbs,
            })
        })
        .collect()
}

/// The bearer token that calls of this tool carry, if its Secret is known to allow that.
fn token_of(compiled: &Compilation, summary: &ToolSummary) -> Option<SecretKeyRef> {
    let mut tools = compiled.files.tools.tools.iter();
    let tool = tools.find(|tool| tool.name == summary.name)?;
    let Some(Auth::Bearer {
        token: Some(token), ..
    }) = &tool.execution.auth
    else {
        return None;
    };
    let reference = SecretKeyRef::from_placeholder(token)?;
    match compiled.sources.get(&reference)?.state {
        SourceState::Known { .. } => Some(reference),
        SourceState::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_compile::{LoadResult, Settings, compile, load};

    use super::*;

    const OTTER: &str = "otter-token-3b81-and-more";
    const NEWT: &str = "newt-token-99ad-and-more";

    fn agent(name: &str) -> ObjectRef {
        ObjectRef::new("pond", name)
    }

    fn holding(token: &str, verbs: &[Verb]) -> Holding {
        Holding {
            sha256: Sha256::digest(token).into(),
            verbs: verbs.iter().copied().collect(),
        }
    }

    fn one(name: &str, verbs: &[Verb]) -> Whose {
        Whose::One(Caller {
            agent: agent(name),
            verbs: verbs.iter().copied().collect(),
        })
    }

    #[test]
    fn a_token_is_its_agents_while_it_holds_it_and_nobodys_while_two_do() {
        let holders = Holders::default();
        holders.begin([agent("otter"), agent("newt")]);
        assert_eq!(holders.whose(OTTER.as_bytes()), Whose::NotKnownYet);
        holders.compiled(&agent("otter"), vec![holding(OTTER, &[Verb::ListAgents])]);
        assert_eq!(
            holders.whose(OTTER.as_bytes()),
            one("otter", &[Verb::ListAgents])
        );
        assert_eq!(holders.whose(NEWT.as_bytes()), Whose::NotKnownYet);
        holders.compiled(&agent("newt"), vec![holding(NEWT, &[Verb::GetAgent])]);
        assert_eq!(
            holders.whose(NEWT.as_bytes()),
            one("newt", &[Verb::GetAgent])
        );
        assert_eq!(holders.whose(b""), Whose::Nobodys);
        assert_eq!(holders.whose(&OTTER.as_bytes()[1..]), Whose::Nobodys);

        holders.compiled(&agent("newt"), vec![holding(OTTER, &[Verb::GetAgent])]);
        assert_eq!(holders.whose(OTTER.as_bytes()), Whose::Nobodys);
        holders.forget(&agent("newt"));
        assert_eq!(
            holders.whose(OTTER.as_bytes()),
            one("otter", &[Verb::ListAgents])
        );
        holders.compiled(&agent("otter"), Vec::new());
        assert_eq!(holders.whose(OTTER.as_bytes()), Whose::Nobodys);
    }

    /// A pond whose otter may ask, and declares a surface of its own that only looks the same.
    const WORLD: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: pond, labels: {kubernetes.io/metadata.name: pond}}}
---
{apiVersion: v1, kind: Service, metadata: {name: claw, namespace: den}, spec: {ports: [{port: 443}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: pond, uid: u, resourceVersion: "1", labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: "claw.den.svc,own.example"}}
stringData: {token: otter-token-3b81-and-more, short: otter-token}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: claw-api, namespace: den}
spec:
  service: {name: claw, port: 443, scheme: https}
  auth: {type: Bearer, fallback: Deny}
  consumers: {namespaces: {from: All}}
  descriptor: DESCRIPTOR
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: own, namespace: pond}
spec:
  url: https://own.example
  descriptor: DESCRIPTOR
---
apiVersion: toolcrib.dev/v1alpha1
kind: Agent
metadata: {name: otter, namespace: pond}
spec: {surfaces: SURFACES}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: g, namespace: pond}
spec:
  agents: [otter]
  tools:
  - {surface: {name: claw-api, namespace: den}, allow: [list_agents, get_agent]}
  - {surface: {name: own}, allow: ["*"]}
"#;

    #[track_caller]
    fn check(surfaces: &str, expected: &[Holding]) {
        let text = WORLD
            .replace(
                "DESCRIPTOR",
                &super::super::descriptor::descriptor().to_string(),
            )
            .replace("SURFACES", surfaces);
        let LoadResult {
            inputs, secrets, ..
        } = load([("world.yaml".to_owned(), text)], Settings::default());
        let compiled = compile(&inputs, &agent("otter")).expect("the agent");
        let surface = ObjectRef::new("den", "claw-api");
        let found = holdings(&compiled, &surface, |reference| {
            secrets.get(reference).cloned()
        });
        assert_eq!(found, expected, "{:?}", compiled.withheld);
    }

    #[test]
    fn a_token_opens_what_is_granted_of_the_operators_own_surface() {
        let asked = |more: &str| format!("[{{name: claw-api, namespace: den{more}}}]");
        let key = |key: &str| format!(", secretKeyRef: {{name: token, key: {key}}}");
        let both = &[holding(OTTER, &[Verb::ListAgents, Verb::GetAgent])];
        check(&asked(&key("token")), both);
        check(&asked(&format!(", as: audit{}", key("token"))), both);
        // Without a token of its own, or with one that could be guessed.
        check(&asked(""), &[]);
        check(&asked(&key("short")), &[]);
        // Another surface opens nothing, whatever the agent calls it.
        let own = "{name: own, as: claw-api, secretKeyRef: {name: token, key: token}}";
        check(&format!("[{own}]"), &[]);
        let second = format!("{{name: claw-api, namespace: den{}}}", key("token"));
        check(&format!("[{own}, {second}]"), &[]);
    }
}
