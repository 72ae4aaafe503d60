//! Ranges of IP addresses, as NetworkPolicies write them.

use std::net::IpAddr;

/// A range such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Left-aligned in 128 bits.
    bits: u128,
    prefix: u8,
    v4: bool,
}

impl Range {
    /// `Err`: a message for the author of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range: write it like 10.1.0.0/16 or fd00::/8");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let digits = !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        let whole = Self::of(address);
        if prefix > whole.prefix {
            return Err(wrong());
        }
        Ok(Self { prefix, ..whole })
    }

    /// The range of one address.
    fn of(address: IpAddr) -> Self {
        let (bits, prefix, v4) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32, true),
            IpAddr::V6(address) => (address.to_bits(), 128, false),
        };
        Self { bits, prefix, v4 }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        Self::of(address).is_within(self)
    }

    /// Whether the range is a part of `outer`, and smaller.
    pub(crate) fn is_strictly_in(&self, outer: &Self) -> bool {
        self.prefix > outer.prefix && self.is_within(outer)
    }

    fn is_within(&self, outer: &Self) -> bool {
        let mask = u128::MAX
            .checked_shl(128 - u32::from(outer.prefix))
            .unwrap_or(0);
        self.v4 == outer.v4 && self.bits & mask == outer.bits & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_the_addresses_with_its_prefix() {
        for (range, address, expected) in [
            ("10.1.0.0/16", "10.1.255.3", true),
            ("10.1.0.0/16", "10.2.0.3", false),
            ("0.0.0.0/0", "192.0.2.7", true),
            ("192.0.2.7/32", "192.0.2.7", true),
            ("::/0", "192.0.2.7", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe12::1", false),
        ] {
            let range = Range::parse(range).unwrap();
            assert_eq!(
                range.contains(address.parse().unwrap()),
                expected,
                "{range:?} {address}"
            );
        }
        for wrong in ["10.1.0.0", "10.1.0.0/33", "10.1.0.0/+8", "pond/8", "::/129"] {
            assert!(Range::parse(wrong).is_err(), "{wrong}");
        }
    }
}
