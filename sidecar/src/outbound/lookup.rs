//! The lookup of a name before a connection, with the check of its addresses.
//!
//! Not here: how a name is looked up ([`super::resolver`]), and which addresses are refused
//! ([`super::addresses`]).
//!
//! Invariant: the addresses that were checked are those that are dialled.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::resolver::ResolveError;

/// The addresses of a name.
pub(super) type Addresses = std::vec::IntoIter<SocketAddr>;

/// Looks up the addresses of a name and checks them, with one lookup per connection: there is no
/// second answer between the check and the connect.
pub(super) type GuardedLookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Addresses, ResolveError>> + Send + Sync>;

pub(super) fn guarded<F>(
    refuses: fn(IpAddr) -> bool,
    lookup: impl Fn(String) -> F + Send + Sync + 'static,
) -> GuardedLookup
where
    F: Future<Output = Result<Vec<SocketAddr>, ResolveError>> + Send + 'static,
{
    Arc::new(move |name| {
        let found = lookup(name);
        Box::pin(async move {
            let found = found.await?;
            // One bad address refuses the name, since any of the addresses may be dialled.
            if found.iter().any(|it| refuses(it.ip())) {
                return Err(ResolveError::RefusedAddress);
            }
            Ok(found.into_iter())
        })
    })
}

/// The lookup for reqwest.
pub(super) struct ClientNames(pub(super) GuardedLookup);

impl Resolve for ClientNames {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.0)(name.as_str().to_string());
        Box::pin(async move { Ok(Box::new(found.await?) as Addrs) })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::super::addresses::LocalNames;
    use super::super::resolver::Resolver;
    use super::*;

    #[tokio::test]
    async fn a_name_for_this_machine_resolves_only_where_that_is_asked_for() {
        let resolve = async |local: LocalNames| {
            let lookup = |name: String| async move { Resolver::of_machine().lookup(&name).await };
            let name = "localhost".to_owned();
            let names = guarded(local.refusals(), lookup);
            names(name).await.is_ok()
        };
        assert!(!resolve(LocalNames::Refused).await);
        assert!(resolve(LocalNames::Allowed).await);
    }

    /// The pod's own name leads to its address, not to loopback.
    #[tokio::test]
    async fn a_name_for_an_address_of_this_machine_is_refused_too() {
        // Nothing is sent: connecting picks the address that would send. Without a network
        // there is none but loopback.
        let out = UdpSocket::bind("0.0.0.0:0").unwrap();
        if out.connect("203.0.113.7:9").is_ok() {
            let own = out.local_addr().unwrap();
            let elsewhere = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 7), 0));
            for (found, resolves) in [(vec![elsewhere], true), (vec![elsewhere, own], false)] {
                let names = guarded(LocalNames::Refused.refusals(), move |_| {
                    std::future::ready(Ok(found.clone()))
                });
                let resolved = names("pond.test".to_owned()).await;
                assert_eq!(resolved.is_ok(), resolves);
            }
        }
    }

    /// On a developer's machine, the machine itself and no metadata service.
    #[tokio::test]
    async fn a_run_on_this_machine_reaches_loopback_and_no_metadata() {
        for (address, resolves) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.7", true),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("100.100.100.200", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
        ] {
            let found = SocketAddr::new(address.parse().unwrap(), 0);
            let names = guarded(LocalNames::Allowed.refusals(), move |_| {
                std::future::ready(Ok(vec![found]))
            });
            let resolved = names("pond.test".to_owned()).await;
            assert_eq!(resolved.is_ok(), resolves, "{address}");
        }
    }
}
