//! The life cycle of a Helm release that contains claw-api's Surface together with the
//! CustomResourceDefinition of its kind: first install, upgrade, rollback, uninstall; and of one that names
//! a namespace that does not exist yet.
//!
//! `cargo test -p toolcrib-e2e --test first_install`, as root. It starts a
//! control plane of its own, which has no CustomResourceDefinitions; no pod runs there.

use anyhow::{Result, ensure};
use serde_json::Value;
use toolcrib_e2e::cluster::process::run;
use toolcrib_e2e::cluster::{Cluster, Extent, Name, Progress};
use toolcrib_e2e::evidence::Evidence;
use toolcrib_e2e::platform::{Platform, repository};

const RELEASE: &str = "crib";
const NAMESPACE: &str = "crib-system";
const HOOK: &str = "helm.sh/hook";

/// A control plane without CustomResourceDefinitions. It is taken down at the end, even if the test
/// fails.
struct Plane {
    name: Name,
    cluster: Cluster,
    /// Dropped before the cluster is taken down.
    evidence: Option<Evidence>,
}

impl Plane {
    fn up() -> Result<Plane> {
        let name: Name = "first-install".parse()?;
        Cluster::down(&name, &Progress::silent())?;
        let cluster = Cluster::up_to(&name, Extent::ControlPlane, &Progress::stderr())?;
        let evidence = Evidence::of(&Platform::on(cluster.clone()), &[NAMESPACE]);
        Ok(Plane {
            name,
            cluster,
            evidence: Some(evidence),
        })
    }

    fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.cluster.helm();
        run(command.args(arguments).args(["--namespace", NAMESPACE]))
    }

    /// Marks the test as passed. Without this call, the objects and events of the release's
    /// namespace are printed.
    fn passed(&self) -> Result<()> {
        self.evidence.iter().try_for_each(Evidence::passed)
    }

    /// Runs the command of docs/claw-api.md with these settings.
    fn upgrade(&self, settings: &[&str]) -> Result<()> {
        let chart = repository().join("charts/toolcrib");
        let chart = chart.to_string_lossy();
        let mut arguments = vec!["upgrade", "--install", RELEASE, &chart];
        arguments.extend(["--create-namespace", "--reset-then-reuse-values"]);
        arguments.extend(settings);
        self.helm(&arguments).map(drop)
    }

    /// The metadata of all Surfaces of the cluster.
    fn surfaces(&self) -> Result<Vec<Value>> {
        let arguments = ["get", "surfaces", "--all-namespaces", "--output=json"];
        let mut list: Value = serde_json::from_str(&run(self.cluster.kubectl().args(arguments))?)?;
        let items = list["items"].as_array_mut().into_iter().flatten();
        Ok(items.map(|surface| surface["metadata"].take()).collect())
    }

    /// The metadata of claw-api's Surface, the only one.
    fn surface(&self) -> Result<Value> {
        let mut surfaces = self.surfaces()?;
        let surface = surfaces.pop().unwrap_or_default();
        ensure!(surfaces.is_empty(), "more than one Surface: {surfaces:?}");
        ensure!(surface["name"] == "claw-api", "no claw-api: {surface}");
        ensure!(surface["namespace"] == NAMESPACE, "{surface}");
        Ok(surface)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.evidence.take());
        if let Err(error) = Cluster::down(&self.name, &Progress::silent()) {
            eprintln!("cluster {} stays up: {error:#}", self.name);
        }
    }
}

/// A namespace of agents that does not exist stops nothing. When it does, an upgrade gives the rights there.
fn a_namespace_comes_later(plane: &Plane) -> Result<()> {
    let bindings = || -> Result<usize> {
        let get = ["get", "rolebindings", "--namespace=crib-agents"];
        let list = run(plane.cluster.kubectl().args(get).arg("--output=name"))?;
        Ok(list.matches("-materials").count())
    };
    plane.upgrade(&["--set=secretNamespaces={crib-agents}"])?;
    let notes = plane.helm(&["get", "notes", RELEASE])?;
    let said = "These namespaces do not exist yet: crib-agents.";
    ensure!(notes.contains(said), "{notes}");
    let create = ["create", "namespace", "crib-agents"];
    run(plane.cluster.kubectl().args(create))?;
    assert_eq!(bindings()?, 0);
    plane.upgrade(&[])?;
    assert_eq!(bindings()?, 1);
    let notes = plane.helm(&["get", "notes", RELEASE])?;
    ensure!(!notes.contains("do not exist yet"), "{notes}");
    plane.helm(&["uninstall", RELEASE]).map(drop)
}

#[test]
fn a_first_install_needs_no_definitions_and_no_namespaces() -> Result<()> {
    let plane = Plane::up()?;
    plane.upgrade(&["--set=clawApi.enabled=true,clawApi.consumers={trading}"])?;
    let installed = plane.surface()?;
    assert_ne!(installed["annotations"][HOOK], Value::Null);

    // An upgrade keeps the object, so no tool is revoked meanwhile.
    plane.upgrade(&[])?;
    let adopted = plane.surface()?;
    assert_eq!(adopted["uid"], installed["uid"]);
    assert_eq!(adopted["annotations"][HOOK], Value::Null);
    let manifest = plane.helm(&["get", "manifest", RELEASE])?;
    ensure!(manifest.contains("kind: Surface\n"), "{manifest}");
    assert_eq!(plane.helm(&["get", "hooks", RELEASE])?.trim(), "");
    plane.upgrade(&[])?;
    assert_eq!(plane.surface()?["uid"], installed["uid"]);

    plane.helm(&["rollback", RELEASE, "1"])?;
    plane.surface()?;
    // No upgrade has adopted the Surface; disabling claw-api deletes it nevertheless.
    plane.upgrade(&["--set=clawApi.enabled=false"])?;
    assert_eq!(plane.surfaces()?, [Value::Null; 0]);
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
    plane.surface()?;
    plane.helm(&["uninstall", RELEASE])?;
    // The CustomResourceDefinitions are kept, so Surfaces can still be listed.
    assert_eq!(plane.surfaces()?, [Value::Null; 0]);

    // The CustomResourceDefinitions exist now, so the Surface is an ordinary object from the first
    // release on.
    plane.upgrade(&["--set=clawApi.enabled=true"])?;
    assert_eq!(plane.surface()?["annotations"][HOOK], Value::Null);
    plane.helm(&["uninstall", RELEASE])?;
    assert_eq!(plane.surfaces()?, [Value::Null; 0]);
    a_namespace_comes_later(&plane)?;
    plane.passed()
}
