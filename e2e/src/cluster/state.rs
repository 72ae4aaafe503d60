//! The recorded state of a cluster, which is kept between two commands.
//!
//! Invariant: every resource of a cluster outside its folder is recorded here before it exists, or
//! ends with the process that created it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::layout::{Home, Index, Layout};
use super::lock::Lock;
use super::process::{Identity, write_whole};

/// Timeout of the lock for choosing an index, which takes milliseconds.
const CHOICE_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    pub index: Index,
    pub extent: Extent,
    /// The binary that contains the node's programs, kubectl and Helm.
    pub kube: PathBuf,
    /// `None` while the node is being created.
    pub node: Option<NodeProcesses>,
}

/// The parts of a cluster that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// Everything; pods run.
    #[default]
    Node,
    /// etcd, API server and controllers: objects are stored, but no pod runs. It costs a fraction
    /// of a whole node.
    ControlPlane,
}

/// The node's two processes as the host sees them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeProcesses {
    /// The process that created the namespaces; the node dies with it.
    pub outer: Identity,
    /// Process 1 of the node's PID namespace; commands on the node enter the namespaces of this
    /// process.
    pub inner: Identity,
}

impl NodeProcesses {
    pub fn alive(&self) -> Result<bool> {
        Ok(self.outer.alive()? && self.inner.alive()?)
    }
}

impl State {
    /// Reads the state; `None` if there is no such cluster.
    pub fn read(layout: &Layout) -> Result<Option<State>> {
        let path = layout.state();
        match fs::read(&path) {
            Ok(bytes) => {
                let state = serde_json::from_slice(&bytes)
                    .with_context(|| format!("read {}", path.display()))?;
                Ok(Some(state))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    pub fn write(&self, layout: &Layout) -> Result<()> {
        write_whole(&layout.state(), serde_json::to_vec_pretty(self)?)
    }

    /// Allocates a new cluster's state, with the lowest index that no other cluster has, of this
    /// home or another.
    pub fn allocate(home: &Home, layout: &Layout, extent: Extent, kube: PathBuf) -> Result<State> {
        let _lock = Lock::take(&home.join("locks/indexes"), CHOICE_DEADLINE, |_| {})?;
        let mut taken = BTreeSet::new();
        for other in names(home)? {
            if let Some(state) = State::read(&Layout::new(home, &other))? {
                taken.insert(state.index.host_address());
            }
        }
        let index = Index::all()
            .find(|index| !taken.contains(&index.host_address()) && !index.in_use())
            .context("all 64 indexes are taken: take a cluster down")?;
        let state = State {
            index,
            extent,
            kube,
            node: None,
        };
        fs::create_dir_all(&layout.dir)
            .with_context(|| format!("create {}", layout.dir.display()))?;
        state.write(layout)?;
        Ok(state)
    }
}

/// Names of the clusters that have a folder, up or not.
pub fn names(home: &Home) -> Result<Vec<super::layout::Name>> {
    let entries = match fs::read_dir(home.clusters()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("list the clusters"),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok()),
        );
    }
    names.sort();
    Ok(names)
}
