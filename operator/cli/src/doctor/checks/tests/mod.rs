//! Each check against a table: a healthy installation, one fault, and the finding with its cure.

pub(in crate::doctor) mod healthy;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Value, json};
use toolcrib_golden::says_what_to_do;

use self::healthy::{Cluster, otter};
use super::policies::{Condition, POLICIES};
use crate::doctor::finding::{Finding, Level};

fn findings(breaks: impl Fn(&mut Cluster)) -> Vec<Finding> {
    let mut cluster = Cluster::healthy();
    breaks(&mut cluster);
    super::all(&cluster.facts())
}

/// Breaks the installation; expects these findings, as `check: level: message => cure`, and that all other
/// checks are in order.
#[track_caller]
fn check(breaks: impl Fn(&mut Cluster), expected: &[&str]) {
    let found = findings(breaks);
    let wrong = found.iter().filter(|it| it.level != Level::Ok);
    let lines: Vec<String> = wrong
        .map(|it| {
            format!(
                "{}: {}: {} => {}",
                it.check.name(),
                it.level.name(),
                it.message,
                it.cure
            )
        })
        .collect();
    for finding in found.iter().filter(|it| it.level != Level::Ok) {
        assert!(says_what_to_do(&finding.cure), "{finding:?}");
    }
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, parts) in lines.iter().zip(expected) {
        for part in parts.split(" … ") {
            assert!(line.contains(part), "{part:?} is not in {line:?}");
        }
    }
}

#[test]
fn a_healthy_installation_has_one_line_per_check() {
    let found = findings(|_| {});
    let lines: Vec<String> = found
        .iter()
        .map(|it| format!("{} {}: {}", it.level.name(), it.check.name(), it.message))
        .collect();
    let own = env!("CARGO_PKG_VERSION");
    let expected = [
        format!("OK versions: Kubernetes v1.35.2, operator {own}, this command {own}, 1 mediator of this release"),
        "OK definitions: 8 definitions installed, with the fields of this release".into(),
        "OK operator: 2 controllers and 2 webhooks are available in namespace toolcrib-system".into(),
        "OK leader: heron leads".into(),
        "OK webhook: both configurations toolcrib lead to running pods, and select every namespace with agents".into(),
        "OK certificates: valid until 2027-01-01T00:00:00Z or longer".into(),
        "OK policies: 12 policies, all bound".into(),
        "OK rights: the controller may write the files of agents in 1 namespace".into(),
        "OK agents: 1 agent in namespace pond (-A looks at all), all ready".into(),
        "OK pods: 1 pod, each with a mediator".into(),
        "OK link: 1 pod reported the current files".into(),
        "OK secrets: 1 Secret in use, with label and hosts".into(),
        "OK network: none of 0 policy objects is in a mediator's way to the operator and the name servers".into(),
        "OK hints: on, and the policy limits the controller to them".into(),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn versions() {
    check(
        |it| it.server = "v1.32.9+k3s1",
        &[
            "versions: ERROR: the API server is v1.32.9+k3s1, and Toolcrib needs 1.33 => upgrade the cluster",
        ],
    );
    check(
        |it| {
            it.get("Deployment", "toolcrib-webhook")["metadata"]["labels"]["app.kubernetes.io/version"] =
                json!("0.0.7");
        },
        &[
            "versions: WARNING: the webhook is of release 0.0.7 … => use the kubectl-toolcrib of release 0.0.7 … helm upgrade crib CHART -n toolcrib-system",
        ],
    );
    check(
        |it| {
            it.get("Pod", "otter-1")["spec"]["initContainers"][0]["image"] =
                json!("mirror.test/sidecar:8")
        },
        &[
            "versions: WARNING: the webhook injects docker.io/toolcrib/sidecar:9, and these pods run another mediator: pond/otter-1 (mirror.test/sidecar:8) => delete the pods",
        ],
    );
    check(
        |it| {
            let status = &mut it.get("Agent", "otter")["status"];
            status["conditions"][0]["message"] =
                json!("not offered by otter-1 (fish.dive: Requirements)");
        },
        &[
            "versions: WARNING: Agent pond/otter: not offered by otter-1 (fish.dive: Requirements) => ",
        ],
    );
}

#[test]
fn the_oldest_release_is_that_of_the_chart() {
    let chart = include_str!("../../../../../../charts/toolcrib/Chart.yaml");
    let (major, minor) = super::versions::OLDEST;
    assert!(
        chart.contains(&format!("kubeVersion: \">={major}.{minor}.0-0\"")),
        "{chart}"
    );
}

#[test]
fn definitions() {
    check(
        |it| {
            it.definitions.remove("toolgrants.toolcrib.dev").unwrap();
        },
        &[
            "definitions: ERROR: CustomResourceDefinition toolgrants.toolcrib.dev does not exist => install it with the chart: helm upgrade crib CHART -n toolcrib-system --reset-then-reuse-values --set crds.install=true",
        ],
    );
    fn spec(cluster: &mut Cluster) -> &mut BTreeMap<String, JSONSchemaProps> {
        let definition = cluster.definitions.get_mut("agents.toolcrib.dev").unwrap();
        let schema = definition.spec.versions[0].schema.as_mut().unwrap();
        let whole = schema.open_api_v3_schema.as_mut().unwrap();
        let spec = whole.properties.as_mut().unwrap().get_mut("spec").unwrap();
        spec.properties.as_mut().unwrap()
    }
    check(
        |it| {
            spec(it).remove("suspend").unwrap();
        },
        &[
            "definitions: ERROR: CustomResourceDefinition agents.toolcrib.dev is older than this command: it has no spec.suspend, and … => upgrade the definitions",
        ],
    );
    check(
        |it| {
            spec(it).insert("fins".into(), JSONSchemaProps::default());
        },
        &[
            "definitions: WARNING: CustomResourceDefinition agents.toolcrib.dev is newer than this command: it has spec.fins => use",
        ],
    );
}

#[test]
fn operator() {
    check(
        |it| {
            let webhook = it.get("Deployment", "toolcrib-webhook");
            webhook["spec"]["replicas"] = json!(0);
            webhook["status"] = json!({});
        },
        &[
            "operator: ERROR: Deployment toolcrib-system/toolcrib-webhook is scaled to 0: no agent's pod is admitted => kubectl scale deployment/toolcrib-webhook -n toolcrib-system --replicas=2",
        ],
    );
    check(
        |it| {
            it.get("Deployment", "toolcrib-controller")["status"] = json!({"availableReplicas": 1})
        },
        &[
            "operator: WARNING: 1 of 2 pods of Deployment toolcrib-system/toolcrib-controller are available => `kubectl describe pods",
        ],
    );
    check(
        |it| it.get("Deployment", "toolcrib-controller")["status"] = json!({}),
        &[
            "operator: ERROR: no pod of Deployment toolcrib-system/toolcrib-controller is available: no change is compiled … `kubectl logs -n toolcrib-system deployment/toolcrib-controller`",
        ],
    );
    check(
        |it| it.remove("Deployment", "toolcrib-webhook"),
        &[
            "operator: ERROR: the Deployment of the webhook does not exist in namespace toolcrib-system => install it again",
        ],
    );
}

#[test]
fn leader() {
    check(
        |it| it.remove("Lease", "toolcrib-controller"),
        &[
            "leader: ERROR: Lease toolcrib-system/toolcrib-controller does not exist … `kubectl logs",
        ],
    );
    check(
        |it| it.get("Lease", "toolcrib-controller")["spec"]["holderIdentity"] = json!(""),
        &["leader: ERROR: Lease toolcrib-system/toolcrib-controller has no holder"],
    );
    check(
        |it| {
            it.get("Lease", "toolcrib-controller")["spec"]["renewTime"] =
                json!("2026-11-27T11:50:00.000000Z")
        },
        &[
            "leader: ERROR: heron has not renewed Lease toolcrib-system/toolcrib-controller since 2026-11-27T11:50:00Z",
        ],
    );
}

#[test]
fn webhook() {
    check(
        |it| it.remove("MutatingWebhookConfiguration", "toolcrib"),
        &[
            "webhook: ERROR: MutatingWebhookConfiguration toolcrib does not exist: no mediator is injected => install it again: helm upgrade crib",
        ],
    );
    check(
        |it| {
            it.get("EndpointSlice", "toolcrib-webhook")["endpoints"][0]["conditions"]["ready"] =
                json!(false)
        },
        &[
            "webhook: ERROR: Service toolcrib-system/toolcrib-webhook has no ready pod … `kubectl get pods -n toolcrib-system -l app.kubernetes.io/component=webhook`",
        ],
    );
    check(
        |it| {
            it.get("ValidatingWebhookConfiguration", "toolcrib")["webhooks"][0]["clientConfig"]["caBundle"] =
                Value::Null
        },
        &[
            "webhook: ERROR: ValidatingWebhookConfiguration toolcrib: validate.toolcrib.dev has no caBundle … kubectl logs -n toolcrib-system deployment/toolcrib-controller",
        ],
    );
    check(
        |it| {
            it.get("MutatingWebhookConfiguration", "toolcrib")["webhooks"][0]["clientConfig"]["service"]
                ["name"] = json!("reed")
        },
        &[
            "webhook: ERROR: a webhook configuration calls Service toolcrib-system/reed, and the operator's is toolcrib-system/toolcrib-webhook => install",
        ],
    );
    check(
        |it| {
            it.get("MutatingWebhookConfiguration", "toolcrib")["webhooks"][0]["namespaceSelector"] = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["pond"]}]});
        },
        &[
            "webhook: ERROR: the namespaceSelector of MutatingWebhookConfiguration toolcrib: inject.toolcrib.dev leaves out namespace pond … kubectl get namespace pond --show-labels",
        ],
    );
}

#[test]
fn certificates() {
    fn dates(cluster: &mut Cluster, dates: &Value) {
        let secret = cluster.get("Secret", "toolcrib-certificates");
        secret["metadata"]["annotations"]["toolcrib.dev/certificates"] = json!(dates.to_string());
    }
    let logs = "`kubectl logs -n toolcrib-system deployment/toolcrib-controller`";
    check(
        |it| {
            let expired = rcgen_expired();
            it.get("ValidatingWebhookConfiguration", "toolcrib")["webhooks"][0]["clientConfig"]["caBundle"] =
                json!(healthy::base64(&expired));
        },
        &[&format!(
            "certificates: ERROR: the caBundle of ValidatingWebhookConfiguration toolcrib expired at 2020-01-02T00:00:00Z … {logs}"
        )],
    );
    check(
        |it| {
            it.get("MutatingWebhookConfiguration", "toolcrib")["webhooks"][0]["clientConfig"]["caBundle"] =
                json!(healthy::base64("otter"))
        },
        &[
            "certificates: ERROR: the caBundle of MutatingWebhookConfiguration toolcrib holds no certificate … => remove the field",
        ],
    );
    let link = json!({"not_after": "2027-01-01T00:00:00Z"});
    check(
        |it| {
            dates(
                it,
                &json!({"webhook": {"not_after": "2026-11-27T11:00:00Z"}, "link": link}),
            )
        },
        &[&format!(
            "certificates: ERROR: the certificate of the webhook expired at 2026-11-27T11:00:00Z => look why no leader renews it: {logs}"
        )],
    );
    check(
        |it| {
            dates(
                it,
                &json!({"webhook": {"not_after": "2026-12-10T00:00:00Z"}, "link": link}),
            )
        },
        &[
            "certificates: WARNING: the certificate of the webhook ends at 2026-12-10T00:00:00Z, and is not renewed",
        ],
    );
    check(
        |it| dates(it, &json!({"link": link})),
        &[
            "certificates: ERROR: Secret toolcrib-system/toolcrib-certificates has no certificate of the webhook",
        ],
    );
    check(
        |it| it.get("Secret", "toolcrib-certificates")["metadata"]["annotations"] = json!({}),
        &[
            "certificates: ERROR: Secret toolcrib-system/toolcrib-certificates holds no certificate yet",
        ],
    );
    check(
        |it| it.remove("Secret", "toolcrib-certificates"),
        &[
            "certificates: ERROR: Secret toolcrib-system/toolcrib-certificates does not exist … => install it again, empty",
        ],
    );
}

/// A CA that has expired.
fn rcgen_expired() -> String {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 2);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn each_policy_is_missed_by_its_name() {
    for (suffix, condition, effect) in POLICIES {
        let name = format!("toolcrib-{suffix}");
        let missing = format!(
            "policies: ERROR: ValidatingAdmissionPolicy {name} does not exist: {effect} => install it again: helm upgrade crib"
        );
        let unbound = format!(
            "policies: ERROR: ValidatingAdmissionPolicy {name} has no binding: {effect} => install it again: helm upgrade crib"
        );
        // Without its policy, no hint is sent.
        let hints: &[&str] = match condition {
            Condition::Hints => {
                &["hints: WARNING: refresh hints are on … --set hints.enabled=true"]
            }
            Condition::Always | Condition::Guard => &[],
        };
        check(
            |it| it.remove("ValidatingAdmissionPolicy", &name),
            &[&[&*missing], hints].concat(),
        );
        check(
            |it| it.remove("ValidatingAdmissionPolicyBinding", &name),
            &[&[&*unbound], hints].concat(),
        );
    }
}

#[test]
fn a_policy_must_deny_everywhere() {
    check(
        |it| {
            it.get("ValidatingAdmissionPolicyBinding", "toolcrib-guard")["spec"]["validationActions"] =
                json!(["Audit"])
        },
        &[
            "policies: ERROR: the ValidatingAdmissionPolicyBinding of toolcrib-guard does not deny, or not everywhere: an agent's pod can run without a mediator => set its spec.validationActions to [Deny]",
        ],
    );
    check(
        |it| {
            it.get("ValidatingAdmissionPolicyBinding", "toolcrib-guard")["spec"]["matchResources"] =
                json!({"namespaceSelector": {"matchLabels": {"team": "reeds"}}});
        },
        &[
            "policies: ERROR: the ValidatingAdmissionPolicyBinding of toolcrib-guard does not deny, or not everywhere",
        ],
    );
    check(
        |it| {
            it.get("ValidatingAdmissionPolicy", "toolcrib-tokens")["spec"]["failurePolicy"] =
                json!("Ignore")
        },
        &[
            "policies: ERROR: ValidatingAdmissionPolicy toolcrib-tokens has failurePolicy Ignore … => set spec.failurePolicy to Fail",
        ],
    );
}

/// A policy that the chart renders is one that is checked, and the other way round.
#[test]
fn the_policies_are_those_of_the_chart() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/toolcrib/templates"
    );
    let mut rendered = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for part in text.split("kind: ValidatingAdmissionPolicy\n").skip(1) {
            let name = part.split("name: {{ $name }}-").nth(1).unwrap();
            let suffix = name.lines().next().unwrap().to_owned();
            // A template of two kinds.
            match suffix.strip_suffix("{{ .resource }}") {
                None => rendered.push(suffix),
                Some(before) => {
                    rendered.extend(["configmaps", "secrets"].map(|it| format!("{before}{it}")));
                }
            }
        }
    }
    rendered.sort();
    let mut checked = POLICIES.map(|(suffix, ..)| suffix.to_owned());
    checked.sort();
    assert_eq!(rendered, checked);
}

#[test]
fn rights() {
    check(
        |it| it.remove("RoleBinding", "toolcrib-materials"),
        &[
            "rights: ERROR: namespace pond has agents, and no RoleBinding gives ServiceAccount toolcrib-system/toolcrib-controller the ClusterRole toolcrib-materials there => apply this RoleBinding, … kind: RoleBinding\nmetadata: {name: toolcrib-materials, namespace: pond}",
        ],
    );
    check(
        |it| {
            let arguments = &mut it.get("Deployment", "toolcrib-controller")["spec"]["template"]["spec"]
                ["containers"][0]["args"];
            arguments[1] = json!("--secret-namespaces=lake");
        },
        &[
            "rights: ERROR: namespace pond has agents, and the chart does not serve it … => run helm upgrade crib CHART -n toolcrib-system --reset-then-reuse-values --set 'secretNamespaces={lake,pond}'",
        ],
    );
    check(
        |it| it.get("ClusterRole", "toolcrib-materials")["rules"][1]["verbs"] = json!(["get"]),
        &["rights: ERROR: ClusterRole toolcrib-materials lacks rights"],
    );
}

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
        |it| it.get("Agent", "otter")["status"] = Value::Null,
        &[
            "agents: ERROR: Agent pond/otter has no status: no controller has looked at it => look at the controller",
        ],
    );
    check(
        |it| it.get("Agent", "otter")["metadata"]["generation"] = json!(3),
        &["agents: WARNING: the status of Agent pond/otter is of an earlier spec => wait"],
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
            "pods: ERROR: pods whose Agent does not exist, so that they are denied everything: pond/otter-1 (Agent pond/newt) => create the Agent",
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
    let link = "network: ERROR: NetworkPolicy reeds in namespace pond lets these pods not reach the operator's link: otter-1 => add an egress rule: to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: toolcrib-system}}}], ports: [{protocol: TCP, port: 8443}]";
    let names = "network: ERROR: NetworkPolicy reeds in namespace pond lets these pods not reach the name servers: otter-1 => add … {protocol: UDP, port: 53}";
    let block = |cidr: &str, except: &[&str]| json!([dns, {"to": [{"ipBlock": {"cidr": cidr, "except": except}}]}]);
    let to_system = |ports: Value| {
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "toolcrib-system"}});
        json!([dns, {"to": [{"namespaceSelector": selector}], "ports": ports}])
    };
    let all = || json!({});
    for (selector, egress, expected) in [
        (all(), json!([]), &[names, link][..]),
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
    ] {
        check(
            |it| it.add(policy(selector.clone(), egress.clone())),
            expected,
        );
    }
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
            "hints: WARNING: pod pond/otter-1 was hinted at 2026-11-27T11:46:40Z … => look at the kubelet of node den",
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

/// A user who may read the objects of one namespace.
#[test]
fn what_may_not_be_read_is_said_with_the_missing_right() {
    check(
        |it| it.forbidden = vec!["leases"],
        &[
            "leader: NOT CHECKED: you may not get leases toolcrib-system/toolcrib-controller => ask for `get` on leases in namespace toolcrib-system",
        ],
    );
    check(
        |it| it.forbidden = vec!["customresourcedefinitions"],
        &[
            "definitions: NOT CHECKED: you may not get customresourcedefinitions agents.toolcrib.dev, … and 5 more => ask for `get` on customresourcedefinitions",
        ],
    );
    let found = findings(|it| {
        it.forbidden = vec![
            "deployments",
            "leases",
            "configurations",
            "endpointslices",
            "secrets toolcrib-system",
            "validatingadmission",
            "clusterrole",
            "definitions",
            "rolebindings",
            "namespaces ",
        ];
    });
    let checked: Vec<&str> = found
        .iter()
        .filter(|it| it.level == Level::Ok)
        .map(|it| it.check.name())
        .collect();
    assert_eq!(checked, ["agents", "pods", "secrets", "network"]);
    assert!(
        found
            .iter()
            .all(|it| matches!(it.level, Level::Ok | Level::NotChecked)),
        "{found:#?}"
    );
}

#[test]
fn a_namespace_without_agents_is_in_order() {
    let found = findings(|it| {
        it.remove("Agent", "otter");
        it.remove("Pod", "otter-1");
        it.remove("RoleBinding", "toolcrib-materials");
    });
    let agents = found.iter().find(|it| it.check.name() == "agents").unwrap();
    assert_eq!(
        agents.message,
        "there is no agent in namespace pond (-A looks at all)"
    );
    assert!(found.iter().all(|it| it.level == Level::Ok), "{found:#?}");
}
