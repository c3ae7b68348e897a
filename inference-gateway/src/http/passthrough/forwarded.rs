//! The client's address, protocol and host, for the key-service.

use axum::body::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use shared_door::{
    admission::Network,
    http::{X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO},
    serve::{OverTls, PeerAddress},
};

/// Facts about the client's connection, or a trusted proxy's facts. In a list from the proxy, the last address counts,
/// because the proxy added it.
pub(super) struct Forwarded {
    proto: &'static str,
    host: Option<String>,
    /// Network address of the client, if known.
    pub(super) address: Option<String>,
    /// Whether the client claims to forward for others, and is not trusted to do so.
    pub(super) untrusted: bool,
}

impl Forwarded {
    /// Reads the facts about a request, before its headers are stripped.
    pub(super) fn of(request: &Request<Body>, proxy_trusted: bool) -> Self {
        let peer = request.extensions().get::<PeerAddress>().map(|PeerAddress(address)| address.to_string());
        let from_proxy = |name: &HeaderName| last(request.headers(), name).filter(|_| proxy_trusted);
        let over_tls = match from_proxy(&X_FORWARDED_PROTO) {
            Some(proto) => proto == "https",
            None => request.extensions().get::<OverTls>().is_some(),
        };
        let proto = if over_tls { "https" } else { "http" };
        let address = from_proxy(&X_FORWARDED_FOR).or(peer);
        let host = from_proxy(&X_FORWARDED_HOST).or_else(|| host(request));
        let untrusted = !proxy_trusted && request.headers().contains_key(X_FORWARDED_FOR);
        Self { proto, host, address, untrusted }
    }

    /// Returns the network of the client, if its address is known.
    pub(super) fn network(&self) -> Network {
        let address = self.address.as_ref().and_then(|address| address.parse().ok());
        address.map_or(Network::UNKNOWN, Network::of)
    }

    /// Replaces the client's headers with the facts. Call this after the headers named by `Connection` were removed, so
    /// that a client cannot remove the facts by naming them there.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        let (proto, host, address) = (Some(self.proto), self.host.as_deref(), self.address.as_deref());
        for (name, value) in
            [(X_FORWARDED_PROTO, proto), (X_FORWARDED_FOR, address), (X_FORWARDED_HOST, host)]
        {
            headers.remove(&name);
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(name, value);
            }
        }
    }
}

/// Returns the host and port that the client used. HTTP/2 has both in the URI.
fn host(request: &Request<Body>) -> Option<String> {
    let named = || request.headers().get(header::HOST)?.to_str().ok().map(str::to_owned);
    request.uri().authority().map(ToString::to_string).or_else(named)
}

/// Returns the last value of a header that may be a list.
fn last(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(|last| last.trim().to_owned()).filter(|last| !last.is_empty())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn rewritten(proxy_trusted: bool) -> [String; 3] {
        let request = Request::get("/dashboard").header("host", "faregate.example:8080");
        let request =
            request.header("x-forwarded-for", "1.1.1.1").header("x-forwarded-for", "2.2.2.2, 3.3.3.3");
        let request =
            request.header("x-forwarded-proto", "https").header("x-forwarded-host", "other.example");
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(PeerAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        Forwarded::of(&request, proxy_trusted).write(request.headers_mut());
        [X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_FOR].map(|name| {
            let values: Vec<_> =
                request.headers().get_all(name).iter().map(|v| v.to_str().unwrap()).collect();
            values.join("|")
        })
    }

    #[test]
    fn what_a_client_says_of_itself_is_replaced() {
        assert_eq!(rewritten(false), ["faregate.example:8080", "http", "127.0.0.1"]);
    }

    #[test]
    fn a_connection_over_tls_is_known_without_a_proxy() {
        let mut request = Request::get("/dashboard").body(Body::empty()).unwrap();
        request.extensions_mut().insert(OverTls);
        for proxy_trusted in [false, true] {
            assert_eq!(Forwarded::of(&request, proxy_trusted).proto, "https");
        }
        request.headers_mut().insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
        assert_eq!(Forwarded::of(&request, true).proto, "http", "the client spoke http to the proxy");
        assert_eq!(Forwarded::of(&request, false).proto, "https");
    }

    #[test]
    fn a_trusted_proxy_is_believed() {
        assert_eq!(rewritten(true), ["other.example", "https", "3.3.3.3"]);
    }
}
