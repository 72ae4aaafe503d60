//! A release by Helm 3 on a real API server: install, upgrade, rollback, an upgrade by Helm 4, uninstall.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use toolcrib_e2e::cluster::{Home, Progress, compatibility_programs};

use crate::plane::{NAMESPACE, Plane, RELEASE};

const CERTIFICATES: &str = "crib-toolcrib-certificates";
const WEBHOOK: [&str; 2] = ["mutatingwebhookconfiguration", "crib-toolcrib"];

/// The fields that the controller writes and no template sets.
#[derive(Debug, PartialEq)]
struct ControllerFields {
    certificates: Value,
    authority: Value,
    path: Value,
}

impl ControllerFields {
    fn read(plane: &Plane) -> Result<Self> {
        let mut secret = plane.get(&["secret", CERTIFICATES, "--namespace", NAMESPACE])?;
        let mut webhook = plane.get(&WEBHOOK)?;
        let client = &mut webhook["webhooks"][0]["clientConfig"];
        Ok(Self {
            certificates: secret["data"].take(),
            authority: client["caBundle"].take(),
            path: client["service"]["path"].take(),
        })
    }
}

/// Writes what the controller writes; returns it.
fn write_controller_fields(plane: &Plane) -> Result<ControllerFields> {
    let authority = rcgen::generate_simple_self_signed(["webhook".to_owned()])?;
    let authority = STANDARD.encode(authority.cert.pem());
    let manager = "--field-manager=toolcrib-controller";
    let data = json!({"data": {"tls.crt": "b3R0ZXI="}}).to_string();
    let patch = ["patch", manager, "--type=merge", "--patch", &data];
    plane.kubectl(
        &[
            &patch[..],
            &["secret", CERTIFICATES, "--namespace", NAMESPACE],
        ]
        .concat(),
    )?;
    let config = "/webhooks/0/clientConfig";
    let fields = json!([
        {"op": "add", "path": format!("{config}/caBundle"), "value": &authority},
        {"op": "add", "path": format!("{config}/service/path"), "value": "/inject/secret"},
    ])
    .to_string();
    let patch = ["patch", manager, "--type=json", "--patch", &fields];
    plane.kubectl(&[&patch[..], &WEBHOOK].concat())?;
    let written = ControllerFields::read(plane)?;
    assert_eq!(written.authority, authority);
    assert_eq!(written.path, "/inject/secret");
    Ok(written)
}

/// `kubectl get` of the release's objects besides definitions, as `Kind/name`.
fn objects(plane: &Plane) -> Result<Vec<String>> {
    let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,\
        validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,\
        deployments,services,secrets,roles,rolebindings,poddisruptionbudgets,serviceaccounts";
    let label = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let text = plane.kubectl(&["get", kinds, &label, "--all-namespaces", "--output=name"])?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[test]
fn helm_3_installs_upgrades_rolls_back_and_uninstalls() -> Result<()> {
    let programs = compatibility_programs(&Home::find()?, &Progress::stderr())?;
    let mut plane = Plane::up("compatibility", Some(programs.helm3.into_os_string()))?;
    let version = plane.helm(&["version", "--short"])?;
    ensure!(version.starts_with("v3."), "{version}");
    eprintln!("Helm {version}");
    plane.kubectl(&["create", "namespace", "trading"])?;

    plane.upgrade(&["--set=secretNamespaces={trading}"])?;
    let installed = objects(&plane)?;
    ensure!(installed.len() > 30, "{installed:?}");
    let written = write_controller_fields(&plane)?;

    plane.upgrade(&["--set=hints.enabled=false"])?;
    assert_eq!(ControllerFields::read(&plane)?, written, "after an upgrade");
    let fewer = objects(&plane)?;
    ensure!(
        fewer.len() < installed.len(),
        "hints are removed: {fewer:?}"
    );
    plane.helm(&["rollback", RELEASE, "1"])?;
    assert_eq!(objects(&plane)?, installed);
    let rolled_back = ControllerFields::read(&plane)?;
    // The first release was rendered without a path: the controller sets one again.
    assert_eq!(rolled_back.path, Value::Null);
    assert_eq!(
        rolled_back.certificates, written.certificates,
        "after a rollback"
    );
    assert_eq!(rolled_back.authority, written.authority, "after a rollback");

    // Helm 4 takes the release over.
    let helm3 = plane.helm.take();
    plane.upgrade(&["--set=hints.enabled=false"])?;
    assert_eq!(objects(&plane)?, fewer, "after an upgrade by Helm 4");
    plane.helm = helm3;

    plane.helm(&["uninstall", RELEASE])?;
    assert_eq!(objects(&plane)?, [""; 0]);
    let kept = plane.kubectl(&["get", "customresourcedefinitions", "--output=name"])?;
    assert_eq!(kept.matches(".toolcrib.dev").count(), 8, "{kept}");
    // The definitions that were kept are adopted.
    plane.upgrade(&["--set=secretNamespaces={trading}"])?;
    assert_eq!(objects(&plane)?, installed);
    plane.passed()
}
