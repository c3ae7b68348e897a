//! Hosts that a port serves, against DNS rebinding: a page of another site can reach a port on this machine through a
//! name it controls, but its requests then carry that name in `Host`. An IP address in `Host` cannot be rebound.

use std::{
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use http::{HeaderMap, Uri, header};

const LOCALHOST: &str = "localhost";

/// A host without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// In lower case, without a trailing dot.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a host name or an address, without a scheme, a port or a path")]
pub struct NotAHost;

impl FromStr for Host {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some(address) = bracketed {
            return address.parse::<Ipv6Addr>().map(|it| Self::Address(it.into())).map_err(|_| NotAHost);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if name.split('.').all(is_label) { Ok(Self::Name(name)) } else { Err(NotAHost) }
    }
}

impl Host {
    /// Parses a `Host` header. The port is ignored, since a tunnel or a published port changes it.
    fn of_authority(authority: &str) -> Option<Self> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, ""),
        };
        let is_port = port.is_empty() || port.parse::<u16>().is_ok();
        // IPv6 addresses need brackets here; otherwise the last group would be read as a port.
        let is_bare = host.contains(':') && !host.starts_with('[');
        if is_port && !is_bare { host.parse().ok() } else { None }
    }
}

/// Hosts that a port serves: `localhost`, the loopback, its own addresses, and names that a setting lists.
#[derive(Clone, Debug)]
pub struct ServedHosts {
    listed: Vec<Host>,
    /// The address that the port listens on. `None` if every IP address is served.
    address: Option<IpAddr>,
}

impl ServedHosts {
    /// Returns the hosts of a port that listens on this address. A port that listens on all addresses serves every IP
    /// address.
    pub fn of_listener(address: IpAddr, listed: Vec<Host>) -> Self {
        let address = address.to_canonical();
        Self { listed, address: (!address.is_unspecified()).then_some(address) }
    }

    /// Returns the hosts of a site with this public URL. Every IP address is served too, for access from inside.
    /// Returns `None` if the URL has no valid host.
    pub fn of_site(public: &Uri) -> Option<Self> {
        let host = public.host()?.parse().ok()?;
        Some(Self { listed: vec![host], address: None })
    }

    /// Returns whether the port serves this authority, such as `localhost:9090`.
    pub fn serve(&self, authority: &str) -> bool {
        let Some(host) = Host::of_authority(authority) else { return false };
        let is_own = match &host {
            Host::Address(address) => {
                let address = address.to_canonical();
                address.is_loopback() || self.address.is_none_or(|own| own == address)
            }
            Host::Name(name) => name == LOCALHOST,
        };
        is_own || self.listed.contains(&host)
    }

    /// Returns the request's host if it is not served. A request may name a host in its URI, in `Host`, or in both;
    /// HTTP/1.0 allows none.
    pub fn foreign(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let in_address = uri.authority().map(|authority| authority.as_str().to_owned());
        let in_headers = headers.get_all(header::HOST).iter();
        let in_headers = in_headers.map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
        in_address.into_iter().chain(in_headers).find(|host| !self.serve(host))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn on(address: &str, listed: &[&str]) -> ServedHosts {
        let listed = listed.iter().map(|host| host.parse().unwrap()).collect();
        ServedHosts::of_listener(address.parse().unwrap(), listed)
    }

    #[test]
    fn a_port_serves_the_loopback_its_own_address_and_listed_hosts_whatever_the_port() {
        let of_service = on("10.0.0.5", &["inference-gateway", "Gateway.Example.", "192.0.2.9"]);
        for host in [
            "localhost",
            "LOCALHOST.:9999",
            "127.0.0.1:9090",
            "127.8.8.8",
            "[::1]:9090",
            "[::ffff:127.0.0.1]",
            "10.0.0.5:9090",
            "inference-gateway:9090",
            "gateway.example",
            "192.0.2.9:1",
        ] {
            assert!(of_service.serve(host), "{host}");
        }
        for host in [
            "evil.example:9090",
            "10.0.0.6:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "inference-gateway.evil.example",
            "0x7f000001",
            "evil@localhost",
            "localhost:9090@evil.example",
            "localhost:x",
            "localhost:99999",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "[evil.example]",
            "evil.example\u{0}",
            "",
            ":9090",
        ] {
            assert!(!of_service.serve(host), "{host:?}");
        }
    }

    #[test]
    fn a_port_on_all_addresses_serves_any_address_and_no_foreign_name() {
        for everywhere in [on("0.0.0.0", &[]), on("::", &[])] {
            for host in ["10.244.1.7:9090", "[fd00::7]:9090", "localhost"] {
                assert!(everywhere.serve(host), "{host}");
            }
            assert!(!everywhere.serve("evil.example:9090"));
        }
    }

    #[test]
    fn a_site_is_served_at_its_public_host_and_at_addresses() {
        let site = ServedHosts::of_site(&"https://models.example.com/x".parse().unwrap()).unwrap();
        for host in ["models.example.com", "Models.Example.com:443", "localhost:8080", "10.0.0.5:8080"] {
            assert!(site.serve(host), "{host}");
        }
        for host in ["evil.example", "models.example.com.evil.example", "example.com", ""] {
            assert!(!site.serve(host), "{host}");
        }
        let by_address = ServedHosts::of_site(&"http://[fd00::7]:8080".parse().unwrap()).unwrap();
        assert!(by_address.serve("[fd00::7]:8080") && !by_address.serve("evil.example"));
    }

    #[test]
    fn every_host_that_a_request_names_has_to_be_served() {
        let served = on("127.0.0.1", &[]);
        let foreign = |uri: &'static str, hosts: &[&'static str]| {
            let hosts = hosts.iter().map(|host| (header::HOST, HeaderValue::from_static(host))).collect();
            served.foreign(&Uri::from_static(uri), &hosts)
        };
        assert_eq!(foreign("/x", &["localhost:9090"]), None);
        assert_eq!(foreign("/x", &[]), None);
        assert_eq!(foreign("http://localhost/x", &["localhost"]), None);
        for (uri, hosts) in [
            ("/x", &["evil.example"][..]),
            ("/x", &["localhost", "evil.example"]),
            ("http://evil.example/x", &["localhost"]),
            ("http://localhost/x", &["evil.example"]),
        ] {
            assert_eq!(foreign(uri, hosts).as_deref(), Some("evil.example"), "{uri} {hosts:?}");
        }
    }

    #[test]
    fn a_listed_host_is_a_name_or_an_address_and_nothing_more() {
        for bad in ["", "http://gateway", "gateway:9090", "*", "a b", "gateway/x", "a..b"] {
            assert_eq!(bad.parse::<Host>(), Err(NotAHost), "{bad}");
        }
        assert_eq!("[::1]".parse(), Ok(Host::Address(Ipv6Addr::LOCALHOST.into())));
    }
}
