//! Fuzz targets for addresses and cookies that browsers send.

use http::{HeaderMap, HeaderValue, Uri, header};
use key_service_management::members::Token;
use shared::secret::ExposeSecret;
use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    form::Fields,
    pagination::Pagination,
    site::{destination::Destination, paths::HOME},
    visitors::browser::Browser,
};

/// Checks that an accepted page to open after signing in is a dashboard page on the same host.
#[test]
fn destinations() {
    let examples = ["/dashboard/keys?q=a%20b&status=active", "/dashboard", "//evil.example/dashboard/../x"];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Some(page) = Destination::parse(&input.text()) else { return };
        assert_eq!(page.as_str(), input.text());
        assert!(HeaderValue::from_str(page.as_str()).is_ok());
        // Browsers accept some characters that a URI must not contain.
        let Ok(uri) = format!("https://faregate.example{}", page.as_str()).parse::<Uri>() else { return };
        assert_eq!(uri.host(), Some("faregate.example"));
        assert!(uri.path() == HOME || uri.path().starts_with(&format!("{HOME}/")));
        assert!(!uri.path().contains("/.") && !uri.path().contains("//"));
    });
}

/// Checks that a session is read only from a cookie with exactly the right name, and that each token has only one
/// spelling.
#[test]
fn cookies() {
    let token = "A".repeat(64);
    let examples = [
        format!(
            "faregate={token}; faregate-theme=dark; faregate-zone=Europe/Zurich; faregate-destination=/dashboard/keys"
        ),
        format!("__Host-faregate={token}; __Host-faregate-account=YWNtZQ; __Host-faregate-known-x=1.abc"),
        format!("__Host-faregate ={token}"),
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Ok(cookie) = HeaderValue::from_bytes(input.bytes()) else { return };
        let headers = HeaderMap::from_iter([(header::COOKIE, cookie)]);
        for behind_tls in [false, true] {
            let browser = Browser::of(&headers, behind_tls);
            assert!(browser.session.is_none() || !behind_tls || input.text().contains("__Host-faregate="));
        }
        for part in input.text().split(['=', ';']) {
            if let Some(token) = Token::parse(part) {
                assert_eq!(token.reveal().expose_secret(), part);
            }
        }
    });
}

/// Checks that an accepted query of a list has a cursor, and that its first page has none.
#[test]
fn pagination() {
    fuzz(
        &Examples::of(["after=50-ak_1.100-17", "after=1-&q=a", "after=18446744073709551615-x"]),
        |input: &Input| {
            let text = input.text();
            let query = Fields::of_query(Some(&*text));
            if let Ok(place) = Pagination::of(&query) {
                assert!(place.after(|cursor| Some(cursor.to_owned())).is_ok());
                let without = Pagination::without(&query);
                let first = Pagination::of(&Fields::of_query(Some(&*without)));
                let is_first = |first: Pagination| matches!(first.after(|_| Some(())), Ok(None));
                assert!(first.is_ok_and(is_first), "{without}");
            }
        },
    );
}
