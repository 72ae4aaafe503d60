//! Reads objects as JSON, and logs, for a bug report.
//!
//! Objects that this release cannot decode are among them. Not here: what of them may leave the cluster
//! (`crate::doctor::bundle`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::{Api, Client, Resource};
use serde_json::Value;
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolApproval, ToolDecision, ToolDefaults,
    ToolGrant,
};

use super::read::why;
use super::release::INSTANCE_LABEL;
use super::{COMPONENT_LABEL, Facts, Gap, List, Refusal};
use crate::cluster::{Scope, Session};
use crate::failure::Failure;

/// Most objects of one kind, and objects of a page.
const MOST: usize = 5_000;
const PAGE: u32 = 500;
/// Limits on one log: its last lines, and their bytes.
const LINES: i64 = 2_000;
const BYTES: i64 = 1 << 20;

/// The objects of one kind.
pub struct Documents {
    pub kind: String,
    pub objects: List<Value>,
}

impl Session {
    /// Reads the objects of Toolcrib's kinds, and events, that [`Facts`] does not have as they are stored.
    pub fn documents(&self, facts: &Facts) -> Result<Vec<Documents>, Failure> {
        let (client, scope) = (self.client(), &facts.scope);
        let everywhere = &Scope::All;
        let mut inhabited = match scope {
            Scope::All => BTreeSet::new(),
            Scope::Namespaces(named) => named.clone(),
        };
        inhabited.insert(facts.release.namespace.clone());
        let with_system = match scope {
            Scope::All => Scope::All,
            Scope::Namespaces(_) => Scope::Namespaces(inhabited),
        };
        self.ask(async {
            let (a, b, c, d, e, f, g, h, i) = tokio::join!(
                kind::<Agent>(client, scope),
                kind::<Surface>(client, scope),
                kind::<ToolGrant>(client, scope),
                kind::<ToolDefaults>(client, scope),
                kind::<ModelProvider>(client, scope),
                kind::<ClusterToolPolicy>(client, everywhere),
                kind::<ToolApproval>(client, scope),
                kind::<ToolDecision>(client, scope),
                kind::<Event>(client, &with_system),
            );
            vec![a, b, c, d, e, f, g, h, i]
        })
    }

    /// Lists the pods of the operator.
    pub fn operator_pods(&self, facts: &Facts) -> List<Pod> {
        let scope = Scope::of(Some(facts.release.namespace.clone()));
        let labels = format!(
            "{INSTANCE_LABEL}={},{COMPONENT_LABEL}",
            facts.release.instance
        );
        let listed = self.ask(super::read::list(self.client(), &scope, &labels));
        listed.unwrap_or_else(|late| {
            Err(Gap {
                question: format!("list pods in namespace {}", facts.release.namespace),
                why: Refusal::Failed(late.to_string()),
            })
        })
    }

    /// Reads the end of a container's log.
    pub fn log(&self, namespace: &str, pod: &str, container: &str) -> Result<String, Gap> {
        let api: Api<Pod> = Api::namespaced(self.client().clone(), namespace);
        let params = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(LINES),
            limit_bytes: Some(BYTES),
            ..LogParams::default()
        };
        let gap = |why| Gap {
            question: format!("get pods/log {namespace}/{pod}"),
            why,
        };
        match self.ask(api.logs(pod, &params)) {
            Ok(read) => read.map_err(|error| gap(why(error))),
            Err(late) => Err(gap(Refusal::Failed(late.to_string()))),
        }
    }
}

async fn kind<K: Resource<DynamicType = ()>>(client: &Client, scope: &Scope) -> Documents {
    Documents {
        kind: K::kind(&()).into_owned(),
        objects: list(client, scope, &ApiResource::erase::<K>(&())).await,
    }
}

async fn list(client: &Client, scope: &Scope, resource: &ApiResource) -> List<Value> {
    let mut found = Vec::new();
    for namespace in scope.namespaces() {
        let gap = |why| Gap {
            question: match namespace {
                Some(namespace) => format!("list {} in namespace {namespace}", resource.plural),
                None => format!("list {} in all namespaces", resource.plural),
            },
            why,
        };
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = api
                .list(&parameters)
                .await
                .map_err(|error| gap(why(error)))?;
            for object in page.items {
                found.push(
                    serde_json::to_value(object)
                        .map_err(|error| gap(Refusal::Failed(error.to_string())))?,
                );
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if found.len() < MOST => {
                    parameters = parameters.continue_token(&token);
                }
                Some(_) | None => break,
            }
        }
    }
    Ok(found)
}
