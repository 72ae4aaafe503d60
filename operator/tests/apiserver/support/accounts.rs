//! Other users than the harness, and the chart's objects that limit them.

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::harness::Harness;

/// A client that impersonates a user.
pub async fn as_user(user: &str) -> Client {
    as_member(user, &[]).await
}

/// A client that impersonates a user who is in these groups.
pub async fn as_member(user: &str, groups: &[&str]) -> Client {
    let path = std::env::var("TOOLCRIB_TEST_KUBECONFIG").expect("a kubeconfig");
    let kubeconfig = Kubeconfig::read_from(path).expect("kubeconfig");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("config");
    config.auth_info.impersonate = Some(user.to_owned());
    let groups = groups.iter().map(|group| (*group).to_owned());
    config.auth_info.impersonate_groups = Some(groups.collect());
    Client::try_from(config).expect("client")
}

/// An API for one of these objects, which are not Toolcrib's.
pub fn api(harness: &Harness, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"]
        .as_str()
        .and_then(|text| text.split_once('/'))
        .expect("a group");
    let kind = object["kind"].as_str().expect("a kind");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(harness.client.clone(), namespace, &resource),
        None => Api::all_with(harness.client.clone(), &resource),
    }
}

/// Applies an object of the chart.
pub async fn apply(harness: &Harness, object: &Value) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    api(harness, object)
        .patch(
            name,
            &PatchParams::apply("toolcrib-test").force(),
            &Patch::Apply(object),
        )
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

pub async fn apply_all(harness: &Harness, objects: &[Value]) {
    for object in objects {
        apply(harness, object).await;
    }
}

pub async fn remove(harness: &Harness, objects: &[Value]) {
    for object in objects {
        let name = object["metadata"]["name"].as_str().expect("a name");
        api(harness, object)
            .delete(name, &DeleteParams::default())
            .await
            .expect("it is removed");
    }
}

/// Binds a ClusterRole to a user in one namespace.
pub fn binding(namespace: &str, user: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}
