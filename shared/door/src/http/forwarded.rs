//! Headers in which a gateway tells a key-service about a client's connection. They are trusted only if the caller has
//! the internal token.

use std::fmt;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use shared_config::internal_token::InternalToken;

use crate::serve::PeerAddress;

/// Host and port to which the client sent the request.
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// `https` if the client's connection uses TLS.
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Network address of the client.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Name of the token that the services share, as a header and as gRPC metadata.
pub const INTERNAL_TOKEN: &str = "x-internal-token";
/// Header with the internal token. Only the services use it, for calls to each other.
pub const X_INTERNAL_TOKEN: HeaderName = HeaderName::from_static(INTERNAL_TOKEN);

/// Header with the account of the member who requested a page. A key-service adds it to its answer. The gateway uses it
/// for its own limits, and does not pass it on to the client.
pub const X_ACCOUNT: HeaderName = HeaderName::from_static("x-account");

/// Where a client sent its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// Host and port; empty if the headers do not name them.
    pub host: String,
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_secure { "https" } else { "http" }, self.host)
    }
}

/// Returns where a client sent its request: what a gateway says, or else the request itself. `behind_tls` says that
/// clients use TLS, whatever the headers say.
pub fn base(headers: &HeaderMap, behind_tls: bool) -> Base {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(&X_FORWARDED_HOST).or_else(|| text(&header::HOST));
    Base {
        is_secure: behind_tls || text(&X_FORWARDED_PROTO) == Some("https"),
        host: host.unwrap_or_default().to_owned(),
    }
}

/// Middleware: removes the internal token from a request. If the token is missing or wrong, this also removes the
/// headers that only a gateway may send, and uses the connection's address as the client's address.
pub async fn believe_gateways(
    State(token): State<InternalToken>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<PeerAddress>().copied();
    believe(request.headers_mut(), &token, peer);
    next.run(request).await
}

fn believe(headers: &mut HeaderMap, token: &InternalToken, peer: Option<PeerAddress>) {
    let presented = headers.remove(X_INTERNAL_TOKEN);
    let presented = presented.as_ref().and_then(|presented| presented.to_str().ok());
    if token.accepts(presented) {
        return;
    }
    for name in [X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_FOR] {
        headers.remove(name);
    }
    let address = peer.and_then(|PeerAddress(address)| HeaderValue::try_from(address.to_string()).ok());
    if let Some(address) = address {
        headers.insert(X_FORWARDED_FOR, address);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use shared_config::internal_token::InternalTokens;

    use super::*;

    fn believed(token: Option<&str>) -> [Option<String>; 4] {
        let mut headers = HeaderMap::new();
        let said = [
            (X_FORWARDED_HOST, "faregate.example"),
            (X_FORWARDED_PROTO, "https"),
            (X_FORWARDED_FOR, "203.0.113.7"),
        ];
        for (name, value) in said.into_iter().chain(token.map(|token| (X_INTERNAL_TOKEN, token))) {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        let peer = PeerAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tokens = InternalTokens::new("between-the-services".into(), None).unwrap();
        believe(&mut headers, &InternalToken::new(tokens), Some(peer));
        [X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_FOR, X_INTERNAL_TOKEN]
            .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_facts_of_a_connection_are_believed_with_the_internal_token_alone() {
        let [host, proto, address] = ["faregate.example", "https", "203.0.113.7"].map(|v| Some(v.to_owned()));
        assert_eq!(believed(Some("between-the-services")), [host, proto, address, None]);
        for wrong in [None, Some(""), Some("between-the-servicez"), Some("between")] {
            assert_eq!(believed(wrong), [None, None, Some("127.0.0.1".into()), None], "{wrong:?}");
        }
    }
}
