//! The addresses that no call may go to: this machine's, the link-local range, metadata services.
//!
//! The rule for literal addresses is the compiler's (`toolcrib_manifest::addresses`). Not here: the
//! lookup that applies it to the addresses of a name ([`super::lookup`]).

use std::net::{IpAddr, UdpSocket};

use rustix::io::Errno;
use toolcrib_manifest::addresses::{is_loopback, is_refused};

/// Whether names and literal addresses may lead to this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalNames {
    Refused,
    /// For a developer's machine: loopback addresses are allowed, but never the link-local range or
    /// a metadata service, which hands out the machine's own credentials.
    Allowed,
}

impl LocalNames {
    /// Checks an address by the compiler's rule for literal addresses.
    pub(super) fn refuses(self, address: IpAddr) -> bool {
        match self {
            LocalNames::Refused => is_refused(address),
            LocalNames::Allowed => is_refused(address) && !is_loopback(address),
        }
    }

    /// The addresses that a name may not lead to.
    pub(super) fn refusals(self) -> fn(IpAddr) -> bool {
        match self {
            LocalNames::Refused => |address| Self::Refused.refuses(address) || is_own(address),
            LocalNames::Allowed => |address| Self::Allowed.refuses(address),
        }
    }
}

/// True if the address is one of this machine, so that a container of the pod may answer there.
/// The kubelet writes the pod's address into `/etc/hosts` under the pod's name, which may equal
/// that of a service, and under its `hostname`, `subdomain` and `hostnameOverride`.
fn is_own(address: IpAddr) -> bool {
    // Nothing is sent: only a machine's own address can be bound.
    match UdpSocket::bind((address, 0)) {
        Ok(_) => true,
        // Without free descriptors the address counts as the machine's own.
        Err(error) => ![Some(Errno::ADDRNOTAVAIL), Some(Errno::AFNOSUPPORT)]
            .contains(&Errno::from_io_error(&error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn this_machine_the_link_and_metadata_are_refused_in_every_spelling() {
        for refused in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "ff02::1",
        ] {
            assert!(is_refused(refused.parse().unwrap()), "{refused}");
        }
        for fine in [
            "10.96.0.10",
            "192.168.1.1",
            "8.8.8.8",
            "fd00::1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_refused(fine.parse().unwrap()), "{fine}");
        }
    }

    #[test]
    fn an_address_is_the_machines_own_if_it_can_be_bound() {
        assert!(is_own(Ipv4Addr::new(127, 45, 6, 7).into()));
        // Addresses of the documentation networks, which no machine has.
        for elsewhere in ["203.0.113.7", "2001:db8::7"] {
            assert!(!is_own(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }
}
