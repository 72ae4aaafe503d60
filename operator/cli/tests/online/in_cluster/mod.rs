//! Lists a Service's tools through the API server, with only the rights that the documentation
//! names, and writes them into its Surface.
//!
//! The server is a program on this machine, at the address under which the API server reaches the
//! machine. A Pod claims that address, since the API server proxies to no other; it never runs.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::process::Output;
use std::time::Instant;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::scripted::ScriptedServer;
use super::{DEADLINE, POLL, client, define, kubeconfig, label, toolcrib};

const NAMESPACE: &str = "listed";

/// Returns the address of this machine for the API server.
fn our_address() -> IpAddr {
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.as_ref().unwrap();
    let url: url::Url = cluster.server.as_deref().unwrap().parse().unwrap();
    let peer = url.socket_addrs(|| None).unwrap();
    let address = TcpStream::connect(&*peer)
        .unwrap()
        .local_addr()
        .unwrap()
        .ip();
    assert!(
        !address.is_loopback(),
        "the API server proxies to no loopback address"
    );
    address
}

fn tools() -> Value {
    json!([
        {"name": "dive", "description": "Dives.", "annotations": {"destructiveHint": true},
         "inputSchema": {"type": "object", "properties": {"depth": {"type": "number"}}}},
        {"name": "swim", "description": "Swims.",
         "inputSchema": {"type": "object", "properties": {"far": {"type": "boolean"}}}},
    ])
}

async fn apply(client: &Client, plural: &str, object: Value) {
    let api = api(client, &object, plural);
    let name = object["metadata"]["name"].as_str().unwrap();
    let owner = PatchParams::apply("gitops").force();
    api.patch(name, &owner, &Patch::Apply(&object))
        .await
        .unwrap();
}

fn api(client: &Client, object: &Value, plural: &str) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().unwrap();
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

fn surface() -> Value {
    json!({
        "apiVersion": "toolcrib.dev/v1alpha1",
        "kind": "Surface",
        "metadata": {"name": "fish", "namespace": NAMESPACE},
        "spec": {
            "service": {"name": "carp", "port": 8080},
            "mcp": {"path": "/mcp"},
            "descriptor": {"version": 2, "tools": []},
        },
    })
}

/// Creates a user with these rights and no others.
async fn user(client: &Client, name: &str, rules: Value) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "rules": rules,
    });
    apply(client, "roles", role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    apply(client, "rolebindings", binding).await;
}

fn discover(files: &Path, flags: &[&str]) -> Output {
    let headers = files.join("headers");
    let mut all = vec![
        "surface",
        "discover",
        "fish",
        "-n",
        NAMESPACE,
        "--in-cluster",
    ];
    all.extend(["--header-file", headers.to_str().unwrap()]);
    all.extend(flags);
    toolcrib(&all)
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn failed(output: &Output, code: i32, words: &str) {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(words), "{errors}");
    assert_eq!(output.stdout, b"");
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Repeats a request: the API server learns rights and endpoints of a Service with a delay.
fn eventually(ask: impl Fn() -> Output, is_there: impl Fn(&Output) -> bool) -> Output {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let output = ask();
        if is_there(&output) {
            return output;
        }
        assert!(Instant::now() < deadline, "{}", errors(&output));
        std::thread::sleep(POLL);
    }
}

#[tokio::test]
async fn tools_are_listed_through_the_api_server_and_written() {
    let client = client().await;
    define(&client).await;
    label(&client, NAMESPACE, &json!({})).await;
    account(&client).await;
    let files = tempfile::tempdir().unwrap();
    let list = |tools: &Value| fs::write(files.path().join("tools.json"), tools.to_string());
    list(&tools()).unwrap();
    fs::write(files.path().join("headers"), "X-Otter: otter-token\n").unwrap();
    let address = our_address();
    let mut server = ScriptedServer::start(files.path(), address);
    let proxy = json!({"apiGroups": [""], "resources": ["services/proxy"], "resourceNames": ["carp:8080"], "verbs": ["create"]});
    let surfaces = |verbs: &[&str]| json!({"apiGroups": ["toolcrib.dev"], "resources": ["surfaces"], "resourceNames": ["fish"], "verbs": verbs});
    user(&client, "reader", json!([surfaces(&["get"]), proxy])).await;
    user(
        &client,
        "writer",
        json!([surfaces(&["get", "patch"]), proxy]),
    )
    .await;
    user(&client, "heron", json!([surfaces(&["get"])])).await;
    service(&client, address, server.port).await;
    apply(&client, "surfaces", surface()).await;
    let surfaces = api(&client, &surface(), "surfaces");
    let discover = |flags: &[&str]| discover(files.path(), flags);

    let reader = || discover(&["--as", "reader"]);
    let listed = eventually(reader, |it| it.status.success());
    let mut expected = surface();
    expected["spec"]["descriptor"]["tools"] = tools();
    let yaml: Value = serde_yaml::from_str(&succeeded(&listed)).unwrap();
    assert_eq!(yaml, expected);
    let all = errors(&listed);
    assert!(all.contains("added: dive\nadded: swim\n"), "{all}");
    assert!(all.contains("look: dive: says that it destroys"), "{all}");
    let check = || discover(&["--as", "reader", "--check"]);
    failed(&check(), 1, "added: dive");

    // A user without the right gets a message that names it.
    let heron = eventually(
        || discover(&["--as", "heron"]),
        |it| errors(it).contains("cannot create resource"),
    );
    failed(&heron, 1, "the API server answered 403");
    failed(
        &discover(&["--as", "nobody"]),
        1,
        "you may not read Surface listed/fish",
    );
    let version = async || {
        surfaces
            .get("fish")
            .await
            .unwrap()
            .resource_version()
            .unwrap()
    };
    let before = version().await;
    let write = |flags: &[&str]| discover(&[&["--apply", "--as", "writer"], flags].concat());
    let refused = eventually(|| write(&[]), |it| errors(it).contains("say --yes"));
    failed(&refused, 1, "look: dive: says that it destroys");
    failed(
        &write(&["--yes"]),
        1,
        "take them over with --force-conflicts",
    );
    assert_eq!(version().await, before);

    succeeded(&write(&["--yes", "--force-conflicts"]));
    let written = surfaces.get("fish").await.unwrap();
    assert_eq!(written.data["spec"], expected["spec"]);
    let managers = written.managed_fields().iter();
    let managers: Vec<&str> = managers.filter_map(|it| it.manager.as_deref()).collect();
    assert!(managers.contains(&"toolcrib-discover"), "{managers:?}");
    assert_eq!(succeeded(&check()), "");
    let before = version().await;
    let same = write(&[]);
    assert_eq!(succeeded(&same), "");
    assert!(errors(&same).contains("nothing is written"));
    assert_eq!(version().await, before);

    // The tool's own field manager writes now; lost tools still need a confirmation.
    drop(server);
    let mut fewer = tools();
    fewer.as_array_mut().unwrap().remove(0);
    list(&fewer).unwrap();
    server = ScriptedServer::start(files.path(), address);
    service(&client, address, server.port).await;
    let lost = eventually(|| write(&[]), |it| errors(it).contains("say --yes"));
    failed(&lost, 1, "removed: dive");
    succeeded(&write(&["--yes"]));
    let written = surfaces.get("fish").await.unwrap();
    assert_eq!(written.data["spec"]["descriptor"]["tools"], fewer);

    // A refusal of the server, and a header that would not reach it.
    fs::write(files.path().join("headers"), "X-Otter: heron-token\n").unwrap();
    failed(
        &discover(&[]),
        1,
        "401 Unauthorized: it refuses the credential of the file",
    );
    fs::write(
        files.path().join("headers"),
        "Authorization: Bearer otter-token\n",
    )
    .unwrap();
    failed(&discover(&[]), 2, "keeps the header Authorization");
}

/// Waits for the namespace's ServiceAccount: it is created with a delay, and pods need it.
async fn account(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let deadline = Instant::now() + DEADLINE;
    while accounts.get_opt("default").await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "no account in {NAMESPACE}");
        tokio::time::sleep(POLL).await;
    }
}

/// Creates the Service that leads to the program.
async fn service(client: &Client, address: IpAddr, port: u16) {
    let metadata = json!({"name": "carp", "namespace": NAMESPACE});
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulingGates": [{"name": "toolcrib.dev/never"}],
            "containers": [{"name": "carp", "image": "carp"}],
        },
    });
    apply(client, "pods", pod.clone()).await;
    let status = json!({"status": {"podIP": address, "podIPs": [{"ip": address}]}});
    let pods = api(client, &pod, "pods");
    let merge = Patch::Merge(&status);
    pods.patch_status("carp", &PatchParams::default(), &merge)
        .await
        .unwrap();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"ports": [{"port": 8080, "targetPort": port}]},
    });
    apply(client, "services", service).await;
    let target = json!({"kind": "Pod", "name": "carp", "namespace": NAMESPACE});
    let endpoints = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": metadata,
        "subsets": [{
            "addresses": [{"ip": address, "targetRef": target}],
            "ports": [{"port": port}],
        }],
    });
    apply(client, "endpoints", endpoints).await;
}
