//! The client's query and headers, passed on together with its body. With them, clients name the version of the
//! vendor's API.

use http::{HeaderMap, HeaderName, HeaderValue, request::Parts, uri::PathAndQuery};
use shared::error::{ApiError, Code};
use shared_catalog::{ANTHROPIC_VERSION, Upstream};

/// Header that lists the extensions of the Messages API that a client supports.
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// The version that SDKs of the Messages API send.
const USUAL_VERSION: &str = "2023-06-01";
/// Prefix of the routes whose clients send these headers.
const MESSAGES: &str = "/v1/messages";
/// Query parameter that every upstream may get. Agents send `?beta=true`.
const BETA: &str = "beta";
/// Longest query that is passed on, in bytes. Vendors use one or two words.
const MAX_QUERY: usize = 256;
/// Maximum size of all headers together, in bytes. An agent's list of extensions has a few hundred bytes. Servers
/// refuse long heads with their own status, which would not help the client.
const MAX_HEADERS: usize = 2 << 10;

/// The client's query and headers that are passed on.
#[derive(Clone, Default)]
pub struct PassedHead {
    query: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl PassedHead {
    /// Takes the query and headers of a client's request. Headers that cannot be passed on are refused, since the
    /// answer would differ without them.
    pub fn of(parts: &Parts) -> Result<Self, ApiError> {
        let query = parts.uri.query().filter(|query| (1..=MAX_QUERY).contains(&query.len()));
        let mut headers = Vec::new();
        if parts.uri.path().starts_with(MESSAGES) {
            for name in [ANTHROPIC_VERSION, ANTHROPIC_BETA] {
                let values = parts.headers.get_all(&name).iter();
                headers.extend(values.map(|value| (name.clone(), value.clone())));
            }
        }
        let invalid = |message: String| Err(ApiError::new(Code::InvalidValue, message));
        if headers.iter().map(|(_, value)| value.len()).sum::<usize>() > MAX_HEADERS {
            return invalid(format!(
                "Invalid headers: '{ANTHROPIC_VERSION}' and '{ANTHROPIC_BETA}' may have at most {MAX_HEADERS} bytes together."
            ));
        }
        if let Some((name, _)) = headers.iter().find(|(name, value)| !is_list_of_names(name, value)) {
            return invalid(format!(
                "Invalid header '{name}': it must consist of names with letters, digits, '-', '_' and '.'."
            ));
        }
        if headers.iter().filter(|(name, _)| *name == ANTHROPIC_VERSION).count() > 1 {
            return invalid(format!("Invalid header '{ANTHROPIC_VERSION}': it has several values."));
        }
        Ok(Self { query: query.map(str::to_owned), headers })
    }

    /// Returns the path with those query parameters of the client that this upstream may get; `None` if there are none.
    /// A client cannot override the catalogue's query.
    pub(crate) fn path(&self, path: &PathAndQuery, upstream: &Upstream) -> Option<PathAndQuery> {
        let own: Vec<_> = path.query().into_iter().flat_map(|own| own.split('&')).map(name_of).collect();
        let passed = self.members(upstream).filter(|member| !own.contains(&name_of(member)));
        let passed = passed.collect::<Vec<_>>().join("&");
        let joint = if path.query().is_some() { '&' } else { '?' };
        if passed.is_empty() { None } else { format!("{path}{joint}{passed}").parse().ok() }
    }

    /// Returns whether this upstream gets anything that other clients do not send.
    pub fn is_own(&self, upstream: &Upstream) -> bool {
        let is_usual =
            |(name, value): &(HeaderName, HeaderValue)| *name == ANTHROPIC_VERSION && value == USUAL_VERSION;
        !self.headers.iter().all(is_usual) || self.members(upstream).next().is_some()
    }

    /// Lists the query parameters that this upstream may get, each name once and with a plain value. Anything else
    /// could make a server refuse the gateway itself.
    fn members<'s>(&'s self, upstream: &'s Upstream) -> impl Iterator<Item = &'s str> {
        let mut names = Vec::new();
        let members = self.query.iter().flat_map(|query| query.split('&'));
        members.filter(move |member| {
            let (name, value) = member.split_once('=').unwrap_or((*member, ""));
            let passes = name == BETA || upstream.pass_query.iter().any(|passed| passed == name);
            let passes = passes && value.bytes().all(is_plain) && !names.contains(&name);
            names.push(name);
            passes
        })
    }

    /// Inserts the headers, replacing others of the same names.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        for (name, _) in &self.headers {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// Returns whether every server reads this byte of a query alike.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Returns whether a header's value is a name, or a list of extensions.
fn is_list_of_names(name: &HeaderName, value: &HeaderValue) -> bool {
    let separates = |byte: u8| *name == ANTHROPIC_BETA && matches!(byte, b',' | b' ');
    value.as_bytes().iter().all(|byte| is_plain(*byte) || separates(*byte))
}

/// Returns a query parameter's name as servers read it. Some ignore case.
fn name_of(member: &str) -> String {
    let name = form_urlencoded::parse(member.as_bytes()).next().map(|(name, _)| name.to_ascii_lowercase());
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use shared_catalog::Catalog;

    use super::*;

    fn of(query: &str, betas: &[&str]) -> Result<PassedHead, ApiError> {
        let mut request =
            Request::post(format!("/v1/messages?{query}")).header(ANTHROPIC_VERSION, "2023-06-01");
        for beta in betas {
            request = request.header(ANTHROPIC_BETA, *beta);
        }
        PassedHead::of(&request.body(()).unwrap().into_parts().0)
    }

    /// Returns an upstream that may get these query parameters.
    fn upstream(pass_query: &[&str]) -> Upstream {
        let file = format!(
            r#"
            service = {{ name = "f", provider = "p", docs = "https://docs.example" }}
            [[model]]
            id = "m"
            owned_by = "me"
            context_window = 1000
            max_output_tokens = 100
            price = {{ input = "1", cached_input = "1", output = "1" }}
            [[model.upstream]]
            kind = "anthropic"
            url = "https://api.example.com/v1"
            model = "v"
            pass_query = {pass_query:?}
            "#
        );
        Catalog::parse(&file, "test").unwrap().models.remove(0).upstreams.remove(0)
    }

    #[test]
    fn of_a_clients_query_beta_passes_and_what_the_catalogue_names() {
        let path = |own: &'static str, query, named: &[&str]| {
            let path = PathAndQuery::from_static(own);
            of(query, &[])
                .unwrap()
                .path(&path, &upstream(named))
                .map_or(own.to_owned(), |path| path.to_string())
        };
        let messages = "/v1/messages";
        for (query, passed) in [
            ("beta=true", "?beta=true"),
            ("key=wrong", ""),
            ("key=wrong&beta=true&api-version=1&x", "?beta=true"),
            ("beta=true&beta=false", "?beta=true"),
            ("Beta=true&BETA=true&b%65ta=true", ""),
            ("beta=%3Cscript%3E", ""),
            ("beta=../../x", ""),
            ("beta", "?beta"),
            ("&", ""),
        ] {
            assert_eq!(path(messages, query, &[]), format!("{messages}{passed}"), "{query}");
        }
        assert_eq!(
            path(messages, "key=1&region=eu&beta=true", &["region"]),
            "/v1/messages?region=eu&beta=true"
        );
        // The catalogue's own query stays.
        let azure = "/v1/responses?api-version=preview";
        for query in ["api-version=1", "API-Version=1", "api-version=1&api-version=2"] {
            assert_eq!(path(azure, query, &["api-version", "API-Version"]), azure, "{query}");
        }
        assert_eq!(path(azure, "beta=true&x=1", &[]), "/v1/responses?api-version=preview&beta=true");
    }

    #[test]
    fn only_what_every_client_sends_is_no_clients_own() {
        let is_own = |query, betas: &[&str]| of(query, betas).unwrap().is_own(&upstream(&["region"]));
        assert!(!is_own("", &[]) && !is_own("key=wrong&x=y", &[]));
        assert!(is_own("beta=true", &[]) && is_own("region=eu", &[]) && is_own("", &["oauth-2025-04-20"]));
        let newer = Request::post("/v1/messages").header(ANTHROPIC_VERSION, "2099-01-01");
        let newer = PassedHead::of(&newer.body(()).unwrap().into_parts().0).unwrap();
        assert!(newer.is_own(&upstream(&[])));
    }

    #[test]
    fn headers_that_are_no_names_are_refused() {
        assert!(of("", &["context-1m-2025-08-07, tools.v2_x,", "b"]).is_ok());
        for beta in ["a;b", "<script>", "a\u{e9}", "a=b", "'"] {
            let error = of("", &[beta]).err().unwrap_or_else(|| panic!("{beta}"));
            assert!(error.message.contains("anthropic-beta"), "{}", error.message);
        }
        let twice =
            Request::post("/v1/messages").header(ANTHROPIC_VERSION, "1").header(ANTHROPIC_VERSION, "2");
        assert!(PassedHead::of(&twice.body(()).unwrap().into_parts().0).is_err());
        let of_chat = Request::post("/v1/chat/completions").header(ANTHROPIC_BETA, "<script>");
        assert!(PassedHead::of(&of_chat.body(()).unwrap().into_parts().0).is_ok(), "it is sent nowhere");
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
