//! Resolves names to addresses.
//!
//! The containers of a pod share `/etc/hosts` and `/etc/resolv.conf`, and a container that runs as
//! root can write both. So the mediator asks the name servers of its compiled files for one
//! absolute name ([`absolute_name`]), and reads no file or variable of the pod. [`crate::outbound`]
//! decides which addresses may be dialled.
//!
//! The files of `kubectl toolcrib run`, and of operators of earlier releases, have no name
//! servers. Then the machine resolves names; in a pod this is logged.

use std::error::Error;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
    ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::Name;
use parking_lot::Mutex;
use thiserror::Error;
use toolcrib_manifest::dns::absolute_name;
use toolcrib_manifest::{Dns, NameServer};

use crate::config::CurrentConfig;
use crate::outbound::addresses::LocalNames;

/// Timeout of one attempt at a name server; a lost datagram is sent again within it.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Attempts after the first.
const RETRIES: usize = 1;
/// Timeout for a name with all its aliases and both kinds of addresses. Shorter than the connect
/// timeout, so that the error names the slow part.
const LOOKUP: Duration = Duration::from_secs(8);
/// Most cached answers: more than an agent has services.
const CACHED: u64 = 128;
/// Longest time that an answer is cached, whatever its TTL.
const LONGEST_KEPT: Duration = Duration::from_secs(300);
/// Longest time that a missing name is cached: a Service of that name may be about to be created.
const LONGEST_MISSED: Duration = Duration::from_secs(5);
/// Most addresses that are used of one answer. Each is checked before one is dialled.
const ADDRESSES: usize = 32;

/// The reason why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("the name does not exist (NXDOMAIN)")]
    NotFound,
    #[error("the name has no address")]
    NoAddress,
    #[error("no name server answered in time")]
    Timeout,
    #[error("the name server refused the query")]
    Refused,
    #[error("the name server failed ({0})")]
    ServerFailed(String),
    #[error("the name server cannot be reached ({0})")]
    Unreachable(io::ErrorKind),
    #[error("the name server's answer cannot be used")]
    BadAnswer,
    #[error("the name is not a valid DNS name")]
    NotAName,
    #[error("the agent's files name no name server: set dns.nameServers of the operator's chart")]
    NoNameServers,
    #[error("no files with name servers are loaded yet")]
    NoFiles,
    #[error("the name resolves to an address that is not dialled")]
    RefusedAddress,
    /// An error of [`Resolver::of_machine`], which is only a text.
    #[error("the machine does not resolve the name: {0}")]
    Machine(String),
}

impl ResolveError {
    /// A stable word for log, record and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            ResolveError::NotFound => "nxdomain",
            ResolveError::NoAddress => "no_address",
            ResolveError::Timeout => "timeout",
            ResolveError::Refused => "refused",
            ResolveError::ServerFailed(_) => "server_failed",
            ResolveError::Unreachable(_) => "unreachable",
            ResolveError::BadAnswer => "bad_answer",
            ResolveError::NotAName => "not_a_name",
            ResolveError::NoNameServers => "no_name_servers",
            ResolveError::NoFiles => "no_files",
            ResolveError::RefusedAddress => "refused_address",
            ResolveError::Machine(_) => "machine",
        }
    }

    /// Finds the resolve error in the chain of a client's error.
    pub fn of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a ResolveError> {
        let mut causes = iter::successors(Some(error), |error| (*error).source());
        causes.find_map(|error| error.downcast_ref())
    }
}

impl From<NetError> for ResolveError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other failure of a name server is a bad answer"
    )]
    fn from(error: NetError) -> Self {
        let of_code = |code: ResponseCode| match code {
            ResponseCode::NXDomain => ResolveError::NotFound,
            ResponseCode::NoError => ResolveError::NoAddress,
            ResponseCode::Refused => ResolveError::Refused,
            code => ResolveError::ServerFailed(code.to_string()),
        };
        match error {
            NetError::Timeout => ResolveError::Timeout,
            NetError::Io(error) => ResolveError::Unreachable(error.kind()),
            NetError::NoConnections => ResolveError::Unreachable(io::ErrorKind::NotConnected),
            NetError::Busy => ResolveError::Unreachable(io::ErrorKind::ResourceBusy),
            NetError::Dns(DnsError::ResponseCode(code)) => of_code(code),
            NetError::Dns(DnsError::NoRecordsFound(none)) => of_code(none.response_code),
            _ => ResolveError::BadAnswer,
        }
    }
}

/// Looks names up; clones share the cache.
#[derive(Clone, Debug)]
pub struct Resolver(Arc<Source>);

#[derive(Debug)]
enum Source {
    Machine,
    Files {
        current: Arc<CurrentConfig>,
        local: LocalNames,
        /// The name servers of the last files that named any. They outlive files that name none:
        /// those of an operator that was rolled back, or deleted files.
        last: Mutex<Option<Arc<Servers>>>,
        /// True once the missing name servers were logged.
        warned: AtomicBool,
    },
}

/// The name servers of one version of the files, with their cached answers.
#[derive(Debug)]
struct Servers {
    dns: Dns,
    /// The namespace of a name with one label.
    namespace: String,
    client: TokioResolver,
}

/// The resolver to use now.
enum ResolverChoice {
    Machine,
    Servers(Arc<Servers>),
}

impl Resolver {
    /// Resolves like other programs of this machine.
    pub fn of_machine() -> Self {
        Self(Arc::new(Source::Machine))
    }

    /// Resolves with the name servers of the files in force, at each lookup.
    pub fn of_files(current: Arc<CurrentConfig>, local: LocalNames) -> Self {
        Self(Arc::new(Source::Files {
            current,
            local,
            last: Mutex::default(),
            warned: AtomicBool::new(false),
        }))
    }

    /// Returns at least one address, with port 0.
    pub async fn lookup(&self, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = match self.now()? {
            ResolverChoice::Machine => of_machine(host).await?,
            ResolverChoice::Servers(servers) => servers.lookup(host).await?,
        };
        if found.is_empty() {
            return Err(ResolveError::NoAddress);
        }
        Ok(found)
    }

    fn now(&self) -> Result<ResolverChoice, ResolveError> {
        let (current, local, last, warned) = match &*self.0 {
            Source::Machine => return Ok(ResolverChoice::Machine),
            Source::Files {
                current,
                local,
                last,
                warned,
            } => (current, *local, last, warned),
        };
        let effective = current.now();
        let mut last = last.lock();
        let Some(names) = effective.load_state.names() else {
            let servers = last.clone().ok_or(ResolveError::NoFiles)?;
            return Ok(ResolverChoice::Servers(servers));
        };
        let dns = match (names.dns, &*last) {
            (Some(dns), _) => dns,
            (None, Some(servers)) => return Ok(ResolverChoice::Servers(servers.clone())),
            (None, None) => {
                if local == LocalNames::Refused && !warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the agent's files name no name servers, so names are resolved by the pod's own files, which a container that runs as root can change: upgrade the operator"
                    );
                }
                return Ok(ResolverChoice::Machine);
            }
        };
        if let Some(servers) = &*last
            && servers.dns == *dns
            && servers.namespace == names.namespace
        {
            return Ok(ResolverChoice::Servers(servers.clone()));
        }
        let servers = Servers::new(dns.clone(), names.namespace.to_owned(), local);
        let servers = Arc::new(servers.inspect_err(|error| {
            if !warned.swap(true, Ordering::Relaxed) {
                tracing::error!(error = error.to_string(), "DNS resolver not created");
            }
        })?);
        *last = Some(servers.clone());
        Ok(ResolverChoice::Servers(servers))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where the files name no name servers"
)]
async fn of_machine(host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    let found = tokio::net::lookup_host((host, 0)).await;
    let found = found.map_err(|error| ResolveError::Machine(error.to_string()))?;
    Ok(found.take(ADDRESSES).collect())
}

impl Servers {
    fn new(dns: Dns, namespace: String, local: LocalNames) -> Result<Self, ResolveError> {
        let may_ask = |server: &&NameServer| local == LocalNames::Allowed || !server.is_in_pod();
        let servers = dns.name_servers.iter().filter(may_ask).map(|server| {
            let address = server.address();
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            let connections = connections.map(|mut connection| {
                connection.port = address.port();
                connection
            });
            // The next server is asked after an error, not after "no such name".
            NameServerConfig::new(address.ip(), true, connections.to_vec())
        });
        let servers: Vec<NameServerConfig> = servers.collect();
        if servers.is_empty() {
            return Err(ResolveError::NoNameServers);
        }
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let client = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options())
            .build()
            .map_err(ResolveError::from)?;
        Ok(Self {
            dns,
            namespace,
            client,
        })
    }

    async fn lookup(&self, host: &str) -> Result<Vec<SocketAddr>, ResolveError> {
        let name = absolute_name(host, &self.namespace, &self.dns.cluster_domain);
        let name = Name::from_ascii(name).map_err(|_| ResolveError::NotAName)?;
        let found = tokio::time::timeout(LOOKUP, self.client.lookup_ip(name))
            .await
            .map_err(|_| ResolveError::Timeout)??;
        let addresses = found.iter().take(ADDRESSES);
        Ok(addresses.map(|ip| SocketAddr::new(ip, 0)).collect())
    }
}

fn options() -> ResolverOpts {
    let mut options = ResolverOpts::default();
    // Reads no file of the pod. Names end in a dot, so `ndots` and search domains do not matter.
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = ATTEMPT;
    options.attempts = RETRIES;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHED;
    options.positive_max_ttl = Some(LONGEST_KEPT);
    options.negative_max_ttl = Some(LONGEST_MISSED);
    options.preserve_intermediates = false;
    // A forged answer must have the query's case, besides its port and id.
    options.case_randomization = true;
    options
}
