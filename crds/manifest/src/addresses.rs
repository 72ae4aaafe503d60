//! Refused addresses: this machine, the link-local range, metadata services.
//!
//! The compiler refuses them in objects, and the mediator in the results of name resolution. Both
//! use this module.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true for loopback, link-local, multicast, broadcast, unspecified and metadata addresses.
pub fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_refused_v4(address),
        IpAddr::V6(address) => is_refused_v6(address),
    }
}

/// Returns true for loopback and unspecified addresses, which lead to this machine as `localhost`
/// does.
pub fn is_loopback(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| address.is_loopback() || address.is_unspecified();
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || embedded_v4(address).is_some_and(v4)
        }
    }
}

fn is_refused_v4(address: Ipv4Addr) -> bool {
    /// Metadata services of clouds outside of the link-local range: Alibaba, Azure, Oracle.
    const METADATA: [Ipv4Addr; 3] = [
        Ipv4Addr::new(100, 100, 100, 200),
        Ipv4Addr::new(168, 63, 129, 16),
        Ipv4Addr::new(192, 0, 0, 192),
    ];
    address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
        || METADATA.contains(&address)
}

fn is_refused_v6(address: Ipv6Addr) -> bool {
    /// Metadata and credential services of clouds over IPv6: AWS, EKS, Google, Oracle, Scaleway.
    const METADATA: [Ipv6Addr; 5] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
        Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    ];
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unicast_link_local()
        || METADATA.contains(&address)
        || embedded_v4(address).is_some_and(is_refused_v4)
}

/// Returns the IPv4 address that an IPv6 address embeds: mapped, compatible, NAT64, 6to4.
pub fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let tail = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(tail(high, low)),
        _ => None,
    }
}
