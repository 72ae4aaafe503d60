//! The node's first process. It starts the programs inside the namespaces that `launch.rs` created,
//! and ends with the first program that ends.
//!
//! As process 1 of its PID namespace it also reaps orphans (the shims of containers), and the
//! kernel ends every process of the namespace with it. Invariant: nothing is ever restarted; a
//! node runs whole or not at all.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use super::components::{Component, Ready, components};
use super::layout::{Index, Layout, POD_RANGE};
use super::process::{ip, output, poll, run};
use super::state::Extent;

/// Timeout of a program's start, on a machine whose two cores are busy with builds.
const START_DEADLINE: Duration = Duration::from_secs(180);

/// The messages of the start: this process sends `READY` to the host, and the host answers `GO`
/// when the veth pair is in place.
pub const READY: &str = "ready";
pub const GO: &str = "go";

/// Runs the node. Never returns `Ok`: a node that ends has failed.
pub fn serve(layout: &Layout, index: Index, extent: Extent, kube: &Path) -> Result<()> {
    converse()?;
    let ended = prepare_mounts(layout)
        .and_then(|()| prepare_network(index))
        .and_then(|()| {
            let components = components(layout, index, extent, kube);
            Node::default().serve(layout, components, kube)
        });
    if let Err(error) = &ended {
        fs::write(layout.failure(), format!("{error:#}\n")).context("write the failure")?;
    }
    ended
}

/// Waits for the host, which must record this process before any program starts. If the input ends
/// without the message, the host was killed earlier, and the cluster's folder may belong to another
/// run.
fn converse() -> Result<()> {
    println!("{READY}");
    std::io::stdout().flush()?;
    let mut word = String::new();
    std::io::stdin().lock().read_line(&mut word)?;
    if word.trim() != GO {
        bail!("the starting process ended before the node's network was ready");
    }
    Ok(())
}

/// Mounts private folders where programs have fixed paths. Only the empty mount points stay
/// behind on the machine.
fn prepare_mounts(layout: &Layout) -> Result<()> {
    mount(
        "tmpfs",
        "/run",
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=755",
    )
    .context("mount a private /run")?;
    for fixed in ["/var/log", "/var/lib/cni", "/var/lib/kubelet"] {
        let private = layout.data("fixed").join(fixed.trim_start_matches('/'));
        fs::create_dir_all(&private)?;
        fs::create_dir_all(fixed)?;
        mount_bind(&private, fixed).with_context(|| format!("mount a private {fixed}"))?;
    }
    Ok(())
}

fn prepare_network(index: Index) -> Result<()> {
    ip("link set lo up")?;
    ip(&format!("address add {}/30 dev eth0", index.node_address()))?;
    ip("link set eth0 up")?;
    ip(&format!("route add default via {}", index.host_address()))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let the node route between pods")?;
    // The host has no route to a pod, so packets from pods to the host carry the node's address.
    let masquerade = format!(
        "table ip toolcrib {{
            chain leaving {{
                type nat hook postrouting priority srcnat
                ip saddr {POD_RANGE} oifname \"eth0\" masquerade
            }}
        }}"
    );
    run(Command::new("nft").arg(masquerade)).map(drop)
}

#[derive(Default)]
struct Node {
    running: HashMap<Pid, &'static str>,
}

impl Node {
    fn serve(&mut self, layout: &Layout, components: Vec<Component>, kube: &Path) -> Result<()> {
        for component in components {
            self.start(layout, &component)?;
            self.await_ready(layout, &component, kube)?;
        }
        loop {
            self.collect(layout, WaitOptions::empty())?;
        }
    }

    fn start(&mut self, layout: &Layout, component: &Component) -> Result<()> {
        let name = component.name;
        let log = File::create(layout.log(name)).with_context(|| format!("create {name}'s log"))?;
        let [program, arguments @ ..] = component.command.as_slice() else {
            bail!("{name} has no program");
        };
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        // Dropping the handle does not end the process; `collect` sees every child's end.
        self.running.insert(Pid::from_child(&child), name);
        Ok(())
    }

    fn await_ready(&mut self, layout: &Layout, component: &Component, kube: &Path) -> Result<()> {
        let missed = || {
            format!(
                "{} is not ready: see {}",
                component.name,
                layout.log(component.name).display()
            )
        };
        poll(START_DEADLINE, missed, || {
            self.collect(layout, WaitOptions::NOHANG)?;
            Ok(answers(&component.ready, layout, kube)?.then_some(()))
        })
    }

    /// Reaps ended children. Returns an error if one of them was a component.
    fn collect(&mut self, layout: &Layout, options: WaitOptions) -> Result<()> {
        while let Some((pid, status)) = wait(options).context("wait for the node's programs")? {
            if let Some(name) = self.running.remove(&pid) {
                let log = layout.log(name);
                bail!("{name} ended with {}: see {}", shown(status), log.display());
            }
        }
        Ok(())
    }
}

fn answers(ready: &Ready, layout: &Layout, kube: &Path) -> Result<bool> {
    Ok(match ready {
        Ready::AtOnce => true,
        Ready::Socket(path) => UnixStream::connect(path).is_ok(),
        Ready::Port(address) => TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok(),
        Ready::Api => {
            let mut kubectl = Command::new(kube);
            kubectl
                .arg("kubectl")
                .arg("--kubeconfig")
                .arg(layout.kubeconfig());
            output(kubectl.args(["get", "--raw=/readyz"]))?
                .status
                .success()
        }
    })
}

fn shown(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".into(),
    }
}
