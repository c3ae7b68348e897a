//! What goes to an upstream beside a body that is passed on: what clients say of the version of their vendor's API.

use http::{HeaderMap, HeaderName, HeaderValue, request::Parts, uri::PathAndQuery};
use shared::catalog::ANTHROPIC_VERSION;

/// Header with the additions to the Messages API that a client knows.
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// Longest query that is passed on, in bytes: its vendors have a word or two.
const MAX_QUERY: usize = 256;

/// Query and headers that are passed on as they came.
#[derive(Clone, Default)]
pub(crate) struct PassedHead {
    query: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl PassedHead {
    /// Those of a client's request.
    pub(crate) fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().filter(|query| (1..=MAX_QUERY).contains(&query.len()));
        let of_name = |name: HeaderName| {
            parts
                .headers
                .get_all(&name)
                .iter()
                .map(move |value| (name.clone(), value.clone()))
                .collect::<Vec<_>>()
        };
        let headers = [ANTHROPIC_VERSION, ANTHROPIC_BETA].into_iter().flat_map(of_name).collect();
        Self { query: query.map(str::to_owned), headers }
    }

    /// The path with the client's query behind its own; `None` where that is the path itself.
    pub(crate) fn path(&self, path: &PathAndQuery) -> Option<PathAndQuery> {
        let query = self.query.as_ref()?;
        let between = if path.query().is_some() { '&' } else { '?' };
        format!("{path}{between}{query}").parse().ok()
    }

    /// Puts the headers in place of those of the same names.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        for (name, _) in &self.headers {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
    }
}
