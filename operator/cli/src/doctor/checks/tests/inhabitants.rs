//! Faults of agents, and of what they use.

use serde_json::{Value, json};

use super::healthy::{Cluster, otter};
use super::{check, findings};
use crate::doctor::finding::Level;

#[test]
fn agents() {
    fn condition(cluster: &mut Cluster, index: usize, status: &str, reason: &str, message: &str) {
        let condition = &mut cluster.get("Agent", "otter")["status"]["conditions"][index];
        condition["status"] = json!(status);
        condition["reason"] = json!(reason);
        condition["message"] = json!(message);
    }
    check(
        |it| condition(it, 1, "False", "AllWithheld", "every tool is withheld"),
        &[&format!(
            "agents: ERROR: Agent {} is not ready: AllWithheld: every tool is withheld => `kubectl describe agent otter -n pond`",
            otter()
        )],
    );
    check(
        |it| {
            condition(
                it,
                1,
                "True",
                "ServiceUnreachable",
                "otter-1: fish: refused",
            )
        },
        &["agents: WARNING: Agent pond/otter: ServiceUnreachable: otter-1: fish: refused"],
    );
    check(
        |it| {
            it.get("Agent", "otter")["spec"]["suspend"] = json!(true);
            it.get("Agent", "otter")["metadata"]["annotations"] =
                json!({"toolcrib.dev/suspend-reason": "INC-7"});
        },
        &[
            "agents: WARNING: Agent pond/otter is suspended (INC-7) => kubectl toolcrib resume agent/otter -n pond",
        ],
    );
    check(
        |it| it.get("Agent", "otter")["status"] = json!({"observedGeneration": -1}),
        &[
            "agents: ERROR: Agent pond/otter has no condition Ready: no controller has looked at it => look at the controller",
        ],
    );
    check(
        |it| it.get("Agent", "otter")["metadata"]["generation"] = json!(3),
        &[
            "agents: WARNING: Agent pond/otter: status.observedGeneration is behind the spec => wait",
        ],
    );
    check(
        |it| {
            condition(it, 1, "False", "Stale", "…");
            it.get("Agent", "otter")["status"]["pods"] =
                json!({"running": 1, "inForce": 0, "stale": ["otter-1"]});
        },
        &[
            "link: ERROR: Agent pond/otter: these pods have not reported, or have not loaded the current files, for over two minutes: otter-1 => let the pods reach port 8443 … `kubectl logs -n pond otter-1 -c toolcrib-mediator`",
        ],
    );
    check(
        |it| condition(it, 0, "Unknown", "NoReport", "no report yet from otter-1"),
        &["link: WARNING: Agent pond/otter: no report yet from otter-1"],
    );
    check(
        |it| it.get("EndpointSlice", "toolcrib-link")["endpoints"] = json!([]),
        &[
            "link: ERROR: Service toolcrib-system/toolcrib-link has no ready pod … kubectl get pods -n toolcrib-system -L toolcrib.dev/leader",
        ],
    );
}

#[test]
fn pods() {
    check(
        |it| it.get("Pod", "otter-1")["spec"]["initContainers"] = json!([]),
        &[
            "pods: ERROR: pods with the label toolcrib.dev/agent and no mediator: pond/otter-1 => … kubectl delete pod otter-1 -n pond",
        ],
    );
    check(
        |it| it.get("Pod", "otter-1")["metadata"]["labels"]["toolcrib.dev/agent"] = json!("newt"),
        &[
            "pods: ERROR: pods of an Agent that does not exist, so every call is denied: pond/otter-1 (Agent pond/newt) => create the Agent",
        ],
    );
    // A pod that has ended needs neither.
    check(
        |it| {
            let pod = it.get("Pod", "otter-1");
            pod["spec"]["initContainers"] = json!([]);
            pod["status"]["phase"] = json!("Succeeded");
        },
        &[],
    );
}

#[test]
fn secrets() {
    check(
        |it| it.get("Secret", "fish")["metadata"]["labels"] = json!({}),
        &[
            "secrets: ERROR: Surface pond/fish: spec.auth.secretKeyRef … kubectl label secret … [SecretNotLabelled] => Label the Secret",
        ],
    );
    check(
        |it| it.get("Secret", "fish")["metadata"]["annotations"] = json!({}),
        &[
            "secrets: ERROR: Surface pond/fish: … toolcrib.dev/hosts … [SecretHostNotAllowed] => If the credential may go there",
        ],
    );
    check(
        |it| it.remove("Secret", "fish"),
        &["secrets: ERROR: Surface pond/fish: … [SecretNotFound] => Create the Secret"],
    );
}

#[test]
fn network_policies() {
    let policy = |selector: Value, egress: Value| {
        json!({
            "kind": "NetworkPolicy", "metadata": {"name": "reeds", "namespace": "pond"},
            "spec": {"podSelector": selector, "policyTypes": ["Egress"], "egress": egress},
        })
    };
    let dns = json!({"ports": [{"port": 53, "protocol": "UDP"}]});
    let link = "network: ERROR: NetworkPolicy reeds in namespace pond blocks the operator's link for pods otter-1 => add an egress rule: to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: toolcrib-system}}}], ports: [{protocol: TCP, port: 8443}]";
    let names = "network: ERROR: NetworkPolicy reeds in namespace pond blocks the name servers for pods otter-1 => add … {protocol: UDP, port: 53}";
    let block = |cidr: &str, except: &[&str]| json!([dns, {"to": [{"ipBlock": {"cidr": cidr, "except": except}}]}]);
    let to_system = |ports: Value| {
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "toolcrib-system"}});
        json!([dns, {"to": [{"namespaceSelector": selector}], "ports": ports}])
    };
    let all = || json!({});
    for (selector, egress, expected) in [
        (all(), json!([]), &[link, names][..]),
        (all(), json!([{}]), &[]),
        (all(), json!([dns]), &[link]),
        (
            json!({"matchLabels": {"toolcrib.dev/agent": "newt"}}),
            json!([]),
            &[],
        ),
        (all(), block("0.0.0.0/0", &["10.0.0.0/8"]), &[link]),
        (all(), block("0.0.0.0/0", &[]), &[]),
        (all(), block("192.0.2.0/24", &[]), &[link]),
        (all(), to_system(json!([{"port": 8443}])), &[]),
        (
            all(),
            to_system(json!([{"port": 8000, "endPort": 9000, "protocol": "TCP"}])),
            &[],
        ),
        (all(), to_system(json!([{"port": "link"}])), &[]),
        (all(), to_system(json!([{"port": 443}])), &[link]),
        (
            all(),
            to_system(json!([{"port": 8443, "protocol": "UDP"}])),
            &[link],
        ),
        (all(), json!([dns, {"to": [{"podSelector": {}}]}]), &[link]),
        (
            all(),
            json!([{"to": [{"namespaceSelector": {"matchLabels": {"team": "platform"}}}]}]),
            &[link],
        ),
        (
            all(),
            json!([{"to": [{"namespaceSelector": {"matchLabels": {"team": "reeds"}}}]}]),
            &[link, names],
        ),
    ] {
        check(
            |it| it.add(policy(selector.clone(), egress.clone())),
            expected,
        );
    }
}

/// A rule counts as open if its selector may match labels that are not known.
#[test]
fn unknown_labels_and_own_name_servers() {
    let policy = json!({
        "kind": "NetworkPolicy", "metadata": {"name": "reeds", "namespace": "pond"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [
            {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "names"}}}], "ports": [{"port": 5353, "protocol": "UDP"}]},
            {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "toolcrib-system"}}}]},
        ]},
    });
    let servers = json!([{
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "names"}}}],
        "ports": [{"port": 5353, "protocol": "UDP"}],
    }]);
    check(
        |it| {
            it.add(policy.clone());
            it.dns = serde_json::from_value(servers.clone()).unwrap();
        },
        &[],
    );
    let blocked = "network: ERROR: NetworkPolicy reeds in namespace pond blocks the name servers for pods otter-1";
    check(|it| it.add(policy.clone()), &[blocked]);
    check(
        |it| {
            it.add(policy.clone());
            it.get("NetworkPolicy", "reeds")["spec"]["egress"][0]["ports"][0]["port"] = json!(53);
            it.remove("Namespace", "kube-system");
        },
        &[],
    );
}

#[test]
fn hints() {
    check(
        |it| it.get("ClusterRole", "toolcrib-materials")["rules"][2]["verbs"] = json!(["get"]),
        &[
            "hints: WARNING: ClusterRole toolcrib-materials does not give the controller `patch` on pods",
        ],
    );
    check(
        |it| {
            it.get("Pod", "otter-1")["metadata"]["annotations"] =
                json!({"toolcrib.dev/refresh": "abcdef012345.1795780000.2"});
            it.get("Agent", "otter")["status"]["pods"] =
                json!({"running": 1, "inForce": 0, "stale": ["otter-1"]});
        },
        &[
            "link: ERROR: Agent pond/otter",
            "hints: WARNING: pod pond/otter-1 got a refresh hint at 2026-11-27T11:46:40Z … => look at the kubelet of node den",
        ],
    );
    let off = findings(|it| {
        let arguments = &mut it.get("Deployment", "toolcrib-controller")["spec"]["template"]["spec"]
            ["containers"][0]["args"];
        arguments.as_array_mut().unwrap().pop();
        it.remove("ValidatingAdmissionPolicy", "toolcrib-hints");
    });
    assert!(
        off.iter().all(|finding| finding.level == Level::Ok),
        "{off:#?}"
    );
}
