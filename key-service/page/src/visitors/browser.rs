//! Reads what a request reveals about its browser: cookies, host, scheme and address. Protects forms against CSRF.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Redirect, Response},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use cookie::{Cookie, SameSite, time::Duration};
use http::{HeaderMap, HeaderName, header, request::Parts};
use shared::secret::same;
use shared_door::http::{Base, X_FORWARDED_FOR, base};

use crate::{
    app::{App, Site},
    failure::Failure,
    form::Fields,
    site::{
        destination::Destination,
        theme::{Theme, place_of_choice},
        zone::Zone,
    },
};
use key_service_management::members::{KnownBrowser, SignInClient, Token};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Names of cookies. Under TLS, [`HOST_PREFIX`] comes first.
pub(crate) const SESSION_COOKIE: &str = "faregate";
pub(crate) const OPERATOR_COOKIE: &str = "faregate-operator";
const VISIT: &str = "faregate-visit";
const THEME: &str = "faregate-theme";
/// The script sets this cookie to the browser's zone, unless the reader chose one.
const ZONE: &str = "faregate-zone";
const ACCOUNT: &str = "faregate-account";
const NOTICE: &str = "faregate-notice";
const DESTINATION: &str = "faregate-destination";
/// Prefix of the names of cookies that mark members who have signed in with this browser before.
const KNOWN: &str = "faregate-known-";
/// Prefix of cookie names. Other hosts of the same domain cannot set cookies with this prefix.
const HOST_PREFIX: &str = "__Host-";

/// Lifetimes of cookies in seconds. Sessions end earlier.
const SESSION_AGE: i64 = 7 * 24 * 3600;
const VISIT_AGE: i64 = 3600;
/// Lifetime of a notice in seconds. The next page shows the notice, so a minute is more than enough.
const NOTICE_AGE: i64 = 60;
/// Lifetime of the choices of a theme and a time zone in seconds.
const CHOICE_AGE: i64 = 365 * 24 * 3600;
/// Lifetime of a mark in seconds. Browsers limit a cookie's lifetime to 400 days.
const KNOWN_AGE: i64 = 400 * 24 * 3600;

/// Maximum number of marks to read from a request. A mark is for one member, and few people share a browser.
const MAX_KNOWN: usize = 16;

/// The browser that sent a request.
#[derive(Clone, Debug)]
pub struct Browser {
    /// Whether the browser uses TLS.
    pub secure: bool,
    /// Host and port that the browser used.
    pub(crate) host: String,
    /// IP address of the browser; empty if unknown.
    pub address: String,
    pub agent: String,
    /// Address of the page from which the request was sent; empty if unknown.
    referer: String,
    pub theme: Theme,
    /// Time zone of the reader; `None` before the script has set it.
    pub(crate) chosen_zone: Option<Zone>,
    /// Token of a member's session, which may have ended.
    pub session: Option<Token>,
    /// Token of an operator's session, which may have ended.
    pub operator: Option<Token>,
    /// Token of a visit without a session. The CSRF tokens of its forms are derived from this token.
    pub visit: Option<Token>,
    /// Marks of members who have signed in with this browser before.
    pub known: Vec<String>,
    /// Sealed sentence about the last action.
    pub notice: Option<String>,
    /// Page to open after signing in.
    pub destination: Option<Destination>,
    /// Account name from the last sign-in with a password, which the sign-in form shows again. May be empty.
    pub account: String,
}

impl Browser {
    /// Reads the headers of a request.
    pub fn of(headers: &HeaderMap, behind_tls: bool) -> Self {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let Base { is_secure: secure, host } = base(headers, behind_tls);
        let token = |name| cookie(headers, name, secure).and_then(Token::parse);
        Self {
            secure,
            host,
            address: text(&X_FORWARDED_FOR).unwrap_or_default().to_owned(),
            agent: text(&header::USER_AGENT).unwrap_or_default().to_owned(),
            referer: text(&header::REFERER).unwrap_or_default().to_owned(),
            theme: cookie(headers, THEME, secure).and_then(Theme::parse).unwrap_or(Theme::System),
            chosen_zone: cookie(headers, ZONE, secure).and_then(Zone::named),
            session: token(SESSION_COOKIE),
            operator: token(OPERATOR_COOKIE),
            visit: token(VISIT),
            known: known(headers, secure),
            notice: cookie(headers, NOTICE, secure).map(str::to_owned),
            destination: cookie(headers, DESTINATION, secure).and_then(Destination::parse),
            account: cookie(headers, ACCOUNT, secure).and_then(decoded).unwrap_or_default(),
        }
    }

    /// Returns the description of the browser that rate limits and sessions need.
    pub fn client(&self) -> SignInClient<'_> {
        SignInClient { agent: &self.agent, address: &self.address, known: &self.known }
    }

    /// Returns whether the site serves pages under the host name that the browser used.
    pub fn is_at(&self, site: &Site) -> bool {
        site.hosts.as_ref().is_none_or(|hosts| hosts.serve(&self.host))
    }

    /// Returns the time zone of all times, days and sums on pages.
    pub fn zone(&self) -> Zone {
        self.chosen_zone.clone().unwrap_or_else(Zone::utc)
    }

    /// Returns the scheme and host that clients use, for commands that readers paste.
    pub fn base(&self) -> String {
        Base { is_secure: self.secure, host: self.host.clone() }.to_string()
    }

    /// Returns a `Set-Cookie` header that stores a session. Its path is the whole site, as the `__Host-` prefix
    /// requires.
    pub fn session_cookie(&self, name: &str, token: &Token) -> String {
        self.set_cookie(name, reveal(token).as_str(), SESSION_AGE)
    }

    /// Returns a `Set-Cookie` header that removes a session.
    pub fn no_session_cookie(&self, name: &str) -> String {
        self.set_cookie(name, "", 0)
    }

    /// Returns the token of a session, which may have ended.
    pub(crate) fn session_in(&self, name: &str) -> Option<&Token> {
        if name == OPERATOR_COOKIE { self.operator.as_ref() } else { self.session.as_ref() }
    }

    /// Returns a `Set-Cookie` header that stores a visit.
    pub(crate) fn visit_cookie(&self, token: &Token) -> String {
        self.set_cookie(VISIT, reveal(token).as_str(), VISIT_AGE)
    }

    /// Stores the theme or the time zone that was chosen in a form, and redirects back to the form's page.
    pub(crate) fn choose_display(&self, form: &Fields, home: &str) -> Response {
        let cookie = if form.has("zone") {
            let zone = Zone::named(form.get("zone")).unwrap_or_else(Zone::utc);
            self.set_cookie(ZONE, zone.name(), CHOICE_AGE)
        } else {
            let theme = Theme::parse(form.get("theme")).unwrap_or(Theme::System);
            self.set_cookie(THEME, theme.as_str(), CHOICE_AGE)
        };
        let cookie = [(header::SET_COOKIE, cookie)];
        (cookie, Redirect::to(&place_of_choice(&self.referer, &self.base(), home))).into_response()
    }

    /// Returns a `Set-Cookie` header that stores the account name from a sign-in with a password.
    pub fn account_cookie(&self, name: &str) -> String {
        self.set_cookie(ACCOUNT, &URL_SAFE_NO_PAD.encode(name), KNOWN_AGE)
    }

    /// Returns a `Set-Cookie` header that marks the browser as known to a member.
    pub fn known_cookie(&self, KnownBrowser { name, mark }: &KnownBrowser) -> String {
        self.set_cookie(&format!("{KNOWN}{name}"), mark, KNOWN_AGE)
    }

    /// Returns a `Set-Cookie` header with the notice that the next page shows.
    pub(crate) fn notice_cookie(&self, sealed: &str) -> String {
        self.set_cookie(NOTICE, sealed, NOTICE_AGE)
    }

    /// Returns a `Set-Cookie` header that removes a notice after it was shown.
    pub(crate) fn no_notice_cookie(&self) -> String {
        self.set_cookie(NOTICE, "", 0)
    }

    /// Returns a `Set-Cookie` header that stores or, with `None`, removes the page to open after signing in.
    pub fn destination_cookie(&self, destination: Option<&Destination>) -> String {
        match destination {
            Some(page) => self.set_cookie(DESTINATION, page.as_str(), VISIT_AGE),
            None => self.set_cookie(DESTINATION, "", 0),
        }
    }

    fn set_cookie(&self, name: &str, value: &str, age: i64) -> String {
        let prefix = if self.secure { HOST_PREFIX } else { "" };
        let cookie =
            Cookie::build((format!("{prefix}{name}"), value)).path("/").max_age(Duration::seconds(age));
        cookie.http_only(true).same_site(SameSite::Lax).secure(self.secure).to_string()
    }
}

impl FromRequestParts<App> for Browser {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers, app.site.behind_tls))
    }
}

/// Refuses a form from another site (CSRF). Browsers send an origin with every form. A client that sends no origin
/// passes this check, but still needs the form's token.
pub(crate) fn check_origin(headers: &HeaderMap, browser: &Browser) -> Result<(), Failure> {
    match (headers.get(header::ORIGIN), headers.get(SEC_FETCH_SITE)) {
        (Some(origin), _) if *origin == *browser.base() => Ok(()),
        (Some(origin), _) => {
            let other = if browser.secure { "http" } else { "https" };
            let differs_in_scheme = *origin == *format!("{other}://{}", browser.host);
            Err(if differs_in_scheme { Failure::OtherScheme(other) } else { Failure::ForeignForm })
        }
        (None, Some(site)) if site != "same-origin" => Err(Failure::ForeignForm),
        (None, Some(_) | None) => Ok(()),
    }
}

/// Returns the CSRF token of forms, derived from a cookie that no other site can read.
pub fn form_token(cookie: &Token) -> String {
    hex::encode(cookie.digest("form").as_bytes())
}

/// Refuses a form with the wrong CSRF token.
pub(crate) fn check_form_token(cookie: &Token, presented: &str) -> Result<(), Failure> {
    if same(&form_token(cookie), presented) { Ok(()) } else { Err(Failure::StaleForm) }
}

/// Decodes the text of a cookie. It is encoded because names may contain any character.
fn decoded(cookie: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(cookie).ok()?).ok()
}

fn reveal(token: &Token) -> String {
    shared::secret::ExposeSecret::expose_secret(&token.reveal()).to_owned()
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str, secure: bool) -> Option<&'a str> {
    cookies(headers, secure).find(|(named, _)| *named == name).map(|(_, value)| value)
}

fn known(headers: &HeaderMap, secure: bool) -> Vec<String> {
    let known = cookies(headers, secure).filter(|(name, _)| name.starts_with(KNOWN));
    known.map(|(_, mark)| mark.to_owned()).take(MAX_KNOWN).collect()
}

/// Lists cookies with their names, without the prefix that they have under TLS. A space before the `=` is part of the
/// name, because browsers check the `__Host-` prefix with the name exactly as it was set.
fn cookies(headers: &HeaderMap, secure: bool) -> impl Iterator<Item = (&str, &str)> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let prefix = if secure { HOST_PREFIX } else { "" };
    values.flat_map(|value| value.split(';')).filter_map(move |pair| {
        let (name, value) = pair.trim_start_matches(' ').split_once('=')?;
        Some((name.strip_prefix(prefix)?, value))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use shared::served::ServedHosts;
    use shared_door::http::{X_FORWARDED_HOST, X_FORWARDED_PROTO};

    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_form_comes_from_this_host_by_this_scheme() {
        let checked = |lines: &[(HeaderName, &str)], behind_tls| {
            let headers = headers(&[&[(header::HOST, "faregate.example:8080")], lines].concat());
            check_origin(&headers, &Browser::of(&headers, behind_tls))
        };
        let [http, https] = ["http", "https"].map(|scheme| format!("{scheme}://faregate.example:8080"));
        assert!(checked(&[(header::ORIGIN, &http)], false).is_ok());
        assert!(checked(&[(header::ORIGIN, &https)], true).is_ok());
        let of_proxy = [(header::ORIGIN, &*https), (X_FORWARDED_PROTO, "https")];
        assert!(checked(&of_proxy, false).is_ok());
        for (origin, behind_tls, named) in [(&https, false, "https"), (&http, true, "http")] {
            let refused = checked(&[(header::ORIGIN, origin)], behind_tls);
            assert!(matches!(refused, Err(Failure::OtherScheme(other)) if other == named), "{refused:?}");
        }
        for foreign in
            ["http://evil.example", "null", "http://faregate.example", "ftp://faregate.example:8080", ""]
        {
            let refused = checked(&[(header::ORIGIN, foreign)], false);
            assert!(matches!(refused, Err(Failure::ForeignForm)), "{foreign}: {refused:?}");
        }
        assert!(checked(&[(SEC_FETCH_SITE, "same-origin")], false).is_ok() && checked(&[], false).is_ok());
        assert!(checked(&[(SEC_FETCH_SITE, "same-site")], false).is_err());
    }

    #[test]
    fn pages_of_a_site_with_a_public_address_are_at_its_host() {
        let hosts = ServedHosts::of_site(&"https://models.example.com".parse().unwrap());
        let site = Site { behind_tls: true, hosts };
        let any = Site::default();
        let is_at =
            |lines: &[(HeaderName, &str)], site: &Site| Browser::of(&headers(lines), true).is_at(site);
        assert!(is_at(&[(header::HOST, "models.example.com")], &site));
        assert!(is_at(&[(header::HOST, "10.0.0.5:8081"), (X_FORWARDED_HOST, "models.example.com")], &site));
        for foreign in [
            &[(header::HOST, "evil.example")][..],
            &[(header::HOST, "models.example.com"), (X_FORWARDED_HOST, "evil.example")],
            &[],
        ] {
            assert!(!is_at(foreign, &site), "{foreign:?}");
            assert!(is_at(foreign, &any), "{foreign:?}");
        }
    }
}
