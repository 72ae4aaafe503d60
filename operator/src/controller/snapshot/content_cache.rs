//! A cache of the content of Secrets and ConfigMaps, which are read once per version.
//!
//! The watches deliver metadata only. The objects that compile needs are read one by one. Their
//! content is kept until the metadata names another version and that version was read. If a
//! ConfigMap cannot be read, the facts contain its last good content, marked as such. Values are
//! never logged; `Debug` of a cached Secret shows its keys only.
//!
//! The cache does not survive the process: after a restart there is no last good content, and an
//! object that cannot be read is unknown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use toolcrib_bounds::weight;
use toolcrib_compile::{
    ConfigMapFacts, Kind, ObjectRef, Presence, SecretFacts, credential_value, names,
};
use toolcrib_manifest::SecretText;

use crate::objects::budget::{Budget, Shortage};
use crate::objects::decode::BASE_WEIGHT;
use crate::objects::stores::{ScopedStore, Version};
use kube::Resource;

/// Most bytes of an operator's own Secret (the tokens of an agent) that count against no budget.
const OWN_SECRET: usize = 16 * 1024;

pub struct ContentCache {
    client: Client,
    budget: Arc<Budget>,
    /// Versions of ConfigMaps and Secrets that were over a budget, so that they are not read again.
    out: Mutex<HashMap<(Kind, ObjectRef), Version>>,
    pub secrets: Cache<Values>,
    pub config_maps: Cache<Arc<BTreeMap<String, String>>>,
}

/// The content of one version of an object.
#[derive(Debug)]
pub struct Content<T> {
    pub version: Version,
    pub data: T,
}

/// A Secret's keys and values, as a list: every agent has a Secret, mostly of a single key, and a
/// map allocates room for eleven.
#[derive(Debug)]
pub struct Values(Box<[(String, SecretText)]>);

/// The result of reading a Secret.
#[derive(Debug)]
pub enum SecretRead {
    Cached(Arc<Content<Values>>),
    Fetched(Arc<Content<Values>>),
    /// The Secret is over a budget.
    OverBudget(Shortage),
}

impl Values {
    pub fn iter(&self) -> impl Iterator<Item = (&String, &SecretText)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn get(&self, key: &str) -> Option<&SecretText> {
        let (_, value) = self.iter().find(|(name, _)| *name == key)?;
        Some(value)
    }
}

impl FromIterator<(String, SecretText)> for Values {
    fn from_iter<I: IntoIterator<Item = (String, SecretText)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// The last version of each object that was read.
#[derive(Debug)]
pub struct Cache<T>(Mutex<HashMap<ObjectRef, Arc<Content<T>>>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> Cache<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef, Arc<Content<T>>>> {
        self.0.lock()
    }

    pub fn get(&self, key: &ObjectRef, version: &Version) -> Option<Arc<Content<T>>> {
        let cache = self.lock();
        let content = cache.get(key)?;
        (content.version == *version).then(|| Arc::clone(content))
    }

    /// The last content of the object, of any version. If `uid` is known, it must match: an object
    /// that was recreated is another one.
    pub fn last_good(&self, key: &ObjectRef, uid: Option<&str>) -> Option<Arc<Content<T>>> {
        let cache = self.lock();
        let content = cache.get(key)?;
        uid.is_none_or(|uid| uid == content.version.uid)
            .then(|| Arc::clone(content))
    }

    fn put(&self, key: ObjectRef, version: Version, data: T) -> Arc<Content<T>> {
        let content = Arc::new(Content { version, data });
        self.lock().insert(key, Arc::clone(&content));
        content
    }

    pub fn forget(&self, key: &ObjectRef) {
        self.lock().remove(key);
    }

    fn keys(&self, namespace: &str) -> Vec<(ObjectRef, Version)> {
        let cache = self.lock();
        let here = cache.iter().filter(|(key, _)| key.namespace == namespace);
        here.map(|(key, content)| (key.clone(), content.version.clone()))
            .collect()
    }

    fn all(&self) -> Vec<ObjectRef> {
        self.lock().keys().cloned().collect()
    }
}

impl ContentCache {
    pub fn new(client: Client, budget: Arc<Budget>) -> Self {
        Self {
            client,
            budget,
            out: Mutex::default(),
            secrets: Cache::default(),
            config_maps: Cache::default(),
        }
    }

    /// The facts about a Secret that need no read. Its keys are known once a compilation has read
    /// this version.
    pub fn secret_facts(
        &self,
        store: &ScopedStore<Secret>,
        key: &ObjectRef,
    ) -> Presence<SecretFacts> {
        match store.look_up(key) {
            Presence::Present(found) => {
                let Some(version) = Version::of(&*found) else {
                    return Presence::Unknown("its metadata has no version".to_owned());
                };
                let keys: Option<BTreeSet<String>> = self
                    .secrets
                    .get(key, &version)
                    .map(|content| content.data.iter().map(|(key, _)| key.clone()).collect());
                Presence::Present(SecretFacts::from_metadata(
                    &found.labels(),
                    &found.annotations(),
                    &version.uid,
                    &version.resource_version,
                    keys,
                ))
            }
            Presence::Absent => Presence::Absent,
            Presence::Unknown(why) => Presence::Unknown(why),
        }
    }

    /// Reads a Secret that is in the store, unless that version was read before. The content may be
    /// newer than the watched version. `None` if the Secret does not exist.
    pub async fn read_secret(
        &self,
        store: &ScopedStore<Secret>,
        key: &ObjectRef,
    ) -> Result<Option<SecretRead>, kube::Error> {
        let Some(version) = present(store, key) else {
            return Ok(None);
        };
        if let Some(why) = self.shortage(Kind::Secret, key, &version) {
            return Ok(Some(SecretRead::OverBudget(why)));
        }
        if let Some(content) = self.secrets.get(key, &version) {
            return Ok(Some(SecretRead::Cached(content)));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(secret) = version.read(&api, &key.name).await? else {
            return Ok(None);
        };
        // A newer version is kept as such, and used once the watch delivers it.
        let Some(version) = Version::of(&secret) else {
            return Ok(None);
        };
        let data = secret.data.unwrap_or_default();
        // The operator's own Secrets are small, and every agent has one.
        let ours = secret
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(names::COMPILED_FOR_LABEL));
        let bytes: usize = data
            .iter()
            .map(|(key, value)| key.len() + value.0.len())
            .sum();
        let created = secret.metadata.creation_timestamp.as_ref();
        let created = created.map(|time| time.0);
        let counts = !ours || bytes > OWN_SECRET;
        if counts && let Err(why) = self.enter(Kind::Secret, key, &version, created, bytes) {
            self.secrets.forget(key);
            return Ok(Some(SecretRead::OverBudget(why)));
        }
        let values = data
            .into_iter()
            .filter_map(|(key, bytes)| Some((key, credential_value(bytes.0)?)))
            .collect();
        let content = self.secrets.put(key.clone(), version, values);
        Ok(Some(SecretRead::Fetched(content)))
    }

    /// The values of the watched version, if they were read.
    pub fn secret_values(
        &self,
        store: &ScopedStore<Secret>,
        key: &ObjectRef,
    ) -> Option<Arc<Content<Values>>> {
        self.secrets.get(key, &present(store, key)?)
    }

    /// The facts about a ConfigMap, if they need no read. `None` if the watched version must be
    /// read.
    pub fn config_map_facts(
        &self,
        store: &ScopedStore<ConfigMap>,
        key: &ObjectRef,
    ) -> Option<ConfigMapFacts> {
        let version = match store.look_up(key) {
            Presence::Present(found) => Version::of(&*found),
            Presence::Absent => return Some(ConfigMapFacts::Absent),
            Presence::Unknown(why) => return Some(self.unread(key, None, why)),
        };
        let Some(version) = version else {
            let why = "its metadata has no version".to_owned();
            return Some(self.unread(key, None, why));
        };
        if let Some(why) = self.shortage(Kind::ConfigMap, key, &version) {
            return Some(ConfigMapFacts::TooExpensive(why.to_string()));
        }
        let content = self.config_maps.get(key, &version)?;
        Some(ConfigMapFacts::Present(Arc::clone(&content.data)))
    }

    /// The content of a ConfigMap. If the watched version cannot be read, the content of the last
    /// version that was read.
    pub async fn config_map(
        &self,
        store: &ScopedStore<ConfigMap>,
        key: &ObjectRef,
    ) -> ConfigMapFacts {
        if let Some(facts) = self.config_map_facts(store, key) {
            return facts;
        }
        let known = present(store, key);
        let uid = known.as_ref().map(|version| version.uid.as_str());
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let read = match &known {
            Some(known) => known.read(&api, &key.name).await,
            None => api.get_opt(&key.name).await,
        };
        match read {
            Ok(Some(found)) => {
                let version = Version::of(&found);
                let created = found.metadata.creation_timestamp.as_ref();
                let created = created.map(|time| time.0);
                let data = Arc::new(found.data.unwrap_or_default());
                if let Some(version) = version {
                    // The weight of a descriptor's text after decoding.
                    let texts = data.iter().map(|(key, text)| key.len() + weight(text));
                    let weight = texts.sum();
                    let entered = self.enter(Kind::ConfigMap, key, &version, created, weight);
                    if let Err(why) = entered {
                        self.config_maps.forget(key);
                        return ConfigMapFacts::TooExpensive(why.to_string());
                    }
                    self.config_maps
                        .put(key.clone(), version, Arc::clone(&data));
                }
                ConfigMapFacts::Present(data)
            }
            Ok(None) => ConfigMapFacts::Absent,
            Err(kube::Error::Api(status)) => self.unread(key, uid, status.message.clone()),
            Err(error) => {
                tracing::warn!(%key, %error, "cannot read ConfigMap");
                let why = "the API server could not be reached".to_owned();
                self.unread(key, uid, why)
            }
        }
    }

    fn out(&self) -> MutexGuard<'_, HashMap<(Kind, ObjectRef), Version>> {
        self.out.lock()
    }

    /// The shortage for which a version that was read before is not kept, if it persists.
    fn shortage(&self, kind: Kind, key: &ObjectRef, version: &Version) -> Option<Shortage> {
        let out = self.out().get(&(kind, key.clone())) == Some(version);
        if !out {
            return None;
        }
        self.budget.check(kind, key).err()
    }

    /// Enters an object that was read into the budget. `Ok` if it may be kept.
    fn enter(
        &self,
        kind: Kind,
        key: &ObjectRef,
        version: &Version,
        created: Option<Timestamp>,
        weight: usize,
    ) -> Result<(), Shortage> {
        let verdict = self.budget.enter(kind, key, created, BASE_WEIGHT + weight);
        let mut out = self.out();
        match verdict {
            Ok(()) => out.remove(&(kind, key.clone())),
            Err(_) => out.insert((kind, key.clone()), version.clone()),
        };
        verdict
    }

    /// Forgets the content of an object that was deleted, or that no object refers to.
    pub fn forget(&self, kind: Kind, key: &ObjectRef) {
        match kind {
            Kind::Secret => self.secrets.forget(key),
            Kind::ConfigMap => self.config_maps.forget(key),
            Kind::Surface
            | Kind::Agent
            | Kind::ToolGrant
            | Kind::ToolDefaults
            | Kind::ModelProvider
            | Kind::ClusterToolPolicy
            | Kind::Service
            | Kind::Namespace => return,
        }
        self.out().remove(&(kind, key.clone()));
        self.budget.remove(kind, key);
    }

    /// Evicts the objects of a namespace that are over the budget now. Returns the objects whose
    /// dependents must be requeued: these, and the objects that are within it again.
    pub fn settle(&self, kind: Kind, namespace: &str) -> Vec<ObjectRef> {
        let kept = match kind {
            Kind::Secret => self.secrets.keys(namespace),
            Kind::ConfigMap => self.config_maps.keys(namespace),
            Kind::Surface
            | Kind::Agent
            | Kind::ToolGrant
            | Kind::ToolDefaults
            | Kind::ModelProvider
            | Kind::ClusterToolPolicy
            | Kind::Service
            | Kind::Namespace => Vec::new(),
        };
        let mut moved = Vec::new();
        for (key, version) in kept {
            if self.budget.check(kind, &key).is_ok() {
                continue;
            }
            match kind {
                Kind::Secret => self.secrets.forget(&key),
                Kind::ConfigMap => self.config_maps.forget(&key),
                Kind::Surface
                | Kind::Agent
                | Kind::ToolGrant
                | Kind::ToolDefaults
                | Kind::ModelProvider
                | Kind::ClusterToolPolicy
                | Kind::Service
                | Kind::Namespace => {}
            }
            self.out().insert((kind, key.clone()), version);
            moved.push(key);
        }
        let back: Vec<ObjectRef> = self
            .out()
            .keys()
            .filter(|(other, key)| {
                *other == kind && key.namespace == namespace && self.budget.check(kind, key).is_ok()
            })
            .map(|(_, key)| key.clone())
            .collect();
        for key in back {
            self.out().remove(&(kind, key.clone()));
            moved.push(key);
        }
        moved
    }

    /// Forgets ConfigMaps and Secrets for which `is_used` is false.
    pub fn sweep(&self, is_used: impl Fn(Kind, &ObjectRef) -> bool) {
        let secrets = self
            .secrets
            .all()
            .into_iter()
            .map(|key| (Kind::Secret, key));
        let config_maps = self.config_maps.all().into_iter();
        let config_maps = config_maps.map(|key| (Kind::ConfigMap, key));
        let out: Vec<(Kind, ObjectRef)> = self.out().keys().cloned().collect();
        for (kind, key) in secrets.chain(config_maps).chain(out) {
            if !is_used(kind, &key) {
                self.forget(kind, &key);
            }
        }
    }

    fn unread(&self, key: &ObjectRef, uid: Option<&str>, why: String) -> ConfigMapFacts {
        match self.config_maps.last_good(key, uid) {
            Some(content) => ConfigMapFacts::LastGood {
                data: Arc::clone(&content.data),
                why,
            },
            None => ConfigMapFacts::Unknown(why),
        }
    }
}

fn present<K>(store: &ScopedStore<K>, key: &ObjectRef) -> Option<Version>
where
    K: Resource<DynamicType = ()>,
{
    match store.look_up(key) {
        Presence::Present(found) => Version::of(&*found),
        Presence::Absent | Presence::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::client::Body;
    use kube_runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::objects::metadata::ObjectMetadata;
    use crate::objects::store::StoreWriter;
    use crate::objects::stores::SecretScope;

    /// A step of ConfigMap pond/docs: its watched uid and version (`None` if deleted), and the API
    /// server's answer to a read, if one is expected.
    type Step<'a> = (Option<(&'a str, &'a str)>, Option<(u16, serde_json::Value)>);

    fn content(uid: &str, version: &str, text: &str) -> Option<(u16, serde_json::Value)> {
        let metadata = json!({
            "namespace": "pond", "name": "docs", "uid": uid, "resourceVersion": version,
        });
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text},
        });
        Some((200, body))
    }

    fn refused(code: u16, message: &str) -> Option<(u16, serde_json::Value)> {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
            "message": message, "reason": if code == 404 { "NotFound" } else { "Forbidden" },
        });
        Some((code, body))
    }

    fn object_metadata(uid: &str, version: &str) -> ObjectMetadata<ConfigMap> {
        ObjectMetadata::of(&ObjectMeta {
            namespace: Some("pond".to_owned()),
            name: Some("docs".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        })
    }

    /// Compares the facts of each step.
    #[track_caller]
    fn check(steps: Vec<(Step<'_>, ConfigMapFacts)>) {
        let answers: Arc<Mutex<VecDeque<_>>> = Arc::default();
        let server = Arc::clone(&answers);
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(
                request.uri().path(),
                "/api/v1/namespaces/pond/configmaps/docs"
            );
            let (code, body) = server.lock().pop_front().expect("an expected read");
            let body: serde_json::Value = body;
            let answer = Response::builder()
                .status::<u16>(code)
                .body(Body::from(body.to_string().into_bytes()))
                .expect("an answer");
            async move { Ok::<_, Infallible>(answer) }
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let content_cache = ContentCache::new(
                Client::new(service, "pond"),
                Arc::new(Budget::new(usize::MAX, usize::MAX)),
            );
            let store = ScopedStore::new(&SecretScope::Cluster);
            let (_, watched_store) = store.each().remove(0);
            let mut writer = StoreWriter::new(watched_store);
            for (index, ((watched, read), expected)) in steps.into_iter().enumerate() {
                answers.lock().extend(read);
                writer.apply(Event::Init);
                if let Some((uid, version)) = watched {
                    writer.apply(Event::InitApply(object_metadata(uid, version)));
                }
                writer.apply(Event::InitDone);
                let key = ObjectRef::new("pond", "docs");
                let found = content_cache.config_map(&store, &key).await;
                assert_eq!(found, expected, "step {index}");
                let left = answers.lock().len();
                assert_eq!(left, 0, "step {index} read nothing");
            }
        });
    }

    fn present(text: &str) -> ConfigMapFacts {
        ConfigMapFacts::Present(data(text))
    }

    fn last_good(text: &str, why: &str) -> ConfigMapFacts {
        ConfigMapFacts::LastGood {
            data: data(text),
            why: why.to_owned(),
        }
    }

    fn data(text: &str) -> Arc<BTreeMap<String, String>> {
        Arc::new([("text".to_owned(), text.to_owned())].into())
    }

    #[test]
    fn a_version_is_read_once() {
        check(vec![
            ((Some(("u", "1")), content("u", "1", "old")), present("old")),
            ((Some(("u", "1")), None), present("old")),
            ((Some(("u", "2")), content("u", "2", "new")), present("new")),
        ]);
    }

    #[test]
    fn the_last_good_content_is_used_while_a_newer_version_cannot_be_read() {
        check(vec![
            ((Some(("u", "1")), content("u", "1", "old")), present("old")),
            (
                (Some(("u", "2")), refused(403, "forbidden")),
                last_good("old", "forbidden"),
            ),
            (
                (Some(("u", "2")), refused(504, "timeout")),
                last_good("old", "timeout"),
            ),
            ((Some(("u", "2")), content("u", "2", "new")), present("new")),
        ]);
    }

    #[test]
    fn an_unread_recreated_or_deleted_object_has_no_last_good_content() {
        let forbidden = || refused(403, "forbidden");
        let unknown = || ConfigMapFacts::Unknown("forbidden".to_owned());
        check(vec![
            ((Some(("u", "1")), forbidden()), unknown()),
            ((Some(("u", "1")), content("u", "1", "old")), present("old")),
            ((Some(("other", "2")), forbidden()), unknown()),
            (
                (Some(("u", "3")), refused(404, "gone")),
                ConfigMapFacts::Absent,
            ),
            ((None, None), ConfigMapFacts::Absent),
        ]);
    }
}
