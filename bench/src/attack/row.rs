//! A row of the report, and the plain request that many attacks send.

use std::fmt;

use http::{Method, Request};
use http_body_util::Full;

/// One attack and its outcome.
#[derive(Clone)]
pub struct Row {
    pub(super) name: String,
    pub(super) expected: String,
    pub(super) seen: String,
    pub(super) held: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.held { "holds" } else { "BROKEN" };
        write!(f, "{verdict:<7} {:<66} {:<30} {}", self.name, self.expected, self.seen)
    }
}

/// Returns a request without a credential.
pub(crate) fn plain(method: Method, uri: &str) -> Request<Full<bytes::Bytes>> {
    Request::builder().method(method).uri(uri).body(Full::default()).unwrap()
}
