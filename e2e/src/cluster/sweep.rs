//! Removes a cluster, complete or not.
//!
//! Invariant: a sweep is safe at any moment and any number of times. It uses the records of
//! `state.json` and names derived from the cluster's own, and never searches for processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::io::Errno;

use super::layout::{Index, Layout};
use super::process::{ip, poll};
use super::state::State;

/// Timeout of killing a namespace, which waits for each of its processes; some write to disk.
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// Timeout of removing a cgroup folder: the kernel must have released its last process.
const CGROUP_DEADLINE: Duration = Duration::from_secs(30);

/// Removes every process, device, cgroup and file of the cluster.
pub fn sweep(layout: &Layout) -> Result<()> {
    if let Some(state) = State::read(layout)? {
        if let Some(node) = &state.node {
            // Kills the inner process first: it ends only after all others of its PID namespace,
            // and their end removes the mounts and the network.
            node.inner.kill(KILL_DEADLINE)?;
            node.outer.kill(KILL_DEADLINE)?;
        }
        remove_device(layout, state.index)?;
        for folder in cgroup_folders(layout, state.index)? {
            poll(
                CGROUP_DEADLINE,
                || format!("cgroup {} is still in use", folder.display()),
                || remove_cgroup(&folder),
            )?;
        }
    }
    remove_files(layout)
}

/// Removes the veth pair. The kernel removes it with the node's network namespace, but later, and
/// the next cluster may need the name sooner. A device without the cluster's mark belongs to
/// another cluster, or has no mark yet and is removed with its namespace.
fn remove_device(layout: &Layout, index: Index) -> Result<()> {
    let marked = || match fs::read_to_string(index.device_alias()) {
        Ok(alias) => Ok(alias.trim_end() == layout.mark()),
        // If the device is removed during the read, the error is ENODEV.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(false),
        Err(error) => Err(error).context("read a device's alias"),
    };
    if !marked()? {
        return Ok(());
    }
    let deleted = ip(&format!("link delete {}", index.device()));
    if marked()? { deleted } else { Ok(()) }
}

/// The cluster's folder in each cgroup hierarchy that has one.
fn cgroup_folders(layout: &Layout, index: Index) -> Result<Vec<PathBuf>> {
    let mut folders = hierarchies()?;
    for folder in &mut folders {
        folder.push(layout.cgroup(index));
    }
    folders.retain(|folder| folder.is_dir());
    Ok(folders)
}

/// Folders where the machine has cgroups mounted, of either version.
pub fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?;
    Ok(mounts
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [_, folder, "cgroup" | "cgroup2", ..] => Some(PathBuf::from(folder)),
            _ => None,
        })
        .collect())
}

/// Removes depth first; `None` while a process is still in one of the cgroups.
fn remove_cgroup(folder: &Path) -> Result<Option<()>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(())),
        Err(error) => return Err(error).with_context(|| format!("list {}", folder.display())),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() && remove_cgroup(&entry.path())?.is_none() {
            return Ok(None);
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
        Err(error) => Err(error).with_context(|| format!("remove {}", folder.display())),
    }
}

/// Removes the cluster's folder, and the state last: while it exists, the next sweep continues a
/// killed one.
fn remove_files(layout: &Layout) -> Result<()> {
    let entries = match fs::read_dir(&layout.dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("list {}", layout.dir.display())),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if path == layout.state() {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    fs::remove_dir_all(&layout.dir).with_context(|| format!("remove {}", layout.dir.display()))
}
