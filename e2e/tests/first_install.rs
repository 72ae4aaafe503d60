//! The life cycle of a Helm release that contains claw-api's Surface together with the
//! CustomResourceDefinition of its kind: first install, upgrade, rollback, uninstall; and of one that names
//! a namespace that does not exist yet.
//!
//! `cargo test -p toolcrib-e2e --test first_install`, as root. It starts a
//! control plane of its own, which has no CustomResourceDefinitions; no pod runs there. `./e2e/run compatibility` runs
//! it with Helm 3.

#[path = "support/plane.rs"]
mod plane;

use anyhow::{Result, ensure};
use plane::{NAMESPACE, Plane, RELEASE};
use serde_json::Value;

const HOOK: &str = "helm.sh/hook";
/// Names a Helm, if it is not to be the pinned Helm 4.
const HELM: &str = "TOOLCRIB_TEST_HELM";

/// The metadata of all Surfaces of the cluster.
fn surfaces(plane: &Plane) -> Result<Vec<Value>> {
    let mut list = plane.get(&["surfaces", "--all-namespaces"])?;
    let items = list["items"].as_array_mut().into_iter().flatten();
    Ok(items.map(|surface| surface["metadata"].take()).collect())
}

/// The metadata of claw-api's Surface, the only one.
fn surface(plane: &Plane) -> Result<Value> {
    let mut surfaces = surfaces(plane)?;
    let surface = surfaces.pop().unwrap_or_default();
    ensure!(surfaces.is_empty(), "more than one Surface: {surfaces:?}");
    ensure!(surface["name"] == "claw-api", "no claw-api: {surface}");
    ensure!(surface["namespace"] == NAMESPACE, "{surface}");
    Ok(surface)
}

/// A namespace of agents that does not exist stops nothing. When it does, an upgrade gives the rights there.
fn a_namespace_comes_later(plane: &Plane) -> Result<()> {
    let bindings = || -> Result<usize> {
        let list = [
            "get",
            "rolebindings",
            "--namespace=crib-agents",
            "--output=name",
        ];
        let list = plane.kubectl(&list)?;
        Ok(list.matches("-materials").count())
    };
    plane.upgrade(&["--set=secretNamespaces={crib-agents}"])?;
    let notes = plane.helm(&["get", "notes", RELEASE])?;
    let said = "These namespaces do not exist yet: crib-agents.";
    ensure!(notes.contains(said), "{notes}");
    plane.kubectl(&["create", "namespace", "crib-agents"])?;
    assert_eq!(bindings()?, 0);
    plane.upgrade(&[])?;
    assert_eq!(bindings()?, 1);
    let notes = plane.helm(&["get", "notes", RELEASE])?;
    ensure!(!notes.contains("do not exist yet"), "{notes}");
    plane.helm(&["uninstall", RELEASE]).map(drop)
}

#[test]
fn a_first_install_needs_no_definitions_and_no_namespaces() -> Result<()> {
    let plane = Plane::up("first-install", std::env::var_os(HELM))?;
    plane.upgrade(&["--set=clawApi.enabled=true,clawApi.consumers={trading}"])?;
    let installed = surface(&plane)?;
    assert_ne!(installed["annotations"][HOOK], Value::Null);

    // An upgrade keeps the object, so no tool is revoked meanwhile.
    plane.upgrade(&[])?;
    let adopted = surface(&plane)?;
    assert_eq!(adopted["uid"], installed["uid"]);
    // Helm 3 adopts an object without changing it (docs/claw-api.md).
    if plane.helm.is_none() {
        assert_eq!(adopted["annotations"][HOOK], Value::Null);
    }
    let manifest = plane.helm(&["get", "manifest", RELEASE])?;
    ensure!(manifest.contains("kind: Surface\n"), "{manifest}");
    assert_eq!(plane.helm(&["get", "hooks", RELEASE])?.trim(), "");
    plane.upgrade(&[])?;
    assert_eq!(surface(&plane)?["uid"], installed["uid"]);

    plane.helm(&["rollback", RELEASE, "1"])?;
    surface(&plane)?;
    // No upgrade has adopted the Surface; disabling claw-api deletes it nevertheless.
    plane.upgrade(&["--set=clawApi.enabled=false"])?;
    assert_eq!(surfaces(&plane)?, [Value::Null; 0]);
    assert_eq!(
        plane
            .helm(&["get", "hooks", RELEASE])?
            .matches("kind: Surface\n")
            .count(),
        1
    );
    plane.upgrade(&[])?;
    assert_eq!(plane.helm(&["get", "hooks", RELEASE])?.trim(), "");

    plane.helm(&["rollback", RELEASE, "1"])?;
    surface(&plane)?;
    plane.helm(&["uninstall", RELEASE])?;
    // The CustomResourceDefinitions are kept, so Surfaces can still be listed.
    assert_eq!(surfaces(&plane)?, [Value::Null; 0]);

    // The CustomResourceDefinitions exist now, so the Surface is an ordinary object from the first
    // release on.
    plane.upgrade(&["--set=clawApi.enabled=true"])?;
    assert_eq!(surface(&plane)?["annotations"][HOOK], Value::Null);
    plane.helm(&["uninstall", RELEASE])?;
    assert_eq!(surfaces(&plane)?, [Value::Null; 0]);
    a_namespace_comes_later(&plane)?;
    plane.passed()
}
