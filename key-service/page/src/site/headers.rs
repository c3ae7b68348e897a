//! Security headers: no framing, caching, content sniffing or third-party sources, and HSTS once a browser has come
//! over TLS.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Allows sources only from this server, and images that the page builds as `data:` URLs.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// Headers of every answer except assets. The referrer policy is not `no-referrer`, since browsers would then send
/// forms without their origin.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// HSTS for a year. It excludes subdomains, since they may belong to someone else.
const TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Sets the security headers. `over_tls` means that the browser uses TLS.
pub fn secure(headers: &mut HeaderMap, over_tls: bool) {
    for (name, value) in SECURITY_HEADERS {
        headers.insert(name, value);
    }
    if over_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, TRANSPORT_SECURITY);
    }
}
