//! Reads Secrets: those that a compilation refers to, and the compiled Secret of an earlier one.
//!
//! Not here: the cache and its bounds (the controller's `content_cache`), and the identity Secret.
//!
//! Invariant: values go to materialize only; logs and errors contain keys and the API server's
//! message.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource};
use toolcrib_compile::{
    Compilation, Key, Kind, LastGood, ObjectRef, Presence, SecretFacts, SecretKeyRef, SourceState,
    names,
};
use toolcrib_crds::Agent;
use toolcrib_manifest::SecretText;

use super::ReconcileError;
use crate::controller::context::Context;
use crate::controller::snapshot::content_cache::{Content, SecretRead, Values};
use crate::controller::write::apply::{self, Ownership};
use crate::controller::write::managed_object::ManagedObject;
use crate::objects::metadata::ObjectMetadata;

/// The Secrets of a piece of work, each at a fixed version, even if the watch or other work reads a
/// newer one meanwhile.
#[derive(Default)]
pub(super) struct SecretVersions {
    contents: BTreeMap<ObjectRef, Arc<Content<Values>>>,
    /// Secrets that could not be read, with the reason; their content is unknown.
    unread: BTreeMap<ObjectRef, String>,
    /// Whether a Secret was read whose keys were not known before.
    has_new_keys: bool,
}

impl SecretVersions {
    /// Whether `compiled` used exactly these versions and all of their keys.
    pub(super) fn matches(&self, compiled: &Compilation) -> bool {
        !self.has_new_keys
            && compiled
                .sources
                .iter()
                .all(|(reference, source)| match &source.state {
                    SourceState::Unknown => true,
                    SourceState::Known {
                        uid,
                        resource_version,
                    } => self.contents.get(&reference.secret).is_some_and(|content| {
                        content.version.uid == *uid
                            && content.version.resource_version == *resource_version
                    }),
                })
    }

    /// The facts about a Secret for compile. `facts` are those of the watched version.
    pub(super) fn facts(
        &self,
        key: &ObjectRef,
        facts: Presence<SecretFacts>,
    ) -> Presence<SecretFacts> {
        if let Some(why) = self.unread.get(key) {
            return Presence::Unknown(why.clone());
        }
        let (Presence::Present(mut facts), Some(content)) = (facts.clone(), self.contents.get(key))
        else {
            return facts;
        };
        if content.version.uid != facts.uid
            || content.version.resource_version != facts.resource_version
        {
            // The watch will deliver the other version, which causes another reconcile.
            return Presence::Unknown("it is being changed".to_owned());
        }
        facts.keys = Some(content.data.iter().map(|(key, _)| key.clone()).collect());
        Presence::Present(facts)
    }

    pub(super) fn value(&self, reference: &SecretKeyRef) -> Option<SecretText> {
        let content = self.contents.get(&reference.secret)?;
        content.data.get(&reference.key).cloned()
    }
}

/// Reads the Secrets that a compilation refers to.
pub(super) async fn read(context: &Context, compiled: &Compilation) -> SecretVersions {
    let secrets: BTreeSet<ObjectRef> = compiled
        .references()
        .into_iter()
        .map(|reference| reference.secret)
        .collect();
    let mut known = SecretVersions::default();
    for key in secrets {
        match context
            .content_cache
            .read_secret(&context.stores.secrets, &key)
            .await
        {
            Ok(None) => {}
            Ok(Some(SecretRead::OverBudget(why))) => {
                known.unread.insert(key, why.to_string());
            }
            Ok(Some(SecretRead::Cached(content))) => {
                known.contents.insert(key, content);
            }
            Ok(Some(SecretRead::Fetched(content))) => {
                // The keys are known now, so surfaces and providers can report missing ones.
                let mut users = context
                    .dependents
                    .of([&Key::Object(Kind::Secret, key.clone())]);
                users.retain(|work| !work.is_agent());
                context.queue.add_all(users);
                known.has_new_keys = true;
                known.contents.insert(key, content);
            }
            Err(error) => {
                tracing::warn!(secret = %key, error = %message(&error), "cannot read Secret");
                let why = "the API server refused or failed to return it".to_owned();
                known.unread.insert(key, why);
            }
        }
    }
    known
}

/// A short message that contains nothing of the response body.
fn message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    error.to_string()
}

/// The content of the current compiled Secret, if a source of the new one cannot be read.
pub(super) async fn last_good(
    context: &Context,
    agent: &Agent,
    compiled: &Compilation,
) -> Result<LastGood, ReconcileError> {
    let unknown = compiled
        .sources
        .values()
        .any(|source| source.state == SourceState::Unknown);
    if !unknown {
        return Ok(LastGood::default());
    }
    let key = ObjectRef::new(
        compiled.agent.namespace.clone(),
        names::mediator_secret(&compiled.agent.name),
    );
    let owner = apply::owner(agent);
    let found = find(context, &key)
        .await?
        // A Secret of another owner contains none of our values.
        .filter(|found| {
            apply::ownership(&ObjectMetadata::<Secret>::of(found.meta()), &owner) == Ownership::Ours
        });
    Ok(found.map_or_else(LastGood::default, |found| {
        LastGood::read(
            found
                .metadata
                .annotations
                .as_ref()
                .unwrap_or(&BTreeMap::new()),
            &found.content(),
        )
    }))
}

/// Reads a Secret from the API server, not from the store.
pub(super) async fn find(
    context: &Context,
    secret: &ObjectRef,
) -> Result<Option<Secret>, ReconcileError> {
    Api::<Secret>::namespaced(context.client.clone(), &secret.namespace)
        .get_opt(&secret.name)
        .await
        .map_err(|error| ReconcileError::ReadSecret(secret.clone(), error))
}

#[cfg(test)]
mod tests {
    use toolcrib_compile::{Allowlist, LastGood, Settings, compile, load, materialize};

    use super::*;
    use crate::objects::stores::Version;

    const WORLD: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: fish, namespace: pond}, spec: {ports: [{port: 80}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: pond, uid: u, resourceVersion: "1", labels: {toolcrib.dev/credential: "true"}, annotations: {toolcrib.dev/hosts: fish.pond.svc}}
stringData: {token: first}
---
apiVersion: toolcrib.dev/v1alpha1
kind: Surface
metadata: {name: fish, namespace: pond}
spec:
  service: {name: fish, port: 80}
  auth: {secretKeyRef: {name: creds, key: token}}
  descriptor: {version: 2, tools: [{name: list, inputSchema: {type: object}, http: {method: GET, path: /fish}}]}
---
{apiVersion: toolcrib.dev/v1alpha1, kind: Agent, metadata: {name: otter, namespace: pond}, spec: {surfaces: [{name: fish}]}}
---
apiVersion: toolcrib.dev/v1alpha1
kind: ToolGrant
metadata: {name: g, namespace: pond}
spec: {agents: [otter], tools: [{surface: {name: fish}, allow: [list]}]}
"#;

    fn creds() -> ObjectRef {
        ObjectRef::new("pond", "creds")
    }

    fn known(version: &str, token: &str) -> SecretVersions {
        let content = Content {
            version: Version {
                uid: "u".into(),
                resource_version: version.into(),
            },
            data: Values::from_iter([("token".to_owned(), SecretText::new(token))]),
        };
        SecretVersions {
            contents: BTreeMap::from([(creds(), Arc::new(content))]),
            ..SecretVersions::default()
        }
    }

    /// The facts about the watched version.
    fn watched(version: &str) -> Presence<SecretFacts> {
        Presence::Present(SecretFacts {
            labelled: true,
            allowlist: Allowlist::parse("fish.pond.svc", ""),
            keys: None,
            uid: "u".into(),
            resource_version: version.into(),
        })
    }

    fn compiled(secret: Presence<SecretFacts>) -> Compilation {
        let world = [("world.yaml".to_owned(), WORLD.to_owned())];
        let mut inputs = load(world, Settings::default()).inputs;
        inputs.set_secret(creds(), secret);
        compile(&inputs, &ObjectRef::new("pond", "otter")).unwrap()
    }

    #[test]
    fn the_compiled_version_is_the_version_that_was_read() {
        let known = known("1", "first");
        assert!(known.matches(&compiled(watched("1"))));
        // The watch advanced between compiling and reading, or the read is newer than the watch.
        assert!(!known.matches(&compiled(watched("2"))));
        assert!(!SecretVersions::default().matches(&compiled(watched("1"))));
        assert!(known.matches(&compiled(known.facts(&creds(), watched("2")))));
    }

    #[test]
    fn a_secret_that_changes_twice_keeps_its_tools() {
        let before = known("1", "first");
        let first = compiled(before.facts(&creds(), watched("1")));
        let written = materialize(&first, &|key| before.value(key), &LastGood::default(), &[]);
        assert_eq!(written.withheld, []);
        let last_good = LastGood::read(&written.annotations, &written.files);

        // The watch delivered version 2; the read returned version 3.
        let now = known("3", "third");
        let between = compiled(now.facts(&creds(), watched("2")));
        let kept = materialize(&between, &|key| now.value(key), &last_good, &[]);
        assert_eq!(kept.withheld, []);
        assert_eq!(kept.files["tools.json"], written.files["tools.json"]);

        let after = compiled(now.facts(&creds(), watched("3")));
        let rotated = materialize(&after, &|key| now.value(key), &last_good, &[]);
        assert_eq!(rotated.withheld, []);
        assert_ne!(rotated.files["tools.json"], written.files["tools.json"]);
        assert_ne!(rotated.digests.credentials, written.digests.credentials);
    }
}
