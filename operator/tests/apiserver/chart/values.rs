//! The chart rendered with unusual but valid values.

use std::net::IpAddr;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::harness::{Harness, rendered, rendered_for_cluster};

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is).unwrap_or(&Value::Null)
}

#[test]
fn operator_pods_run_on_linux_with_the_set_priority_and_no_service_links() {
    let critical = [
        "--set=controller.priorityClassName=system-cluster-critical",
        "--set=webhook.priorityClassName=system-cluster-critical",
        "--set=controller.nodeSelector.pool=system",
    ];
    let [plain, objects] = [rendered(&[]), rendered(&critical)];
    for name in ["toolcrib-controller", "toolcrib-webhook"] {
        let pod = |objects| &named(objects, "Deployment", name)["spec"]["template"]["spec"];
        assert_eq!(pod(&plain)["nodeSelector"]["kubernetes.io/os"], "linux");
        assert_eq!(pod(&plain)["enableServiceLinks"], false);
        assert_eq!(pod(&plain)["priorityClassName"], Value::Null);
        assert_eq!(
            pod(&objects)["priorityClassName"],
            "system-cluster-critical"
        );
    }
    let controller = named(&objects, "Deployment", "toolcrib-controller");
    assert_eq!(
        controller["spec"]["template"]["spec"]["nodeSelector"],
        json!({"kubernetes.io/os": "linux", "pool": "system"})
    );
}

#[test]
fn controller_and_webhook_refuse_the_same_hosts() {
    let objects = rendered(&[
        "--set=controller.refusedHosts={vault.test,db.test}",
        "--set=dns.clusterDomain=reef.example",
    ]);
    for name in ["toolcrib-controller", "toolcrib-webhook"] {
        let pod = &named(&objects, "Deployment", name)["spec"]["template"]["spec"];
        let arguments: Vec<&str> = pod["containers"][0]["args"]
            .as_array()
            .expect("arguments")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for argument in [
            "--namespace=default",
            "--webhook-service=toolcrib-webhook",
            "--link-service=toolcrib-link",
            "--refused-hosts=vault.test,db.test",
            "--cluster-domain=reef.example",
        ] {
            assert!(arguments.contains(&argument), "{name}: {arguments:?}");
        }
    }
}

#[test]
fn values_of_a_parent_chart_are_accepted() {
    let whole = ["--set=enabled=true", "--set=global.storageClass=fast"];
    assert_eq!(rendered(&whole), rendered(&[]));
    // The one global value that this chart reads, as others do.
    let mirrored = rendered(&["--set=global.imageRegistry=registry.test/mirror"]);
    let text = serde_json::to_string(&mirrored).expect("JSON");
    assert!(text.contains("\"registry.test/mirror/toolcrib/operator:"));
    assert!(!text.contains("docker.io/toolcrib"));
}

#[test]
fn a_node_drain_evicts_one_replica_at_a_time() {
    let budgets = |objects: &[Value]| -> Vec<Value> {
        ["toolcrib-controller", "toolcrib-webhook"]
            .map(|name| {
                named(objects, "PodDisruptionBudget", name)["spec"]["maxUnavailable"].clone()
            })
            .to_vec()
    };
    assert_eq!(budgets(&rendered(&[])), [json!(1), json!(1)]);
    let single = ["--set=controller.replicas=1", "--set=webhook.replicas=1"];
    assert_eq!(budgets(&rendered(&single)), [Value::Null, Value::Null]);
}

#[test]
fn a_namespace_name_that_yaml_would_convert_is_quoted() {
    let objects = rendered(&["--set-string=secretNamespaces={on,123}"]);
    let rights = |object: &&Value| {
        object["kind"] == "RoleBinding" && object["metadata"]["name"] == "toolcrib-materials"
    };
    let bound: Vec<&Value> = objects.iter().filter(rights).collect();
    let namespaces: Vec<&Value> = bound
        .iter()
        .map(|object| &object["metadata"]["namespace"])
        .collect();
    assert_eq!(namespaces, [&json!("on"), &json!("123")]);
}

/// The other end of a connection.
struct End {
    address: IpAddr,
    labels: Value,
}

fn end(address: &str, labels: Value) -> End {
    let address = address.parse().expect("an address");
    End { address, labels }
}

/// True if a rule of that policy allows the connection: by port (or its name) and the other end.
fn allows(policy: &Value, direction: &str, port: &str, other: &End) -> bool {
    let side = if direction == "ingress" { "from" } else { "to" };
    let rules = policy["spec"][direction].as_array().into_iter().flatten();
    rules
        .filter(|rule| {
            let ports = rule["ports"].as_array().into_iter().flatten();
            ports.into_iter().any(|named| match named["port"].as_str() {
                Some(name) => name == port,
                None => named["port"].as_u64() == port.parse().ok(),
            })
        })
        .any(|rule| match rule[side].as_array() {
            None => true,
            Some(peers) => peers.iter().any(|peer| is_peer(peer, other)),
        })
}

fn is_peer(peer: &Value, other: &End) -> bool {
    if let Some(range) = peer["ipBlock"]["cidr"].as_str() {
        // A range of one address is all that these tests use.
        let (address, _) = range.split_once('/').expect("a range");
        return address.parse() == Ok(other.address);
    }
    assert_eq!(peer["namespaceSelector"], json!({}), "of every namespace");
    let wanted = peer["podSelector"]["matchExpressions"].as_array();
    wanted.expect("expressions").iter().all(|expression| {
        assert_eq!(expression["operator"], "Exists");
        other
            .labels
            .get(expression["key"].as_str().expect("a key"))
            .is_some()
    })
}

/// Allows the connections of docs/guide.md and no others. The tests' cluster enforces no policy.
#[test]
fn network_policies_allow_only_the_documented_connections() {
    let policy = |objects: &[Value], name: &str| named(objects, "NetworkPolicy", name).clone();
    for name in ["toolcrib-webhook", "toolcrib-controller"] {
        assert_eq!(policy(&rendered(&[]), name), Value::Null, "off by default");
    }
    let settings = [
        "--set=networkPolicies.enabled=true",
        "--set=networkPolicies.apiServers={192.0.2.1/32}",
        "--set=clawApi.enabled=true",
        r#"--set-json=networkPolicies.metricsFrom=[{"namespaceSelector":{},"podSelector":{"matchExpressions":[{"key":"prometheus","operator":"Exists"}]}}]"#,
    ];
    let objects = rendered(&settings);
    let api_server = end("192.0.2.1", json!({}));
    let agent = end("10.0.0.1", json!({"toolcrib.dev/agent": "otter"}));
    let scraper = end("10.0.0.2", json!({"prometheus": "main"}));
    let stranger = end("10.0.0.3", json!({"app": "otter"}));
    let ends = [&api_server, &agent, &scraper, &stranger];
    for (name, direction, port, expected) in [
        (
            "toolcrib-webhook",
            "ingress",
            "webhook",
            [true, false, false, false],
        ),
        (
            "toolcrib-webhook",
            "ingress",
            "status",
            [false, false, true, false],
        ),
        (
            "toolcrib-webhook",
            "egress",
            "6443",
            [true, false, false, false],
        ),
        (
            "toolcrib-webhook",
            "egress",
            "443",
            [true, false, false, false],
        ),
        ("toolcrib-webhook", "egress", "53", [true, true, true, true]),
        ("toolcrib-webhook", "egress", "80", [false; 4]),
        (
            "toolcrib-controller",
            "ingress",
            "link",
            [false, true, false, false],
        ),
        (
            "toolcrib-controller",
            "ingress",
            "claw-api",
            [false, true, false, false],
        ),
        (
            "toolcrib-controller",
            "ingress",
            "status",
            [false, false, true, false],
        ),
        (
            "toolcrib-controller",
            "egress",
            "6443",
            [true, false, false, false],
        ),
        (
            "toolcrib-controller",
            "egress",
            "443",
            [true, false, false, false],
        ),
        (
            "toolcrib-controller",
            "egress",
            "53",
            [true, true, true, true],
        ),
    ] {
        let policy = policy(&objects, name);
        let allowed = ends.map(|other| allows(&policy, direction, port, other));
        assert_eq!(allowed, expected, "{name} {direction} {port}");
    }
    for name in ["toolcrib-webhook", "toolcrib-controller"] {
        let policy = policy(&objects, name);
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        let template = &named(&objects, "Deployment", name)["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        let selected = policy["spec"]["podSelector"]["matchLabels"].as_object();
        for (key, value) in selected.expect("labels") {
            assert_eq!(&labels[key], value, "{name} selects its pods");
        }
        // Each port by its name in the container.
        let ports = template["spec"]["containers"][0]["ports"].as_array();
        let has = |name: &Value| {
            ports
                .expect("ports")
                .iter()
                .any(|port| port["name"] == *name)
        };
        let rules = policy["spec"]["ingress"].as_array().expect("rules");
        for rule in rules {
            for port in rule["ports"].as_array().expect("ports") {
                assert!(has(&port["port"]), "{name}: {port}");
            }
        }
    }
    // Without addresses the API server may be anywhere, and other clients are refused.
    let open = rendered(&["--set=networkPolicies.enabled=true"]);
    let webhook = policy(&open, "toolcrib-webhook");
    assert!(allows(&webhook, "ingress", "webhook", &stranger));
    let controller = policy(&open, "toolcrib-controller");
    assert!(!allows(&controller, "ingress", "link", &stranger));
}

/// Otherwise Helm would remove a path of an earlier chart while webhooks answer at no other.
#[tokio::test(flavor = "multi_thread")]
async fn helm_keeps_the_webhook_paths_in_force() {
    // A mutating configuration that names a path, and no validating one.
    let harness = Harness::new().await;
    let helms = json!({"metadata": {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": harness.system,
            "meta.helm.sh/release-namespace": "default",
        },
    }});
    let params = PatchParams::default();
    let patched = harness.webhooks();
    patched
        .patch(&harness.system, &params, &Patch::Merge(helms))
        .await
        .expect("patched");
    let objects = rendered_for_cluster(&harness.system);
    let paths = [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    .map(|kind| {
        let configuration = named(&objects, kind, &harness.system);
        configuration["webhooks"][0]["clientConfig"]["service"]["path"].clone()
    });
    assert_eq!(paths, [json!("/mutate"), Value::Null]);
    harness.end().await;
}

/// Without both marks the controller writes no secret path.
#[test]
fn webhook_pods_and_configurations_are_marked_for_secret_paths() {
    let objects = rendered(&[]);
    let (key, value) = ("toolcrib.dev/webhook-path", "named");
    let pods = &named(&objects, "Deployment", "toolcrib-webhook")["spec"]["template"]["metadata"];
    assert_eq!(pods["labels"][key], value);
    for kind in [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ] {
        let configuration = named(&objects, kind, "toolcrib");
        assert_eq!(configuration["metadata"]["annotations"][key], value);
    }
    let controller = named(&objects, "Deployment", "toolcrib-controller");
    let arguments = &controller["spec"]["template"]["spec"]["containers"][0]["args"];
    let pods = "--webhook-pods=app.kubernetes.io/name=toolcrib,app.kubernetes.io/instance=toolcrib,app.kubernetes.io/component=webhook";
    assert!(
        arguments
            .as_array()
            .expect("arguments")
            .contains(&json!(pods))
    );
}

/// As compared by Argo CD and Flux: equal each time, without the fields that the controller fills
/// in.
#[test]
fn rendering_is_reproducible_without_fields_of_the_controller() {
    let objects = rendered(&[]);
    assert_eq!(objects, rendered(&[]));
    let kinds: Vec<&Value> = objects.iter().map(|object| &object["kind"]).collect();
    assert!(!kinds.contains(&&json!("Lease")));
    let secret = named(&objects, "Secret", "toolcrib-certificates");
    assert_eq!(secret["data"], Value::Null);
    let bundles = objects
        .iter()
        .flat_map(|object| object["webhooks"].as_array());
    for webhook in bundles.flatten() {
        assert_eq!(webhook["clientConfig"]["caBundle"], Value::Null);
        assert_eq!(webhook["clientConfig"]["service"]["path"], Value::Null);
    }
}
