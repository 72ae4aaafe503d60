//! Faults of the installation.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Value, json};

use super::check;
use super::healthy::{self, Cluster};
use crate::doctor::checks::policies::POLICIES;
use crate::doctor::checks::versions::OLDEST;

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
    let (major, minor) = OLDEST;
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
            let expired = expired_bundle();
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
            "certificates: ERROR: the certificate of the webhook expired at 2026-11-27T11:00:00Z => find out why no leader renews it: {logs}"
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
            "certificates: WARNING: the certificate of the webhook expires at 2026-12-10T00:00:00Z and should have been renewed by now",
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
fn expired_bundle() -> String {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 2);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn a_missing_policy_is_reported_by_its_name() {
    for (suffix, _, effect) in POLICIES {
        let name = format!("toolcrib-{suffix}");
        let missing = format!(
            "policies: ERROR: ValidatingAdmissionPolicy {name} does not exist: {effect} => install it again: helm upgrade crib"
        );
        let unbound = format!(
            "policies: ERROR: ValidatingAdmissionPolicy {name} has no binding: {effect} => install it again: helm upgrade crib"
        );
        check(
            |it| it.remove("ValidatingAdmissionPolicy", &name),
            &[&missing],
        );
        check(
            |it| it.remove("ValidatingAdmissionPolicyBinding", &name),
            &[&unbound],
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
            "rights: ERROR: namespace pond has agents, and no RoleBinding gives ServiceAccount toolcrib-system/toolcrib-controller the ClusterRole toolcrib-materials there => apply this RoleBinding, … kind: RoleBinding\nmetadata:\n  name: toolcrib-materials\n  namespace: pond\n",
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
