//! Owners of connections, requests and memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shared::ids::AccountId;

/// Number of leading bits of an IPv6 address that identify a subscriber's network. The subscriber chooses the rest.
const NETWORK_BITS: u32 = 64;

/// Whom a permit counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Callers at a network address, without an accepted credential.
    Network(Network),
    /// Everyone who uses this account's keys.
    Account(AccountId),
    /// The installation itself: another service, or a request whose payer is not known yet. Its share is not limited.
    Service,
}

/// The network address that identifies a caller without a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// Represents all callers whose address is unknown.
    pub const UNKNOWN: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Finds the network of a machine at this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let mask = u128::MAX << (128 - NETWORK_BITS);
                Self(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_an_address_of_version_4_or_the_first_half_of_one_of_version_6() {
        let network = |address: &str| Network::of(address.parse().unwrap());
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
