//! Forms of a browser in which nobody has signed in yet. Their tokens are derived from the cookie of a visit.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use maud::{Markup, html};

use crate::{
    app::App,
    failure::{Failure, sentence},
    form::Fields,
    site::document::{bare, hinted, problem},
    visitors::browser::{Browser, check_form_token, check_origin, form_token},
};
use key_service_management::{
    Error,
    members::{MemberRefused, SignedIn, Token},
};

/// Makes a page with a form. The token of a form is derived from a cookie, which a first visit does not have.
pub fn form_page(
    app: &App,
    browser: &Browser,
    wrong: Option<&str>,
    form: impl FnOnce(&Token) -> Markup,
) -> Response {
    let visit = browser.visit.clone().unwrap_or_else(|| app.management.visit());
    let content = html! {
        h1 { "Sign in" }
        (problem(wrong))
        (form(&visit))
    };
    let cookie = [(header::SET_COOKIE, browser.visit_cookie(&visit))];
    (cookie, bare(browser.theme, "Sign in · Faregate", &content)).into_response()
}

/// A form for the code of a sign-in link, or the whole link, which goes to this path.
pub fn with_a_code(visit: &Token, path: &str) -> Markup {
    html! {
        p { "A sign-in link works once." }
        form.stack method="post" action=(path) data-link {
            input type="hidden" name="token" value=(form_token(visit));
            (hinted("link", "Code", "The part after the # of the link, or the whole link.", &html! {
                input #link name="link" required autocomplete="off" spellcheck="false" aria-describedby="link-hint";
            }))
            button.primary { "Continue" }
        }
    }
}

/// A form that uses a link up. `code` asks for the second factor, if there is one.
pub fn link_form(visit: &Token, path: &str, link: &str, code: Option<Markup>) -> Markup {
    html! {
        form.stack method="post" action=(path) {
            input type="hidden" name="token" value=(form_token(visit));
            input type="hidden" name="link" value=(link);
            @if let Some(code) = code { (code) }
            button.primary { "Sign in" }
        }
    }
}

/// A form of a browser in which no member has signed in.
pub struct VisitorsForm {
    pub browser: Browser,
    /// The visit that the form belongs to.
    pub visit: Token,
    pub form: Fields,
}

/// Reads a form, and refuses one that came from no page of the visit.
pub async fn visitors_form(app: &App, request: Request) -> Result<VisitorsForm, Failure> {
    let (parts, body) = request.into_parts();
    let browser = Browser::of(&parts.headers, app.site.behind_tls);
    check_origin(&parts.headers, &browser)?;
    let form = Fields::of_form(&parts.headers, body).await?;
    let visit = browser.visit.clone().ok_or(Failure::StaleForm)?;
    check_form_token(&visit, form.get("token"))?;
    Ok(VisitorsForm { browser, visit, form })
}

/// Returns the token of a link in a form. If the whole link was pasted, it stands after the `#`.
pub fn link_token(form: &Fields) -> Result<Token, Error<MemberRefused>> {
    let pasted = form.get("link").trim();
    let token = Token::parse(pasted.rsplit_once('#').map_or(pasted, |(_, token)| token));
    token.ok_or(Error::Refused(MemberRefused::LinkGone))
}

/// Makes a page with a form and, if the form before was refused, the reason.
pub fn answered(
    app: &App,
    browser: &Browser,
    refused: Option<MemberRefused>,
    form: impl FnOnce(&Token) -> Markup,
) -> Response {
    let status = match refused {
        None => StatusCode::OK,
        Some(MemberRefused::TooManyAttempts | MemberRefused::TooManyCodes) => StatusCode::TOO_MANY_REQUESTS,
        Some(_) => StatusCode::FORBIDDEN,
    };
    let wrong = refused.map(|refused| sentence(&refused.to_string()));
    (status, form_page(app, browser, wrong.as_deref(), form)).into_response()
}

/// Says why there is no session, and makes the form again.
pub fn refused(
    app: &App,
    browser: &Browser,
    error: Error<MemberRefused>,
    form: impl FnOnce(&Token) -> Markup,
) -> Result<Response, Failure> {
    match error {
        Error::Refused(refused) => Ok(answered(app, browser, Some(refused), form)),
        Error::Store(unavailable) => Err(unavailable.into()),
    }
}

/// Ends a session here and in the store, if it is not over.
pub async fn end(app: &App, session: Option<SignedIn>) -> Result<(), Failure> {
    if let Some(SignedIn { account, member, session, .. }) = session {
        app.management.end_session(account, member.id, session.id).await?;
    }
    Ok(())
}
