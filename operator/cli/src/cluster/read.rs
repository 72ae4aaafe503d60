//! Reads lists and single objects. Each object is decoded by itself, so an object that cannot be
//! decoded does not end the list.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolcrib_compile::{ObjectRef, Presence};

use super::ReadError;

/// Limit on parallel requests: a large cluster takes seconds, a small one is not flooded.
pub const AT_ONCE: usize = 16;
/// Objects per page.
const PAGE: u32 = 500;

/// The namespaces that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// One namespace, or all.
    pub fn of(namespace: Option<String>) -> Self {
        namespace.map_or(Self::All, |one| Self::Namespaces(BTreeSet::from([one])))
    }

    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(namespaces) => namespaces.contains(namespace),
        }
    }

    /// Returns the namespaces to list one by one; `None` stands for all at once.
    pub fn namespaces(&self) -> Vec<Option<&str>> {
        match self {
            Self::All => vec![None],
            Self::Namespaces(namespaces) => {
                namespaces.iter().map(|name| Some(name.as_str())).collect()
            }
        }
    }
}

/// An object of a list. `Err`: why it cannot be decoded.
pub struct ListItem<K> {
    pub key: ObjectRef,
    pub object: Result<K, String>,
}

impl<K> ListItem<K> {
    pub fn ok(&self) -> Option<(&ObjectRef, &K)> {
        Some((&self.key, self.object.as_ref().ok()?))
    }
}

/// Lists all objects of a kind, page by page.
pub async fn list<K>(client: &Client, scope: &Scope) -> Result<Vec<ListItem<K>>, ReadError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let mut all = Vec::new();
    for namespace in scope.namespaces() {
        let found = pages(client, namespace, ListParams::default(), usize::MAX);
        let found = found.await.map_err(|error| {
            let place = match namespace {
                Some(namespace) => format!("namespace {namespace}"),
                None => "all namespaces".to_owned(),
            };
            let doing = format!("list {} in {place}", K::plural(&()));
            ReadError::Api { doing, error }
        })?;
        all.extend(found);
    }
    Ok(all)
}

/// Lists objects page by page, and stops at the page that reaches `most` objects.
pub async fn pages<K>(
    client: &Client,
    namespace: Option<&str>,
    parameters: ListParams,
    most: usize,
) -> Result<Vec<ListItem<K>>, kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let mut found = Vec::new();
    let path = K::url_path(&(), namespace);
    let all = each_page(client, &path, parameters, |page| {
        for item in page {
            found.push(decode(item.get())?);
        }
        Ok(match found.len() < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    });
    // Whether there are more objects does not matter here.
    let (ControlFlow::Continue(()) | ControlFlow::Break(())) = all.await?;
    Ok(found)
}

/// Lists objects page by page, as texts. `Break`: `take` wanted no more of them, and there are more.
pub async fn each_page(
    client: &Client,
    path: &str,
    parameters: ListParams,
    mut take: impl FnMut(Vec<Box<RawValue>>) -> Result<ControlFlow<()>, serde_json::Error>,
) -> Result<ControlFlow<()>, kube::Error> {
    #[derive(Deserialize)]
    struct Page {
        metadata: ListMeta,
        items: Vec<Box<RawValue>>,
    }
    let mut parameters = parameters.limit(PAGE);
    loop {
        let request = Request::new(path)
            .list(&parameters)
            .map_err(kube::Error::BuildRequest)?;
        let text = client.request_text(request).await?;
        let page: Page = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        let wants_more = take(page.items).map_err(kube::Error::SerdeError)?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(_) if wants_more.is_break() => return Ok(ControlFlow::Break(())),
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(ControlFlow::Continue(())),
        }
    }
}

/// Reads an object of one of Toolcrib's kinds by name.
pub async fn get_one<K>(
    client: &Client,
    key: ObjectRef,
) -> Result<Presence<Result<K, String>>, ReadError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let text = async {
        let request = Request::new(K::url_path(&(), Some(&key.namespace)))
            .get(&key.name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        match client.request_text(request).await {
            Ok(text) => decode::<K>(&text)
                .map(|found| Some(found.object))
                .map_err(kube::Error::SerdeError),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    };
    get(&K::kind(&()), &key, text.await)
}

/// Converts an answer to a presence; a forbidden object is Unknown, not an error.
pub fn get<T>(
    kind: &str,
    key: &ObjectRef,
    found: Result<Option<T>, kube::Error>,
) -> Result<Presence<T>, ReadError> {
    match found {
        Ok(Some(object)) => Ok(Presence::Present(object)),
        Ok(None) => Ok(Presence::Absent),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Presence::Unknown(status.message.clone()))
        }
        Err(error) => {
            let doing = format!("read {kind} {key}");
            Err(ReadError::Api { doing, error })
        }
    }
}

/// Asks one question about each of these; returns the answers in order.
pub async fn each<T, F>(
    keys: BTreeSet<ObjectRef>,
    ask: impl Fn(ObjectRef) -> F,
) -> Result<Vec<(ObjectRef, T)>, ReadError>
where
    F: Future<Output = Result<T, ReadError>>,
{
    futures::stream::iter(keys)
        .map(|key| {
            let answer = ask(key.clone());
            async move { Ok((key, answer.await?)) }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// Fails only if not even the name can be decoded.
fn decode<K: Resource<DynamicType = ()> + DeserializeOwned>(
    text: &str,
) -> Result<ListItem<K>, serde_json::Error> {
    #[derive(Deserialize)]
    struct MetadataOnly {
        metadata: Name,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
        #[serde(default)]
        namespace: String,
    }
    let Name { name, namespace } = serde_json::from_str::<MetadataOnly>(text)?.metadata;
    let text = toolcrib_crds::without_managed_fields(text)?;
    let object = toolcrib_crds::decode(&K::kind(&()), &text).map_err(|error| error.to_string());
    Ok(ListItem {
        key: ObjectRef::new(namespace, name),
        object,
    })
}

#[cfg(test)]
mod tests {
    use toolcrib_crds::Agent;

    use super::*;

    #[test]
    fn an_undecodable_object_keeps_its_name() {
        let text =
            r#"{"metadata": {"name": "otter", "namespace": "pond"}, "spec": {"surfaces": 7}}"#;
        let found: ListItem<Agent> = decode(text).unwrap();
        assert_eq!(found.key, ObjectRef::new("pond", "otter"));
        assert_eq!(
            found.object.unwrap_err(),
            "spec.surfaces: is the number 7: write a list, each entry of it after a dash"
        );
    }

    #[test]
    fn managed_fields_of_any_depth_are_accepted() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let text = format!(
            r#"{{"metadata": {{"managedFields": {deep}, "name": "otter", "namespace": "pond"}}, "spec": {{}}}}"#
        );
        let found: ListItem<Agent> = decode(&text).unwrap();
        assert!(found.object.is_ok(), "{:?}", found.object);
    }
}
