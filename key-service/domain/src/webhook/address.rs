//! Decides which URLs a webhook may have, and to which addresses its host may resolve.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};
use shared::{
    network::{Network, is_public},
    wire::MAX_URL_CHARS,
};

/// Maximum length of a host name in characters (RFC 1035).
const MAX_HOST_CHARS: usize = 253;

/// URL of a webhook, in a form that all URL parsers interpret alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    host: Host,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name, which is resolved before each attempt. An IP address in an unusual spelling counts as a name too.
    Name(String),
    /// An IP address in its usual notation.
    Literal(IpAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("has more than {MAX_URL_CHARS} characters")]
    TooLong,
    /// The text has no host, or has credentials or a fragment.
    #[error("must be a URL such as https://example.com/hook, without credentials and fragment")]
    Malformed,
    /// The host ends in a number but is not an address in the usual notation. URL parsers disagree about such hosts.
    #[error("has a host that ends in a number; write addresses as four decimal numbers, such as 192.0.2.1")]
    Number,
    /// The URL uses http but leads to another machine.
    #[error("must begin with https://; only a loopback address, such as 127.0.0.1, may have http://")]
    NotEncrypted,
}

/// Why no connection is made to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefused {
    /// A name resolved to this machine.
    #[error("the host resolves to a loopback address")]
    Loopback,
    /// The address is neither public nor in a configured network.
    #[error("the host resolves to an address that is not public")]
    NotPublic,
}

/// Decides whether to connect to an address to which a host was resolved. Addresses in `allowed` networks are permitted
/// even if they are not public.
pub fn may_connect(address: IpAddr, host: &Host, allowed: &[Network]) -> Result<(), AddressRefused> {
    if *host == Host::Literal(address) && address.is_loopback() {
        return Ok(());
    }
    let address = carried(address);
    if address.is_loopback() || address.is_unspecified() {
        return Err(AddressRefused::Loopback);
    }
    if is_public(address) || allowed.iter().any(|network| network.contains(address)) {
        return Ok(());
    }
    Err(AddressRefused::NotPublic)
}

/// Returns the address at which packets to `address` arrive. An IPv4 address inside an IPv6 address is unwrapped, as
/// sockets and NAT64 do.
fn carried(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

shared::stored_as_text! { WebhookUrl: WebhookUrl::as_str, |text| WebhookUrl::stored(text).ok(); }

impl Serialize for WebhookUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl WebhookUrl {
    /// Parses a URL. Before each connection, [`may_connect`] checks the address to which the host was resolved.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        let url = Self::stored(text)?;
        let is_number = matches!(&url.host, Host::Name(name) if ends_in_a_number(name));
        if is_number { Err(BadUrl::Number) } else { Ok(url) }
    }

    /// Parses a stored URL. Its host may end in a number, because an earlier version accepted such hosts.
    pub fn stored(text: &str) -> Result<Self, BadUrl> {
        if text.chars().count() > MAX_URL_CHARS {
            return Err(BadUrl::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte)) {
            return Err(BadUrl::Malformed);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadUrl::Malformed)?;
        let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        let host = Host::of_authority(authority).ok_or(BadUrl::Malformed)?;
        let is_loopback = matches!(&host, Host::Literal(address) if address.is_loopback());
        match scheme {
            "https" => {}
            "http" if is_loopback => {}
            "http" => return Err(BadUrl::NotEncrypted),
            _ => return Err(BadUrl::Malformed),
        }
        Ok(Self { text: text.to_owned(), host })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn host(&self) -> &Host {
        &self.host
    }
}

impl Host {
    /// Parses the host of a URL: a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            return Some(Self::Literal(rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?.into()));
        }
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Some(Self::Literal(address.into())),
            Err(_) => is_name(text).then(|| Self::Name(text.to_ascii_lowercase())),
        }
    }

    /// Parses the host in a URL's authority: `host`, `host:port`, `[address]:port`.
    fn of_authority(authority: &str) -> Option<Self> {
        let end = authority.find(']').map_or(0, |bracket| bracket + 1);
        let port = authority[end..].find(':').map(|colon| end + colon);
        let (host, port) =
            port.map_or((authority, None), |at| (&authority[..at], Some(&authority[at + 1..])));
        let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        Self::parse(host).filter(|_| is_port)
    }
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    name.len() <= MAX_HOST_CHARS && name.strip_suffix('.').unwrap_or(name).split('.').all(is_label)
}

/// Returns whether URL parsers treat the host as an IPv4 address, valid or not: its last label is a decimal, octal or
/// hexadecimal number ("ends in a number" in the WHATWG URL standard).
fn ends_in_a_number(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(address: &str, allowed: &[&str]) -> Result<(), AddressRefused> {
        let allowed: Vec<Network> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        may_connect(address.parse().unwrap(), &Host::Name("example.com".into()), &allowed)
    }

    #[test]
    fn a_name_is_connected_at_public_addresses_alone() {
        for public in ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"] {
            assert_eq!(judge(public, &[]), Ok(()), "{public}");
        }
        for loopback in
            ["127.0.0.1", "127.255.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
        {
            assert_eq!(judge(loopback, &["0.0.0.0/0", "::/0"]), Err(AddressRefused::Loopback), "{loopback}");
        }
        for inside in [
            "0.1.2.3",
            "10.0.0.5",
            "100.64.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::127.0.0.1",
            "::ffff:10.0.0.5",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:5",
            "64:ff9b:1::a00:5",
            "2001:0:a00:5::",
            "2001:db8::1",
            "2002:a00:5::",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert_eq!(judge(inside, &[]), Err(AddressRefused::NotPublic), "{inside}");
        }
    }

    #[test]
    fn configured_networks_are_connected_in_every_form() {
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"] {
            assert_eq!(judge(address, &["10.0.0.0/8"]), Ok(()), "{address}");
            assert_eq!(judge(address, &["10.2.0.0/16"]), Err(AddressRefused::NotPublic), "{address}");
        }
        assert_eq!(judge("fd00::1", &["fd00::/8"]), Ok(()));
    }

    #[test]
    fn this_machine_is_connected_by_its_literal_address_alone() {
        for (url, address, expected) in [
            ("http://127.0.0.1:9000/hook", "127.0.0.1", Ok(())),
            ("https://127.0.0.2", "127.0.0.2", Ok(())),
            ("http://[::1]:9000", "::1", Ok(())),
            ("https://localhost", "127.0.0.1", Err(AddressRefused::Loopback)),
            ("https://2130706433", "127.0.0.1", Err(AddressRefused::Loopback)),
            ("https://0x7f.1", "127.0.0.1", Err(AddressRefused::Loopback)),
            ("https://0177.0.0.1", "127.0.0.1", Err(AddressRefused::Loopback)),
            ("https://[::ffff:127.0.0.1]", "::ffff:127.0.0.1", Err(AddressRefused::Loopback)),
            ("https://0.0.0.0", "0.0.0.0", Err(AddressRefused::Loopback)),
        ] {
            let parsed = WebhookUrl::stored(url).unwrap();
            assert_eq!(may_connect(address.parse().unwrap(), parsed.host(), &[]), expected, "{url}");
        }
    }

    #[test]
    fn a_url_is_encrypted_and_means_the_same_to_all_readers() {
        for good in [
            "https://example.com",
            "https://example.com:8443/hook?token=a%20b&c=d",
            "https://EXAMPLE.com./",
            "https://8.8.8.8/",
            "https://[2606:4700::1111]:443/x",
            "http://127.0.0.1:9000/hook",
            "http://[::1]/",
        ] {
            assert_eq!(WebhookUrl::parse(good).map(|url| url.as_str().to_owned()), Ok(good.to_owned()));
        }
        for plain in [
            "http://example.com/",
            "http://localhost:9000/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://10.0.0.5/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert_eq!(WebhookUrl::parse(plain), Err(BadUrl::NotEncrypted), "{plain}");
        }
        for bad in [
            "",
            "example.com",
            "ftp://example.com/",
            "HTTPS://example.com/",
            "https://",
            "https:///path",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://127.0.0.1@example.com/",
            "https://example.com:0/",
            "https://example.com:99999/",
            "https://example.com:/",
            "https://a..com/",
            "https://exa mple.com/",
            "https://example.com/#fragment",
            "https://example.com\\@127.0.0.1/",
            "https://[fe80::1%25eth0]/",
            "https://[::1",
            "https://[1.2.3.4]/",
            "https://[::1]1/",
            "https://::1/",
            "https://bücher.example/",
            "https://%31%32%37.0.0.1/",
            "https://１２７.0.0.1/",
            "https://127。0。0。1/",
            "https://example.com/\r\nX: y",
        ] {
            assert_eq!(WebhookUrl::parse(bad), Err(BadUrl::Malformed), "{bad}");
        }
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL_CHARS));
        assert_eq!(WebhookUrl::parse(&long), Err(BadUrl::TooLong));
    }
    #[test]
    fn a_host_that_ends_in_a_number_is_a_dotted_quad_or_refused() {
        for number in [
            "167772161",
            "0x0a000001",
            "0X0A000001",
            "10.1",
            "10.0.1",
            "1.2.3.4.5",
            "999.999.999.999",
            "256.1.1.1",
            "0177.0.0.1",
            "10.0.0.01",
            "10.0.0.08",
            "8.8.8.8.",
            "10.1.",
            "127.0.0.0x1",
            "0x",
            "example.0x",
            "example.1",
            "example.0xff.",
            "foo.0XFFFFFFFFFFFFFFFFFFFFFFFF",
            "99999999999999999999",
        ] {
            for url in [format!("https://{number}/"), format!("https://{number}:8443/hook?a=b")] {
                assert_eq!(WebhookUrl::parse(&url), Err(BadUrl::Number), "{url}");
                assert!(WebhookUrl::stored(&url).is_ok(), "URLs accepted by earlier versions are still read");
            }
        }
        for name in ["1.example", "0x.example", "example.0xg", "example.1a", "example.x1", "127.0.0.1.nip.io"]
        {
            assert!(WebhookUrl::parse(&format!("https://{name}/")).is_ok(), "{name}");
        }
    }
}
