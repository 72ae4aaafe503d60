//! The settings of the cluster's operator, on which its compilations depend.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use toolcrib_compile::Settings;

use crate::args::OperatorArgs;
use crate::operator;

/// Reads the operator's Deployment. If that is not possible, flags or the chart's defaults apply,
/// with a note unless flags are set.
pub async fn settings(
    client: &Client,
    given: &OperatorArgs,
    notes: &mut BTreeSet<String>,
) -> Settings {
    let why = match controller(client, given).await {
        Ok(Some(controller)) => {
            notes.extend(unavailable(&controller));
            match operator::settings_of(given, &controller) {
                Ok(settings) => return settings,
                Err(why) => format!("the operator's own flags cannot be decoded: {why}"),
            }
        }
        Ok(None) => format!(
            "there is no operator in namespace {}",
            given.operator_namespace
        ),
        Err(kube::Error::Api(status)) if status.code == 403 => format!(
            "you may not list deployments in namespace {}",
            given.operator_namespace
        ),
        Err(error) => format!("the operator's Deployment could not be read: {error}"),
    };
    let is_said = OperatorArgs {
        operator_namespace: given.operator_namespace.clone(),
        ..OperatorArgs::default()
    } != *given;
    if !is_said {
        notes.insert(format!(
            "{why}: it is taken to be set up as the chart has it (--operator-namespace, --refused-hosts, --dns-egress and --cluster-ranges say otherwise)"
        ));
    }
    operator::settings(given)
}

/// Returns a note if no pod of the controller is available: status is then out of date.
fn unavailable(controller: &Deployment) -> Option<String> {
    let status = controller.status.as_ref();
    let available = status.and_then(|status| status.available_replicas);
    let namespace = controller.namespace().unwrap_or_default();
    (available.unwrap_or_default() == 0).then(|| {
        format!(
            "no pod of the operator's controller is available: status is from before, and no change is compiled until one is (kubectl get pods -n {namespace})"
        )
    })
}

async fn controller(
    client: &Client,
    given: &OperatorArgs,
) -> Result<Option<Deployment>, kube::Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &given.operator_namespace);
    let found = api
        .list(&ListParams::default().labels(operator::CONTROLLER))
        .await?;
    Ok(found.items.into_iter().next())
}
