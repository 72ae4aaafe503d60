//! Maps claw-api tokens to the Agents that own them and to the verbs that they permit.
//!
//! The tokens are those that compile puts into agents' files for claw-api's own Surface; only their
//! hashes are kept. A token that two Agents share is refused, since the caller is ambiguous. Until
//! this leader has compiled every agent that existed when it began, an unknown token may still
//! belong to one of them.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toolcrib_compile::{
    Compilation, CredentialKind, ObjectRef, SecretKeyRef, SourceState, ToolSummary,
};
use toolcrib_manifest::{Auth, SecretText};

use super::verbs::Verb;

/// Minimum length of a token in bytes: any pod of the cluster may try to guess it.
pub const SHORTEST_TOKEN: usize = 16;

/// A token of an agent, and the verbs that it permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    sha256: [u8; 32],
    pub verbs: BTreeSet<Verb>,
}

/// The authenticated agent of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub agent: ObjectRef,
    pub verbs: BTreeSet<Verb>,
}

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenOwner {
    Agent(Caller),
    /// No agent has the token, or two agents have it.
    None,
    /// Not every agent is compiled yet.
    NotKnownYet,
}

#[derive(Debug, Default)]
pub struct Tokens(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The agents that have a token.
    agents: BTreeMap<ObjectRef, Vec<TokenGrant>>,
    not_compiled_yet: BTreeSet<ObjectRef>,
}

impl Tokens {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Drops all tokens. Until these agents are compiled, an unknown token may belong to one of
    /// them.
    pub fn begin(&self, agents: impl IntoIterator<Item = ObjectRef>) {
        *self.state() = State {
            agents: BTreeMap::new(),
            not_compiled_yet: agents.into_iter().collect(),
        };
    }

    /// Replaces the agent's tokens after a compilation.
    pub fn set(&self, agent: &ObjectRef, grants: Vec<TokenGrant>) {
        let mut state = self.state();
        state.not_compiled_yet.remove(agent);
        if grants.is_empty() {
            state.agents.remove(agent);
        } else {
            state.agents.insert(agent.clone(), grants);
        }
    }

    /// Removes an agent that was deleted or cannot be decoded.
    pub fn forget(&self, agent: &ObjectRef) {
        self.set(agent, Vec::new());
    }

    /// Finds the owner of a token, in constant time per known token.
    pub fn owner(&self, token: &[u8]) -> TokenOwner {
        let sha256: [u8; 32] = Sha256::digest(token).into();
        let state = self.state();
        let mut found: BTreeMap<&ObjectRef, BTreeSet<Verb>> = BTreeMap::new();
        for (agent, grants) in &state.agents {
            for grant in grants {
                if bool::from(grant.sha256.ct_eq(&sha256)) {
                    found.entry(agent).or_default().extend(&grant.verbs);
                }
            }
        }
        if found.len() > 1 {
            let agents: Vec<String> = found.keys().map(ToString::to_string).collect();
            tracing::warn!(
                ?agents,
                "claw-api request refused: agents share the same token"
            );
            return TokenOwner::None;
        }
        match found.pop_first() {
            Some((agent, verbs)) => TokenOwner::Agent(Caller {
                agent: agent.clone(),
                verbs,
            }),
            None if state.not_compiled_yet.is_empty() => TokenOwner::None,
            None => TokenOwner::NotKnownYet,
        }
    }
}

/// Returns the tokens that the compiled agent has for tools of `surface`. `value` reads a Secret's
/// value.
pub fn token_grants(
    compiled: &Compilation,
    surface: &ObjectRef,
    value: impl Fn(&SecretKeyRef) -> Option<SecretText>,
) -> Vec<TokenGrant> {
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
            (token.len() >= SHORTEST_TOKEN).then(|| TokenGrant {
                sha256: Sha256::digest(token).into(),
                verbs,
            })
        })
        .collect()
}

/// Returns the reference to the bearer token of the tool's calls, if its Secret is known to permit
/// this use.
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

    fn grant(token: &str, verbs: &[Verb]) -> TokenGrant {
        TokenGrant {
            sha256: Sha256::digest(token).into(),
            verbs: verbs.iter().copied().collect(),
        }
    }

    fn one(name: &str, verbs: &[Verb]) -> TokenOwner {
        TokenOwner::Agent(Caller {
            agent: agent(name),
            verbs: verbs.iter().copied().collect(),
        })
    }

    #[test]
    fn a_token_that_two_agents_share_is_refused() {
        let tokens = Tokens::default();
        tokens.begin([agent("otter"), agent("newt")]);
        assert_eq!(tokens.owner(OTTER.as_bytes()), TokenOwner::NotKnownYet);
        tokens.set(&agent("otter"), vec![grant(OTTER, &[Verb::ListAgents])]);
        assert_eq!(
            tokens.owner(OTTER.as_bytes()),
            one("otter", &[Verb::ListAgents])
        );
        assert_eq!(tokens.owner(NEWT.as_bytes()), TokenOwner::NotKnownYet);
        tokens.set(&agent("newt"), vec![grant(NEWT, &[Verb::GetAgent])]);
        assert_eq!(
            tokens.owner(NEWT.as_bytes()),
            one("newt", &[Verb::GetAgent])
        );
        assert_eq!(tokens.owner(b""), TokenOwner::None);
        assert_eq!(tokens.owner(&OTTER.as_bytes()[1..]), TokenOwner::None);

        tokens.set(&agent("newt"), vec![grant(OTTER, &[Verb::GetAgent])]);
        assert_eq!(tokens.owner(OTTER.as_bytes()), TokenOwner::None);
        tokens.forget(&agent("newt"));
        assert_eq!(
            tokens.owner(OTTER.as_bytes()),
            one("otter", &[Verb::ListAgents])
        );
        tokens.set(&agent("otter"), Vec::new());
        assert_eq!(tokens.owner(OTTER.as_bytes()), TokenOwner::None);
    }

    /// A namespace with an agent that is granted claw-api, and an own surface with the same
    /// descriptor.
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
    fn check(surfaces: &str, expected: &[TokenGrant]) {
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
        let found = token_grants(&compiled, &surface, |reference| {
            secrets.get(reference).cloned()
        });
        assert_eq!(found, expected, "{:?}", compiled.withheld);
    }

    #[test]
    fn a_token_permits_the_verbs_granted_on_the_operators_own_surface() {
        let asked = |more: &str| format!("[{{name: claw-api, namespace: den{more}}}]");
        let key = |key: &str| format!(", secretKeyRef: {{name: token, key: {key}}}");
        let both = &[grant(OTTER, &[Verb::ListAgents, Verb::GetAgent])];
        check(&asked(&key("token")), both);
        check(&asked(&format!(", as: audit{}", key("token"))), both);
        // The agent has no token of its own, or one that is too short.
        check(&asked(""), &[]);
        check(&asked(&key("short")), &[]);
        // A grant on another surface permits no verb, even if the agent calls that surface
        // `claw-api`.
        let own = "{name: own, as: claw-api, secretKeyRef: {name: token, key: token}}";
        check(&format!("[{own}]"), &[]);
        let second = format!("{{name: claw-api, namespace: den{}}}", key("token"));
        check(&format!("[{own}, {second}]"), &[]);
    }
}
