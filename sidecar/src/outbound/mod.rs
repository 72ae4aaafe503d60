//! The HTTP clients for all outgoing calls, and their shared settings. [`addresses`] says where no call
//! goes, [`resolver`] looks names up, and [`lookup`] checks what it found; [`transport`] is the client on
//! the path of a runner's request, and reqwest the one for all else. Below it are the callers: [`tools`], [`model`],
//! [`feeds`] and [`link`] (the operator's allowlist); [`single_flight`] shares one call among them.
//!
//! Invariants: no redirect is followed (a 307 would carry the credential to another host); no
//! proxy or root certificate is taken from the environment; a name never leads to this machine
//! (not even by an address of its network), to the link-local range or to a metadata service. The
//! check is on the addresses that are really connected to, so a name that changes its answer gains
//! nothing. Every client for a URL of the compiled files comes from [`Outbound::towards`] or
//! [`Outbound::transport`], which check literal addresses by the compiler's own rule.

mod addresses;
pub mod body;
pub mod error;
pub mod feeds;
pub mod link;
mod lookup;
pub mod model;
pub mod operator;
pub mod outages;
pub mod questions;
pub mod resolver;
pub mod single_flight;
pub mod tools;
pub mod transport;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::uri::InvalidUri;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use reqwest::{Client, Proxy, redirect};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use toolcrib_bounds::ca::{CaError, certificates};
use toolcrib_manifest::ServiceSettings;
use toolcrib_mediation::{ConnectionCause, ConnectionFailure};
use url::{Host, ParseError, Url};

pub use crate::outbound::addresses::LocalNames;
use crate::outbound::lookup::{ClientNames, GuardedLookup, guarded};
use crate::outbound::resolver::Resolver;
use crate::outbound::transport::{Destination, Transport};

/// Connect timeout: long enough for a lost SYN to be sent twice.
const CONNECT: Duration = Duration::from_secs(10);
/// Idle timeout of connections: shorter than that of usual servers, so that few reused
/// connections are closed already.
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PER_HOST: usize = 16;
/// Interval of TCP's probes of a silent connection, and time after which it is given up.
const PROBE: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Most cached clients, by (CA, proxy), and most cached URLs. A manifest that has more empties
/// the cache.
const CLIENTS: usize = 64;

/// A text of the manifest that is no URL.
#[derive(Debug, Error)]
pub enum UrlError {
    #[error(transparent)]
    Url(#[from] ParseError),
    #[error(transparent)]
    Uri(#[from] InvalidUri),
}

#[derive(Debug, Error)]
pub enum OutboundError {
    /// The URL, or the proxy's URL, has a literal address that is not dialled.
    #[error("{}", .0.cause)]
    AddressRefused(ConnectionFailure),
    #[error("the CA bundle {0}")]
    Ca(CaError),
    #[error("the proxy is not a URL")]
    Proxy,
    #[error("the HTTP client cannot be created: {0}")]
    Build(String),
}

/// The HTTP clients by CA bundle and proxy. Each has its own connections, so no connection is
/// shared across trust.
#[derive(Debug)]
pub struct Outbound {
    local: LocalNames,
    resolver: Resolver,
    /// Fixed addresses of names that are not looked up.
    addresses: Vec<(String, SocketAddr)>,
    clients: Mutex<HashMap<Route, Client>>,
    /// The transports without a proxy, by CA bundle.
    transports: Mutex<Vec<(Option<String>, Transport)>>,
    urls: Mutex<HashMap<String, Arc<Destination>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Route {
    ca: Option<String>,
    proxy: Option<String>,
}

impl Outbound {
    pub fn new(local: LocalNames, resolver: Resolver) -> Self {
        Self {
            local,
            resolver,
            addresses: Vec::new(),
            clients: Mutex::default(),
            transports: Mutex::default(),
            urls: Mutex::default(),
        }
    }

    /// Sets the address of a name, for runs without cluster DNS, such as measurements of the link.
    pub fn with_address(mut self, name: &str, address: SocketAddr) -> Self {
        self.addresses.push((name.to_owned(), address));
        self
    }

    /// Parses a URL of the manifest, once.
    pub fn url(&self, text: &str) -> Result<Arc<Destination>, UrlError> {
        let mut urls = self.urls.lock();
        if let Some(url) = urls.get(text) {
            return Ok(url.clone());
        }
        let url = Arc::new(Destination::try_from(Url::parse(text)?)?);
        if urls.len() >= CLIENTS {
            urls.clear();
        }
        urls.insert(text.to_string(), url.clone());
        Ok(url)
    }

    /// Returns the client for a URL of the compiled files. `ca` replaces the public roots.
    pub fn towards(
        &self,
        url: &Url,
        ca: Option<&str>,
        proxy: Option<&str>,
    ) -> Result<Client, OutboundError> {
        self.check(url)?;
        if let Some(proxy) = proxy {
            self.check(&Url::parse(proxy).map_err(|_| OutboundError::Proxy)?)?;
        }
        self.client(ca, proxy)
    }

    /// The same with a service's settings.
    pub fn towards_service(
        &self,
        url: &Url,
        settings: Option<&ServiceSettings>,
    ) -> Result<Client, OutboundError> {
        let (ca, proxy) = route_of(settings);
        self.towards(url, ca, proxy)
    }

    /// Returns the transport for a URL of the compiled files. `ca` replaces the public roots.
    pub fn transport(
        &self,
        url: &Url,
        ca: Option<&str>,
        proxy: Option<&str>,
    ) -> Result<Transport, OutboundError> {
        if proxy.is_some() {
            return self.towards(url, ca, proxy).map(Transport::Proxied);
        }
        self.check(url)?;
        let mut transports = self.transports.lock();
        let known = transports.iter().find(|(it, _)| it.as_deref() == ca);
        if let Some((_, transport)) = known {
            return Ok(transport.clone());
        }
        let transport = Transport::direct(tls(ca)?, self.lookup());
        if transports.len() >= CLIENTS {
            transports.clear();
        }
        transports.push((ca.map(str::to_string), transport.clone()));
        Ok(transport)
    }

    /// The same with a service's settings.
    pub fn transport_to_service(
        &self,
        url: &Url,
        settings: Option<&ServiceSettings>,
    ) -> Result<Transport, OutboundError> {
        let (ca, proxy) = route_of(settings);
        self.transport(url, ca, proxy)
    }

    /// Fails if the host is a literal address that is not dialled: the resolver is not asked for
    /// such a host.
    fn check(&self, url: &Url) -> Result<(), OutboundError> {
        let address = match url.host() {
            None | Some(Host::Domain(_)) => return Ok(()),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
        };
        if self.local.refuses(address) {
            return Err(OutboundError::AddressRefused(ConnectionFailure {
                cause: ConnectionCause::AddressRefused,
                address: url.origin().ascii_serialization(),
            }));
        }
        Ok(())
    }

    /// Returns the client for a CA bundle and proxy. `ca` is trusted instead of the public roots.
    pub fn client(&self, ca: Option<&str>, proxy: Option<&str>) -> Result<Client, OutboundError> {
        let route = Route {
            ca: ca.map(str::to_string),
            proxy: proxy.map(str::to_string),
        };
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&route) {
            return Ok(client.clone());
        }
        let client = self.build(&route)?;
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        clients.insert(route, client.clone());
        Ok(client)
    }
}

impl Outbound {
    /// Returns a client with new connections.
    pub fn fresh_client(
        &self,
        ca: Option<&str>,
        proxy: Option<&str>,
    ) -> Result<Client, OutboundError> {
        self.build(&Route {
            ca: ca.map(str::to_string),
            proxy: proxy.map(str::to_string),
        })
    }

    fn build(&self, route: &Route) -> Result<Client, OutboundError> {
        build(route, self.lookup(), &self.addresses)
    }

    fn lookup(&self) -> GuardedLookup {
        let resolver = self.resolver.clone();
        let lookup = move |name: String| {
            let resolver = resolver.clone();
            async move { resolver.lookup(&name).await }
        };
        guarded(self.local.refusals(), lookup)
    }
}

/// The CA bundle and the proxy of a service's settings.
fn route_of(settings: Option<&ServiceSettings>) -> (Option<&str>, Option<&str>) {
    let ca = settings.and_then(|settings| settings.tls.as_ref()?.ca.as_deref());
    (ca, settings.and_then(|settings| settings.proxy.as_deref()))
}

/// Builds a client. `addresses`: fixed addresses of names that `names` does not look up.
#[expect(clippy::disallowed_methods, reason = "the one place")]
fn build(
    route: &Route,
    names: GuardedLookup,
    addresses: &[(String, SocketAddr)],
) -> Result<Client, OutboundError> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls(route.ca.as_deref())?)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .dns_resolver(Arc::new(ClientNames(names)))
        .connect_timeout(CONNECT)
        .tcp_keepalive(PROBE)
        .tcp_keepalive_interval(PROBE)
        .tcp_keepalive_retries(PROBES)
        .tcp_user_timeout(UNACKNOWLEDGED)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_PER_HOST);
    if let Some(proxy) = &route.proxy {
        builder = builder.proxy(Proxy::all(proxy).map_err(|_| OutboundError::Proxy)?);
    }
    for (name, address) in addresses {
        builder = builder.resolve(name, *address);
    }
    builder
        .build()
        .map_err(|error| OutboundError::Build(error.to_string()))
}

fn tls(ca: Option<&str>) -> Result<ClientConfig, OutboundError> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => roots.extend(certificates(pem).map_err(OutboundError::Ca)?),
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| OutboundError::Build(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Sets a [`Transport`]'s TCP up as [`build`] sets that of reqwest's clients.
fn keep_alive(tcp: &mut HttpConnector<impl Clone>) {
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(PROBE));
    tcp.set_keepalive_interval(Some(PROBE));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers each connection once and counts them.
    async fn pond(address: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, seen) = (
            listener.local_addr().unwrap(),
            Arc::<AtomicUsize>::default(),
        );
        let counted = seen.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut head = [0; 4096];
                assert_ne!(stream.read(&mut head).await.unwrap(), 0);
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        });
        (address, seen)
    }

    /// Both addresses are of this machine and listen; one stands for a refused address. The name's
    /// answer changes from one to the other.
    #[tokio::test]
    async fn a_name_that_changes_its_answer_gains_nothing() {
        gains_nothing(|names| Transport::Proxied(build(&Route::default(), names, &[]).unwrap()))
            .await;
        gains_nothing(|names| Transport::direct(tls(None).unwrap(), names)).await;
    }

    async fn gains_nothing(client: impl FnOnce(GuardedLookup) -> Transport) {
        const FINE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
        const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        let (fine, served) = pond((FINE, 0).into()).await;
        let (_, stolen) = pond((METADATA, fine.port()).into()).await;
        let answers = [vec![FINE], vec![METADATA], vec![FINE, METADATA], vec![FINE]];
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        let lookup = move |name| {
            assert_eq!(name, "pond.test");
            let found = &answers[counted.fetch_add(1, Ordering::SeqCst)];
            let found: Vec<_> = found.iter().map(|it| (*it, 0).into()).collect();
            std::future::ready(Ok(found))
        };
        let names = guarded(|address| address == METADATA, lookup);
        let client = client(names);
        let url = Url::parse(&format!("http://pond.test:{}/", fine.port())).unwrap();
        let to = Arc::new(Destination::try_from(url).unwrap());
        for (at, is_served) in [true, false, false, true].into_iter().enumerate() {
            let answer = client.send(to.clone(), to.get()).await;
            assert_eq!(answer.is_ok(), is_served, "{answer:?}");
            // Each connection is one lookup: the checked address is the one that is dialled.
            assert_eq!(asked.load(Ordering::SeqCst), at + 1);
        }
        assert_eq!(served.load(Ordering::SeqCst), 2);
        assert_eq!(stolen.load(Ordering::SeqCst), 0);
    }

    /// The compiler writes no such file; a file that was written by hand is refused too.
    #[test]
    fn a_literal_address_that_the_compiler_refuses_is_not_dialled() {
        for (host, on_a_laptop) in [
            ("169.254.169.254", false),
            ("2852039166", false),
            ("0xa9.0xfe.0xa9.0xfe", false),
            ("100.100.100.200", false),
            ("[fd00:ec2::254]", false),
            ("[::ffff:169.254.169.254]", false),
            ("[64:ff9b::a9fe:a9fe]", false),
            ("[fe80::1]", false),
            ("127.0.0.1", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
        ] {
            for (local, dials) in [
                (LocalNames::Refused, false),
                (LocalNames::Allowed, on_a_laptop),
            ] {
                let outbound = Outbound::new(local, Resolver::of_machine());
                let refused = Url::parse(&format!("http://{host}:8080/latest?x=y")).unwrap();
                let desk = Url::parse("http://desk.pond.svc/quotes").unwrap();
                let proxy = Some(refused.as_str());
                for client in [
                    outbound.towards(&refused, None, None).map(drop),
                    outbound.towards(&desk, None, proxy).map(drop),
                    outbound.transport(&refused, None, None).map(drop),
                    outbound.transport(&desk, None, proxy).map(drop),
                ] {
                    let cause = match client {
                        Ok(()) => None,
                        Err(OutboundError::AddressRefused(failure)) => {
                            assert_eq!(failure.address, refused.origin().ascii_serialization());
                            Some(failure.cause)
                        }
                        Err(error) => panic!("{error}"),
                    };
                    let expected = (!dials).then_some(ConnectionCause::AddressRefused);
                    assert_eq!(cause, expected, "{host} {local:?}");
                }
            }
        }
        let outbound = Outbound::new(LocalNames::Refused, Resolver::of_machine());
        for host in ["10.96.0.10", "[fd00::1]", "desk.pond.svc"] {
            let url = Url::parse(&format!("http://{host}/")).unwrap();
            assert!(outbound.towards(&url, None, None).is_ok(), "{host}");
        }
    }

    #[test]
    fn a_ca_bundle_is_used_as_a_whole_or_not_at_all() {
        let outbound = Outbound::new(LocalNames::Refused, Resolver::of_machine());
        let pond = include_str!("../../../crds/bounds/tests/pond.pem");
        let torn = format!("{pond}{}", pond.replace("MII", ""));
        for (pem, refused) in [
            ("nothing", Some(CaError::Empty)),
            (&torn, Some(CaError::Undecodable(2))),
            (pond, None),
        ] {
            let why = match outbound.client(Some(pem), None) {
                Err(OutboundError::Ca(why)) => Some(why),
                Err(other) => panic!("{other}"),
                Ok(_) => None,
            };
            assert_eq!(why, refused, "{pem}");
        }
        assert!(outbound.client(None, None).is_ok());
    }
}
