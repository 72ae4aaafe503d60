//! Tokens of the link's audience: only kubelets get them.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use toolcrib_compile::names::LINK_AUDIENCE;

use crate::pods::{Kind, NamespaceKind};
use crate::policies::{Guard, eventually};

/// Requests a token bound to the injected pod. Returns `None` if the policies refuse.
async fn ask(client: &Client, guard: &Guard, audiences: &[&str]) -> Result<Option<String>> {
    let namespace = guard.namespace(NamespaceKind::Pond);
    let pod = Kind::Injected.name();
    let uid = guard.pods(&namespace).get(pod).await?.metadata.uid;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: audiences.iter().map(ToString::to_string).collect(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.to_owned()),
                uid,
            }),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let answer = accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await;
    match answer {
        Ok(answer) => Ok(Some(answer.status.context("a token")?.token)),
        Err(kube::Error::Api(status)) if status.message.contains("toolcrib: a token of") => {
            Ok(None)
        }
        Err(error) => bail!("{audiences:?}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_kubelets_get_a_token_for_the_link() -> Result<()> {
    let guard = Guard::open("tokens", &[]).await?;
    let name = guard.release();
    // Grants the right to create tokens, which the built-in role `edit` has. The nodes' group gets
    // it too, since no kubelet here could use the node's own right.
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) = (
        Api::all(guard.client.clone()),
        Api::all(guard.client.clone()),
    );
    let role = serde_json::from_value(json!({
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}],
    }))?;
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [group("editors"), group("system:nodes")],
    }))?;
    roles.create(&PostParams::default(), &role).await?;
    bindings.create(&PostParams::default(), &binding).await?;

    let editor = guard.member("heron", "editors").await?;
    eventually("the right and the policy are in force", || async {
        match ask(&editor, &guard, &[LINK_AUDIENCE]).await {
            Ok(None) => Ok(Some(())),
            Ok(Some(_)) | Err(_) => Ok(None),
        }
    })
    .await?;
    let other = "https://kubernetes.default.svc";
    let said = ask(&editor, &guard, &[other, LINK_AUDIENCE]).await?;
    ensure!(said.is_none(), "beside another audience");
    for audiences in [&[][..], &[other], &["toolcrib.dev/link2"]] {
        let token = ask(&editor, &guard, audiences).await?;
        ensure!(token.is_some(), "refused: {audiences:?}");
    }
    // A cluster administrator is not a kubelet.
    let said = ask(&guard.client, &guard, &[LINK_AUDIENCE]).await?;
    ensure!(said.is_none(), "an administrator");
    // The user is only a member of the nodes' group: for a user with a node's name, other checks of
    // the API server look for the pod's node.
    let kubelet = guard.member("reed", "system:nodes").await?;
    let token = ask(&kubelet, &guard, &[LINK_AUDIENCE]).await?;
    ensure!(token.is_some(), "a kubelet is refused");
    bindings.delete(name, &DeleteParams::default()).await?;
    roles.delete(name, &DeleteParams::default()).await?;
    guard.close().await
}
