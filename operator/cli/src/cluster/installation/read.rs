//! Reads the facts: bounded lists, page by page, and several at once.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{GetParams, ListParams};
use kube::core::Request;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use toolcrib_compile::{Inputs, ObjectRef, names};
use toolcrib_crds::Agent;

use super::{Answer, CONTROLLER, Cause, Facts, Gap, List, Object, Release, component_of};
use crate::args::OperatorArgs;
use crate::cluster::read::{AT_ONCE, ListItem, pages};
use crate::cluster::{ReadError, Scope, Session, read_all};
use crate::failure::Failure;

/// Most objects of one list. For a larger cluster, the user names a namespace.
const MOST: usize = 20_000;
/// Selects the objects of the chart.
const OF_THE_CHART: &str = "app.kubernetes.io/part-of=toolcrib";

impl Session {
    /// Reads an installation, and the agents of the command's namespaces.
    pub fn installation(&self, operator_namespace: &str) -> Result<Facts, Failure> {
        let scope = Scope::of(self.namespace.clone());
        let server = self.ask(self.client().apiserver_version())?;
        let server = server.map_err(|error| {
            let doing = "ask for the release of the API server".to_owned();
            self.failure(ReadError::Api { doing, error })
        })?;
        self.ask(facts(
            self.client(),
            scope,
            operator_namespace,
            server.git_version,
        ))
    }
}

async fn facts(client: &Client, scope: Scope, operator: &str, server: String) -> Facts {
    let here = Scope::of(Some(operator.to_owned()));
    let deployments = list(client, &here, OF_THE_CHART).await;
    let controller = deployments.iter().flatten();
    let controller = { controller }.find(|it| component_of(it) == Some(CONTROLLER));
    let release = controller.map_or_else(|| Release::assumed(operator), Release::of);
    let given = OperatorArgs {
        operator_namespace: operator.to_owned(),
        ..OperatorArgs::default()
    };
    let all = Scope::All;
    let (installed, policies, bindings, definitions, objects) = tokio::join!(
        installed(client, &release),
        list(client, &all, ""),
        list(client, &all, ""),
        definitions(client),
        objects(client, &scope, &given),
    );
    let (agents, pods, network_policies, role_bindings) = tokio::join!(
        agents(client, &scope),
        list(client, &scope, names::AGENT_LABEL),
        list(client, &scope, ""),
        list(client, &scope, ""),
    );
    let (agents, undecodable) = agents;
    let mut facts = Facts {
        now: Timestamp::now(),
        scope,
        server,
        definitions,
        deployments,
        lease: installed.lease,
        mutating_webhooks: installed.mutating_webhooks,
        validating_webhooks: installed.validating_webhooks,
        endpoints: installed.endpoints,
        certificates: installed.certificates,
        policies,
        bindings,
        agents,
        undecodable,
        pods,
        namespaces: BTreeMap::new(),
        network_policies,
        role_bindings,
        agent_role: installed.agent_role,
        agent_role_binding: installed.agent_role_binding,
        objects,
        release,
    };
    let mut namespaces: BTreeSet<String> = facts
        .agent_namespaces()
        .into_iter()
        .map(str::to_owned)
        .collect();
    namespaces.extend([operator, names::DNS_NAMESPACE].map(str::to_owned));
    let found = stream::iter(namespaces).map(|name| async move {
        let namespace = get(client, None, &name).await;
        (name, namespace)
    });
    facts.namespaces = found.buffered(AT_ONCE).collect().await;
    facts
}

/// The objects of the chart that have one name each.
struct ChartObjects {
    lease: Object<Lease>,
    mutating_webhooks: Object<MutatingWebhookConfiguration>,
    validating_webhooks: Object<ValidatingWebhookConfiguration>,
    endpoints: List<EndpointSlice>,
    certificates: Object<ObjectMeta>,
    agent_role: Object<ClusterRole>,
    agent_role_binding: Object<ClusterRoleBinding>,
}

async fn installed(client: &Client, release: &Release) -> ChartObjects {
    let here = Some(&*release.namespace);
    let scope = Scope::of(Some(release.namespace.clone()));
    let agent_role = release.agent_role();
    let (lease, mutating_webhooks, validating_webhooks, endpoints, certificates, role, binding) = tokio::join!(
        get(client, here, &release.lease),
        get(client, None, &release.name),
        get(client, None, &release.name),
        list(client, &scope, ""),
        metadata(client, &release.namespace, &release.certificate_secret),
        get(client, None, &agent_role),
        get(client, None, &agent_role),
    );
    ChartObjects {
        lease,
        mutating_webhooks,
        validating_webhooks,
        endpoints,
        certificates,
        agent_role: role,
        agent_role_binding: binding,
    }
}

async fn definitions(client: &Client) -> BTreeMap<String, Object<CustomResourceDefinition>> {
    let names = toolcrib_crds::definitions();
    let names = names.into_iter().map(|definition| definition.name_any());
    let found = stream::iter(names).map(|name| async move {
        let definition = get(client, None, &name).await;
        (name, definition)
    });
    found.buffered(AT_ONCE).collect().await
}

/// Lists the Agents; those that cannot be decoded have the reason instead.
async fn agents(client: &Client, scope: &Scope) -> (List<Agent>, BTreeMap<ObjectRef, String>) {
    let mut undecodable = BTreeMap::new();
    let agents = items::<Agent>(client, scope, "").await.map(|items| {
        let decoded = items.into_iter().filter_map(|item| match item.object {
            Ok(agent) => Some(agent),
            Err(why) => {
                undecodable.insert(item.key, why);
                None
            }
        });
        decoded.collect()
    });
    (agents, undecodable)
}

/// Reads the objects as `compile` does.
async fn objects(client: &Client, scope: &Scope, given: &OperatorArgs) -> Answer<Inputs> {
    let question = match scope {
        Scope::All => "read the objects of all namespaces".to_owned(),
        Scope::Namespaces(named) => {
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            format!("read the objects of namespace {}", named.join(", "))
        }
    };
    let read = read_all(client, scope, given, None).await;
    let gap = |question, why| Gap { question, why };
    match read {
        Ok(cluster) => Ok(cluster.loaded.inputs),
        Err(ReadError::Api { doing, error }) => Err(gap(doing, why(error))),
        Err(ReadError::TooMany(over)) => Err(gap(question, Cause::Failed(over.to_string()))),
        Err(ReadError::NoPolicies(_)) => {
            let question = "list clustertoolpolicies in all namespaces".to_owned();
            Err(gap(question, Cause::Forbidden))
        }
    }
}

/// Lists a built-in kind. One object that cannot be decoded fails the list.
pub(super) async fn list<K>(client: &Client, scope: &Scope, labels: &str) -> List<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let items = items::<K>(client, scope, labels).await?;
    let objects = items.into_iter().map(|item| {
        item.object.map_err(|why| Gap {
            question: format!("decode {} {}", K::kind(&()), item.key),
            why: Cause::Failed(why),
        })
    });
    objects.collect()
}

async fn items<K>(client: &Client, scope: &Scope, labels: &str) -> List<ListItem<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let mut all = Vec::new();
    for namespace in scope.namespaces() {
        let gap = |why| Gap {
            question: list_request::<K>(namespace),
            why,
        };
        let parameters = ListParams::default().labels(labels);
        let found = pages(client, namespace, parameters, MOST).await;
        all.extend(found.map_err(|error| gap(why(error)))?);
        if all.len() >= MOST {
            let bound = format!("there are {MOST} or more: narrow it with --namespace");
            return Err(gap(Cause::Failed(bound)));
        }
    }
    Ok(all)
}

/// The words of a list request, for [`Gap`].
pub(super) fn list_request<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> String {
    let resource = K::plural(&());
    match namespace {
        Some(namespace) => format!("list {resource} in namespace {namespace}"),
        None => format!("list {resource} in all namespaces"),
    }
}

/// Reads one object; `namespace` is `None` for a kind without namespaces.
async fn get<K>(client: &Client, namespace: Option<&str>, name: &str) -> Object<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let read = async {
        let request = Request::new(K::url_path(&(), namespace))
            .get(name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        client.request::<K>(request).await
    };
    answer(read.await, || match namespace {
        Some(namespace) => format!("get {} {namespace}/{name}", K::plural(&())),
        None => format!("get {} {name}", K::plural(&())),
    })
}

/// Reads the metadata of a Secret, without its values.
async fn metadata(client: &Client, namespace: &str, name: &str) -> Object<ObjectMeta> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let read = api.get_metadata(name).await;
    answer(read.map(|secret| secret.metadata), || {
        format!("get secrets {namespace}/{name}")
    })
}

fn answer<T>(read: Result<T, kube::Error>, question: impl FnOnce() -> String) -> Object<T> {
    match read {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(Gap {
            question: question(),
            why: why(error),
        }),
    }
}

pub(super) fn why(error: kube::Error) -> Cause {
    let kube::Error::Api(status) = &error else {
        return Cause::Failed(error.to_string());
    };
    match status.code {
        403 => Cause::Forbidden,
        _ => Cause::Failed(status.message.clone()),
    }
}
