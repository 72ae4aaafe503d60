//! Reads objects as JSON, and logs, for a bug report.
//!
//! The objects include those that this release cannot decode. Not here: their redaction
//! (`crate::doctor::bundle`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, Resource};
use serde_json::Value;
use toolcrib_crds::{
    Agent, ClusterToolPolicy, ModelProvider, Surface, ToolApproval, ToolDecision, ToolDefaults,
    ToolGrant,
};

use super::read::{list_request, why};
use super::release::INSTANCE_LABEL;
use super::{COMPONENT_LABEL, Cause, Facts, Gap, List};
use crate::cluster::read::each_page;
use crate::cluster::{Scope, Session};
use crate::failure::Failure;

/// Most objects of one kind.
const MAX_OBJECTS: usize = 5_000;
/// Most bytes of the objects of one kind.
const MAX_BYTES: usize = 16 << 20;
/// Lines at the end of a log that are read.
const LOG_LINES: i64 = 2_000;
/// Most bytes of a log.
const LOG_BYTES: i64 = 1 << 20;

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
        let mut namespaces = match scope {
            Scope::All => BTreeSet::new(),
            Scope::Namespaces(named) => named.clone(),
        };
        namespaces.insert(facts.release.namespace.clone());
        let with_system = match scope {
            Scope::All => Scope::All,
            Scope::Namespaces(_) => Scope::Namespaces(namespaces),
        };
        self.ask(async {
            let kinds = tokio::join!(
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
            Vec::from(<[Documents; 9]>::from(kinds))
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
                why: Cause::Failed(late.to_string()),
            })
        })
    }

    /// Reads the end of a container's log.
    pub fn log(&self, namespace: &str, pod: &str, container: &str) -> Result<String, Gap> {
        let api: Api<Pod> = Api::namespaced(self.client().clone(), namespace);
        let params = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let gap = |why| Gap {
            question: format!("get pods/log {namespace}/{pod}"),
            why,
        };
        match self.ask(api.logs(pod, &params)) {
            Ok(read) => read.map_err(|error| gap(why(error))),
            Err(late) => Err(gap(Cause::Failed(late.to_string()))),
        }
    }
}

async fn kind<K: Resource<DynamicType = ()>>(client: &Client, scope: &Scope) -> Documents {
    Documents {
        kind: K::kind(&()).into_owned(),
        objects: list::<K>(client, scope).await,
    }
}

async fn list<K: Resource<DynamicType = ()>>(client: &Client, scope: &Scope) -> List<Value> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for namespace in scope.namespaces() {
        let gap = |why| Gap {
            question: list_request::<K>(namespace),
            why,
        };
        let path = K::url_path(&(), namespace);
        let all = each_page(client, &path, ListParams::default(), |page| {
            for item in page {
                bytes += item.get().len();
                let text = toolcrib_crds::without_managed_fields(item.get())?;
                found.push(serde_json::from_str(&text)?);
            }
            Ok(match found.len() < MAX_OBJECTS && bytes < MAX_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        });
        if all.await.map_err(|error| gap(why(error)))?.is_break() {
            let bound = format!(
                "there are more than {MAX_OBJECTS} objects or {} MiB: narrow it with --namespace",
                MAX_BYTES >> 20
            );
            return Err(gap(Cause::Failed(bound)));
        }
    }
    Ok(found)
}
