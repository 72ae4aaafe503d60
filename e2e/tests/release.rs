//! A release from its source to a governed call: built, pushed to a registry, and installed from
//! there by digest, on a node to which nobody gave the product's images of the release.
//!
//! A separate target: it runs on the node from which another has uninstalled Toolcrib. The servers
//! and the runner of the example are the node's own images. Not here: the programs' release profile, which takes
//! minutes more and changes no file but the programs.

#[path = "governed/support.rs"]
#[expect(dead_code, reason = "shared with the other end-to-end tests")]
mod support;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use toolcrib_e2e::platform::{NAMESPACE, PollResult, RELEASE, repository};

use support::{Desk, MEDIATOR, START};

const AGENTS: &str = "released";

#[test]
fn a_release_is_reproducible_and_installs_from_a_registry() -> Result<()> {
    let work = tempfile::tempdir()?;
    let folder = work.path().join("release");
    build(&folder)?;
    let again = work.path().join("again");
    build(&again)?;
    let read = |folder: &Path| fs::read_to_string(folder.join("checksums.txt"));
    ensure!(read(&folder)? == read(&again)?, "two builds differ");

    let platform = support::platform()?;
    let Some((_registry, address)) = Registry::start(&platform, work.path())? else {
        return Ok(());
    };
    let registry = format!("{address}/tools");
    let pushed = run(Command::new(repository().join("release/push"))
        .arg("--plain-http")
        .args([folder.as_os_str(), registry.as_ref()]))?;
    ensure!(
        pushed.contains(&format!("oci://{registry}/charts/toolcrib")),
        "{pushed}"
    );

    let chart = format!("oci://{registry}/charts/toolcrib");
    run(platform
        .cluster()
        .helm()
        .args(["install", RELEASE, &chart, "--plain-http"])
        .args(["--namespace", NAMESPACE, "--create-namespace", "--wait"])
        .args([
            "--timeout",
            "5m",
            "--set",
            &format!("secretNamespaces={{{AGENTS}}}"),
        ]))?;
    let desk = Desk::open(AGENTS)?;
    let answer = desk.ask("analyst", "What is my market context?")?;
    ensure!(answer.contains(r#""status_code":200"#), "{answer}");

    // By digest, from the registry.
    let digests = fs::read_to_string(folder.join("images.txt"))?;
    let digest = |image: &str| -> Result<String> {
        let line = digests.lines().find_map(|line| line.strip_prefix(image));
        let digest = line.with_context(|| format!("no {image} in {digests}"))?;
        Ok(format!("{registry}/toolcrib/{image}@{}", digest.trim()))
    };
    let pods = platform.get(&["pods", "--namespace", NAMESPACE])?;
    let pods = pods["items"].as_array().context("a list of pods")?;
    ensure!(!pods.is_empty(), "no pods of the operator");
    for pod in pods {
        let image = &pod["spec"]["containers"][0]["image"];
        ensure!(*image == digest("operator")?, "{image}");
    }
    let analyst = platform.get(&["pod", "analyst", "--namespace", AGENTS])?;
    let mediator = &analyst["spec"]["initContainers"][0];
    ensure!(
        mediator["name"] == MEDIATOR && mediator["image"] == digest("sidecar")?,
        "{mediator}"
    );
    desk.passed()
}

fn build(folder: &Path) -> Result<String> {
    run(Command::new(repository().join("release/build"))
        .arg("--quick")
        .arg(folder))
}

fn run(command: &mut Command) -> Result<String> {
    let done = command.output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {said}");
    Ok(String::from_utf8(done.stdout)?)
}

/// Debian's registry, on the machine's end of the node's network.
struct Registry(Child);

impl Registry {
    /// Returns nothing if the node is not one of this machine's.
    fn start(
        platform: &toolcrib_e2e::platform::Platform,
        work: &Path,
    ) -> Result<Option<(Registry, SocketAddr)>> {
        let port = TcpListener::bind("0.0.0.0:0")?.local_addr()?.port();
        let Some(address) = platform.cluster().allow_plain_registry(port)? else {
            return Ok(None);
        };
        let store = work.join("registry");
        let settings = serde_json::json!({
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": store}},
            "http": {"addr": address.to_string()},
        });
        let file = work.join("registry.yaml");
        fs::write(&file, settings.to_string())?;
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .spawn()
            .context("docker-registry, of the Debian package of that name")?;
        let registry = Registry(child);
        platform.eventually("the registry to listen", START, || {
            let listens = std::net::TcpStream::connect(address);
            Ok(PollResult::when(listens.is_ok(), format!("{listens:?}")))
        })?;
        Ok(Some((registry, address)))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
