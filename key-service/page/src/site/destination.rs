//! Which page follows a sign-in, and why the sign-in is needed.

use http::{Method, request::Parts};

use crate::site::paths::{HOME, SIGN_IN};

/// Maximum length of an address in bytes. A list with all filters set needs about 300.
const MAX_BYTES: usize = 1_000;

/// Path and query of a dashboard page. Redirecting to it is safe, because it is never any other address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination(String);

impl Destination {
    /// Returns this address if it is a dashboard page other than the sign-in page.
    pub fn parse(address: &str) -> Option<Self> {
        Self::below(HOME, address).filter(|page| !page.as_str().starts_with(SIGN_IN))
    }

    /// Returns this address if it is `home` or a page below `home`.
    pub(crate) fn below(home: &str, address: &str) -> Option<Self> {
        let path = address.split('?').next().unwrap_or_default();
        let is_below = path == home || path.strip_prefix(home).is_some_and(|rest| rest.starts_with('/'));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !br#"\";,#<>"#.contains(&byte);
        let is_page = is_below
            && address.len() <= MAX_BYTES
            && address.bytes().all(is_plain)
            && !path
                .split('/')
                .skip(1)
                .any(|part| part.is_empty() || part.starts_with('.') || part.contains('%'));
        is_page.then(|| Self(address.to_owned()))
    }

    /// Returns the requested page if a sign-in should lead back to it: it was requested with GET and is not the first
    /// page.
    pub fn of(parts: &Parts) -> Option<Self> {
        let is_home = parts.uri.path() == HOME;
        if parts.method != Method::GET || is_home {
            return None;
        }
        Self::parse(parts.uri.path_and_query()?.as_str())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a member has to sign in again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignInReason {
    Ended,
    Out,
}

shared::names! { SignInReason: Ended = "ended", Out = "out" }

impl SignInReason {
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Ended => "You were signed out. Sign in to continue.",
            Self::Out => "You are signed out.",
        }
    }
}

/// Returns the address of the sign-in page for a sign-in that leads to `destination`.
pub fn sign_in_address(destination: Option<&Destination>, reason: Option<SignInReason>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(destination.map(|page| ("to", page.as_str())));
    query.extend_pairs(reason.map(|reason| ("reason", reason.as_str())));
    let query = query.finish();
    if query.is_empty() { SIGN_IN.to_owned() } else { format!("{SIGN_IN}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_dashboard_are_gone_on_to() {
        for page in [
            "/dashboard",
            "/dashboard/keys/ak_1",
            "/dashboard/keys?q=a%20b&status=active",
            "/dashboard?by=key",
        ] {
            assert_eq!(Destination::parse(page).map(|page| page.0).as_deref(), Some(page));
        }
        for address in [
            "",
            "/",
            "//evil.example/dashboard",
            "https://evil.example/dashboard",
            "/dashboardevil",
            "/dashboard.evil.example",
            "/dashboard//evil.example",
            "/dashboard/../v1/models",
            "/dashboard/%2e%2e/v1/models",
            "/dashboard/./keys",
            "/dashboard/\\evil.example",
            "/dashboard/keys\r\nset-cookie: a=b",
            "/dashboard/keys; Domain=example",
            "/dashboard/sign-in?to=/dashboard",
            "javascript:alert(1)",
            &format!("/dashboard/{}", "a".repeat(MAX_BYTES)),
        ] {
            assert_eq!(Destination::parse(address), None, "{address}");
        }
    }
}
