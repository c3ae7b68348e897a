//! Networks that are public, and networks that an operator names.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Serialize, Serializer};

/// Returns whether IANA's registries list the address as globally reachable. Addresses of tunnels and translators do
/// not count as public, because they contain another address. The address of a cloud's metadata service does not count
/// either.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224.., ..]
            | [100, 64..=127, ..]
            | [168, 63, 129, 16]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18..=19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

/// Returns whether the address is in the assigned part of the Internet, and neither belongs to a tunnel nor is reserved
/// for documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

/// A network in CIDR notation, such as `10.0.0.0/8`. A single address is a network too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an IP address, or a network such as 10.0.0.0/8")]
pub struct NotANetwork;

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let shared_bits = |a: u128, b: u128, width: u32| (a ^ b).leading_zeros() - (128 - width);
        let shared = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => shared_bits(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => shared_bits(a.to_bits(), b.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        shared >= u32::from(self.prefix)
    }
}

/// Writes the network so that it reads back: `10.0.0.0/8`.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

crate::stored_as_text! {
    Network: ToString::to_string, |text: &str| text.parse().ok();
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), |prefix| prefix.parse().map_err(|_| NotANetwork))?;
        if prefix <= longest { Ok(Self { address, prefix }) } else { Err(NotANetwork) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_prefix() {
        let has = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.6"),
            ("0.0.0.0/0", "8.8.8.8", "::"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::/0", "fe80::1", "127.0.0.1"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::2"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
            assert!(has(network, inside), "{inside} in {network}");
            assert!(!has(network, outside), "{outside} in {network}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0/8", "localhost", "10.0.0.0/8/8"] {
            assert_eq!(bad.parse::<Network>(), Err(NotANetwork), "{bad}");
        }
    }
}
