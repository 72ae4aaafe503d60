//! Reading single Secrets and ConfigMaps, once per version.
//!
//! The watches bring metadata only. What compile asks for is read one by one, and kept
//! until the metadata names another version. Values are never logged; `Debug` of a cached
//! Secret shows its keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use toolcrib_compile::{ObjectRef, Presence, SecretFacts};
use toolcrib_manifest::SecretText;

use super::decode::MetaOf;
use super::stores::{Scoped, Version};
use kube::Resource;

pub struct Readers {
    client: Client,
    pub secrets: Cache<BTreeMap<String, SecretText>>,
    pub config_maps: Cache<BTreeMap<String, String>>,
}

/// One version of each object that was asked for.
#[derive(Debug)]
pub struct Cache<T>(Mutex<HashMap<ObjectRef, (Version, Arc<T>)>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> Cache<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectRef, (Version, Arc<T>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, key: &ObjectRef, version: &Version) -> Option<Arc<T>> {
        let cache = self.lock();
        let (cached, content) = cache.get(key)?;
        (cached == version).then(|| Arc::clone(content))
    }

    fn put(&self, key: ObjectRef, version: Version, content: Arc<T>) {
        self.lock().insert(key, (version, content));
    }

    pub fn forget(&self, key: &ObjectRef) {
        self.lock().remove(key);
    }
}

impl Readers {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            secrets: Cache::default(),
            config_maps: Cache::default(),
        }
    }

    /// What is known of a Secret without reading it now. Its keys are known once any
    /// compilation has read this version.
    pub fn secret_facts(&self, table: &Scoped<Secret>, key: &ObjectRef) -> Presence<SecretFacts> {
        match table.look_up(key) {
            Presence::Present(found) => {
                let Some(version) = Version::of(&*found) else {
                    return Presence::Unknown("its metadata has no version".to_owned());
                };
                let keys: Option<BTreeSet<String>> = self
                    .secrets
                    .get(key, &version)
                    .map(|content| content.keys().cloned().collect());
                let empty = BTreeMap::new();
                Presence::Present(SecretFacts::from_metadata(
                    found.meta().labels.as_ref().unwrap_or(&empty),
                    found.meta().annotations.as_ref().unwrap_or(&empty),
                    &version.uid,
                    &version.resource_version,
                    keys,
                ))
            }
            Presence::Absent => Presence::Absent,
            Presence::Unknown(why) => Presence::Unknown(why),
        }
    }

    /// Reads the version of a Secret that the table names, unless it was read before.
    /// `Ok(true)`: something new is known.
    pub async fn read_secret(
        &self,
        table: &Scoped<Secret>,
        key: &ObjectRef,
    ) -> Result<bool, kube::Error> {
        let Some(version) = present(table, key) else {
            return Ok(false);
        };
        if self.secrets.get(key, &version).is_some() {
            return Ok(false);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let Some(secret) = api.get_opt(&key.name).await? else {
            return Ok(false);
        };
        // What was read may be newer than what the watch has brought; then it is kept under
        // its own version and used when the watch gets there.
        let Some(version) = Version::of(&secret) else {
            return Ok(false);
        };
        let content = secret
            .data
            .unwrap_or_default()
            .into_iter()
            .filter_map(|(key, bytes)| Some((key, SecretText::new(text(bytes.0)?))))
            .collect();
        self.secrets.put(key.clone(), version, Arc::new(content));
        Ok(true)
    }

    /// The values of the version that the table names, if they were read.
    pub fn secret_values(
        &self,
        table: &Scoped<Secret>,
        key: &ObjectRef,
    ) -> Option<Arc<BTreeMap<String, SecretText>>> {
        self.secrets.get(key, &present(table, key)?)
    }

    pub async fn config_map(
        &self,
        table: &Scoped<ConfigMap>,
        key: &ObjectRef,
    ) -> Presence<BTreeMap<String, String>> {
        let version = match table.look_up(key) {
            Presence::Present(found) => Version::of(&*found),
            Presence::Absent => return Presence::Absent,
            Presence::Unknown(why) => return Presence::Unknown(why),
        };
        let Some(version) = version else {
            return Presence::Unknown("its metadata has no version".to_owned());
        };
        if let Some(content) = self.config_maps.get(key, &version) {
            return Presence::Present((*content).clone());
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.get_opt(&key.name).await {
            Ok(Some(found)) => {
                let data = found.data.clone().unwrap_or_default();
                if let Some(version) = Version::of(&found) {
                    self.config_maps
                        .put(key.clone(), version, Arc::new(data.clone()));
                }
                Presence::Present(data)
            }
            Ok(None) => Presence::Absent,
            Err(kube::Error::Api(status)) => Presence::Unknown(status.message.clone()),
            Err(error) => {
                tracing::warn!(%key, %error, "ConfigMap not read");
                Presence::Unknown("the API server could not be asked".to_owned())
            }
        }
    }
}

fn present<K: Resource>(table: &Scoped<K>, key: &ObjectRef) -> Option<Version>
where
    MetaOf<K>: Resource,
{
    match table.look_up(key) {
        Presence::Present(found) => Version::of(&*found),
        Presence::Absent | Presence::Unknown(_) => None,
    }
}

/// A credential is text; one trailing newline comes from `echo` and is never meant.
fn text(bytes: Vec<u8>) -> Option<String> {
    let mut text = String::from_utf8(bytes).ok()?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Some(text)
}
