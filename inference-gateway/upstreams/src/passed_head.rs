//! Query and headers that go to an upstream beside a body that is passed on. In them, clients name the version of their
//! vendor's API.

use http::{HeaderMap, HeaderName, HeaderValue, request::Parts, uri::PathAndQuery};
use shared::error::{ApiError, Code};
use shared_catalog::ANTHROPIC_VERSION;

/// Header with the additions to the Messages API that a client knows.
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// Longest query that is passed on, in bytes. Those of vendors have a word or two.
const MAX_QUERY: usize = 256;
/// Most bytes of the headers together. An agent's list of additions has some hundred. Servers refuse long heads with
/// their own status, which would tell the client nothing.
const MAX_HEADERS: usize = 2 << 10;

/// Query and headers that are passed on unchanged.
#[derive(Clone, Default)]
pub struct PassedHead {
    query: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl PassedHead {
    /// Takes those of a client's request. Headers that are too long to pass on are refused, since the answer would be
    /// different without them.
    pub fn of(parts: &Parts) -> Result<Self, ApiError> {
        let query = parts.uri.query().filter(|query| (1..=MAX_QUERY).contains(&query.len()));
        let of_name = |name: HeaderName| {
            parts
                .headers
                .get_all(&name)
                .iter()
                .map(move |value| (name.clone(), value.clone()))
                .collect::<Vec<_>>()
        };
        let headers: Vec<_> = [ANTHROPIC_VERSION, ANTHROPIC_BETA].into_iter().flat_map(of_name).collect();
        if headers.iter().map(|(_, value)| value.len()).sum::<usize>() > MAX_HEADERS {
            let message = format!(
                "Invalid headers: '{ANTHROPIC_VERSION}' and '{ANTHROPIC_BETA}' may have {MAX_HEADERS} bytes together."
            );
            return Err(ApiError::new(Code::InvalidValue, message));
        }
        Ok(Self { query: query.map(str::to_owned), headers })
    }

    /// Returns the path with the client's query after its own; `None` if that is the path itself. A client cannot
    /// override the catalogue's own query.
    pub(crate) fn path(&self, path: &PathAndQuery) -> Option<PathAndQuery> {
        let query = self.query.as_ref()?;
        let Some(own) = path.query() else { return format!("{path}?{query}").parse().ok() };
        let own: Vec<_> = own.split('&').map(name_of).collect();
        let passed: Vec<_> = query.split('&').filter(|member| !own.contains(&name_of(member))).collect();
        if passed.is_empty() { None } else { format!("{path}&{}", passed.join("&")).parse().ok() }
    }

    /// Puts the headers in place of those with the same names.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        for (name, _) in &self.headers {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// Returns the name of a query's member as servers read it, some of which ignore case.
fn name_of(member: &str) -> String {
    let name = form_urlencoded::parse(member.as_bytes()).next().map(|(name, _)| name.to_ascii_lowercase());
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(query: &str, betas: &[&str]) -> Result<PassedHead, ApiError> {
        let mut request =
            Request::post(format!("/v1/messages?{query}")).header(ANTHROPIC_VERSION, "2023-06-01");
        for beta in betas {
            request = request.header(ANTHROPIC_BETA, *beta);
        }
        PassedHead::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_clients_query_says_nothing_that_the_catalogues_own_says() {
        let path = |own: &'static str, query| {
            of(query, &[]).unwrap().path(&PathAndQuery::from_static(own)).map(|path| path.to_string())
        };
        let azure = "/v1/responses?api-version=preview";
        for query in ["api-version=1", "api%2Dversion=1", "API-Version", "&", "api-version=1&api-version=2"] {
            let passed = path(azure, query).unwrap_or_else(|| azure.to_owned());
            assert_eq!(passed.trim_end_matches('&'), azure, "{query}");
        }
        let both = path(azure, "beta=true&api-version=1&x");
        assert_eq!(both.as_deref(), Some("/v1/responses?api-version=preview&beta=true&x"));
        assert_eq!(path("/v1/messages", "beta=true").as_deref(), Some("/v1/messages?beta=true"));
    }

    #[test]
    fn headers_pass_up_to_a_length_that_every_server_takes() {
        let most = "a".repeat(MAX_HEADERS - "2023-06-01".len());
        assert_eq!(of("", &[&most]).unwrap().headers.len(), 2);
        let (first, rest) = most.split_at(9);
        let error = of("", &[first, rest, "b"]).err().unwrap();
        assert_eq!(error.code, Code::InvalidValue);
        assert!(error.message.contains("anthropic-beta"), "{}", error.message);
    }
}
