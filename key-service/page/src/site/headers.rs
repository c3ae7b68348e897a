//! Headers that keep a page from being framed, stored, sniffed or mixed with foreign sources, and from being requested
//! without TLS if a browser used it.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Sources of everything on a page: this server, and pictures that the page makes itself.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// Headers of every answer that is no asset. With `no-referrer`, browsers would not name the origin of forms.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// Tells a browser to come only with TLS for a year. Other hosts of the domain are not included, since they may not be
/// ours.
const TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Sets the headers of an answer. `over_tls` says that the browser came over TLS.
pub fn secure(headers: &mut HeaderMap, over_tls: bool) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, value);
    }
    if over_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, TRANSPORT_SECURITY);
    }
}
