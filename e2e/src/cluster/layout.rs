//! Names, addresses and paths of a cluster, all derived from the cluster's name and its index.
//!
//! Not here: reading or writing them. Invariant: two clusters with two names and two indexes
//! share no address, device, cgroup folder or path.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The folder of everything that is kept between runs: `$TOOLCRIB_HOME`, else
/// `~/.cache/toolcrib`.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    /// Reads the environment; fails if neither `TOOLCRIB_HOME` nor `HOME` is set.
    pub fn find() -> Result<Home> {
        if let Some(home) = std::env::var_os("TOOLCRIB_HOME") {
            return Ok(Home(std::path::absolute(home)?));
        }
        let home = std::env::var_os("HOME").context("neither TOOLCRIB_HOME nor HOME is set")?;
        Ok(Home(PathBuf::from(home).join(".cache/toolcrib")))
    }

    /// Path of a file or folder directly in the home.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// The folder that has one folder per cluster, see [`Layout`].
    pub fn clusters(&self) -> PathBuf {
        self.0.join("clusters")
    }
}

/// A cluster's name: a DNS label short enough to be part of a host name, a cgroup
/// folder and a node name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// The name of the cluster in the README's commands.
    pub fn default_name() -> Name {
        Name("toolcrib".into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Name> {
        let label = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !label || name.is_empty() || name.len() > 30 {
            bail!("cluster name {name:?}: want 1 to 30 of a-z, 0-9 and '-', not at the ends");
        }
        Ok(Name(name.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A cluster's number in 198.51.100.0/24. This is a documentation range, so it hides no real
/// network. Each cluster has a /30, joined to the host by a veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Index(u8);

impl Index {
    /// All indexes, in the order in which they are allocated.
    pub fn all() -> impl Iterator<Item = Index> {
        (0..64).map(Index)
    }

    pub fn host_address(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, self.0 * 4 + 1)
    }

    /// The address on which the API server, the kubelet and the DNS server listen.
    pub fn node_address(self) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, self.0 * 4 + 2)
    }

    /// The host's end of the veth pair.
    pub fn device(self) -> String {
        format!("toolcrib{}", self.0)
    }

    /// The file with the mark of the cluster that owns the device.
    pub fn device_alias(self) -> PathBuf {
        Path::new("/sys/class/net")
            .join(self.device())
            .join("ifalias")
    }

    /// True if the host's end of the veth pair exists.
    pub fn in_use(self) -> bool {
        Path::new("/sys/class/net").join(self.device()).exists()
    }
}

/// These ranges and addresses are the same for every cluster: each node has a network namespace of
/// its own.
pub const POD_RANGE: &str = "10.244.0.0/16";
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
pub const API_PORT: u16 = 6443;
/// CoreDNS's readiness endpoint on the node's address.
pub const DNS_READY_PORT: u16 = 8181;
/// The socket is in the node's private `/run`, so the length of its path does not depend on the
/// home's path: a socket's path has at most 107 bytes.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The sandbox image of every pod: our own, so that the node pulls from no registry.
pub const PAUSE_IMAGE: &str = "docker.io/toolcrib/pause:dev";

/// The folder of one cluster.
#[derive(Clone, Debug)]
pub struct Layout {
    pub name: Name,
    pub dir: PathBuf,
    home: Home,
}

impl Layout {
    pub fn new(home: &Home, name: &Name) -> Layout {
        Layout {
            name: name.clone(),
            dir: home.clusters().join(name.as_str()),
            home: home.clone(),
        }
    }

    /// Returns the alias that distinguishes this cluster's network device from one of another home.
    /// It contains a digest of the folder, because the kernel allows only a short text, and `ip`
    /// none with spaces.
    pub fn mark(&self) -> String {
        let digest = Sha256::digest(self.dir.as_os_str().as_encoded_bytes());
        format!("{}-{}", self.name, &hex::encode(digest)[..16])
    }

    pub fn home(&self) -> &Path {
        &self.home.0
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Lock file for bringing a cluster up or down. It is outside the cluster's folder, which
    /// `down` removes.
    pub fn lock(&self) -> PathBuf {
        self.home.join(format!("locks/cluster-{}", self.name))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// File with the reason why the node ended by itself; absent while it runs.
    pub fn failure(&self) -> PathBuf {
        self.dir.join("failure")
    }

    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    /// The audit log, one line of JSON per API request: the user, the request, and whether it was
    /// allowed.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    pub fn pki(&self, file: &str) -> PathBuf {
        self.dir.join("pki").join(file)
    }

    pub fn config(&self, file: &str) -> PathBuf {
        self.dir.join("config").join(file)
    }

    /// containerd's folder of registries, with a folder `HOST:PORT` for each that it pulls from in another
    /// way than by HTTPS.
    pub fn registries(&self) -> PathBuf {
        self.config("registries")
    }

    pub fn data(&self, component: &str) -> PathBuf {
        self.dir.join("data").join(component)
    }

    /// The cluster's cgroup, relative to each mounted hierarchy. It contains the index, because
    /// clusters of another home may have the same name.
    pub fn cgroup(&self, index: Index) -> String {
        format!("toolcrib{}-{}", index.0, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_share_no_address_and_stay_in_the_range() {
        let mut seen = std::collections::BTreeSet::new();
        for index in Index::all() {
            for address in [index.host_address(), index.node_address()] {
                assert_eq!(address.octets()[..3], [198, 51, 100]);
                assert!(seen.insert(address), "{address} twice");
            }
            assert!(
                index.device().len() <= 15,
                "the kernel's limit for device names"
            );
        }
    }

    #[test]
    fn names_are_dns_labels() {
        for good in ["toolcrib", "a", "two-2"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a/b", "a.b", "..", &"a".repeat(31)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
