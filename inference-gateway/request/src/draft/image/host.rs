//! Refuses hosts of image URLs that could lead a fetching server to an internal address (SSRF).
//!
//! Names are not resolved here. A public name may still resolve to an internal address, so a server that fetches images
//! must check addresses itself. Hosts in forms that URL parsers interpret differently (numeric addresses, escapes,
//! credentials) count as internal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shared::network;

/// Top-level labels that no public host has.
const INSIDE: [&str; 18] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "svc",
    "cluster",
    "arpa",
    "test",
    "invalid",
    "onion",
    "consul",
    "docker",
    "host",
];

/// Returns whether the authority of a URL (`host`, `host:port`) names a public host in a form that all parsers
/// interpret in the same way.
pub(super) fn is_public(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            is_port(port) && address.parse::<Ipv6Addr>().is_ok_and(is_public_address)
        });
    }
    let (host, port) = authority.find(':').map_or((authority, ""), |colon| authority.split_at(colon));
    is_port(port) && is_public_host(host)
}

/// Returns whether a text is empty, or a colon followed by a number.
fn is_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok())
}

fn is_public_host(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let Some((_, last)) = host.rsplit_once('.') else { return false };
    if !host.split('.').all(is_label) {
        return false;
    }
    // If the last label is a number, even one like `0x7f`, browsers and C libraries read the whole host as an address.
    if last.starts_with(|c: char| c.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok_and(is_public_address);
    }
    !INSIDE.contains(&last)
}

fn is_public_address(address: impl Into<IpAddr>) -> bool {
    network::is_public(address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_hosts_are_distinguished_from_those_inside_however_they_are_spelled() {
        for public in [
            "example.com",
            "EXAMPLE.com:8443",
            "images.example.com.",
            "xn--mnchen-3ya.de",
            "8.8.8.8",
            "8.8.8.8:80",
            "[2606:4700::1111]",
            "[2606:4700::1111]:443",
        ] {
            assert!(is_public(public), "{public}");
        }
        for inside in [
            "",
            "localhost",
            "LocalHost.",
            "a.localhost",
            "metadata",
            "metadata.google.internal",
            "printer.local",
            "redis.default.svc",
            "1.0.0.127.in-addr.arpa",
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "a.0x7f",
            "0177.0.0.1",
            "127.0.0.01",
            "0.0.0.0",
            "10.0.0.5:8000",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:8.8.8.8]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:0:1::]",
            "[fe80::1]",
            "[fe80::1%25eth0]",
            "[fd00::1]",
            "[::1",
            "user@example.com",
            "user:pass@example.com",
            "example.com@127.0.0.1",
            "%31%32%37.0.0.1",
            "127。0。0。1",
            "１２７.0.0.1",
            "ex\u{ad}ample.com",
            "a..com",
            ".com",
            "example.com:port",
            "example.com:99999",
        ] {
            assert!(!is_public(inside), "{inside}");
        }
    }
}
