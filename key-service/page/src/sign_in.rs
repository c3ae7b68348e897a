//! Signing in, mostly with links: forms for browsers without a session. The CSRF tokens of these forms are derived from
//! the visit's cookie.

use axum::{
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use http::{StatusCode, header};
use maud::{Markup, html};
use shared::text::sentence;

use crate::{
    app::App,
    area::{Area, SessionStart},
    failure::Failure,
    form::Fields,
    second_factor::asked_code,
    site::document::{bare, hinted, problem},
    visitors::{
        browser::{Browser, check_form_token, check_origin, form_token},
        person::Person,
    },
};
use key_service_management::{
    Error,
    members::{MemberRefused, SignedIn, Token},
};

/// Renders a page with a form, and sets the visit's cookie. The form's token is derived from this cookie.
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

/// Renders a form in which a sign-in link or its code is entered. The form is sent to `path`.
pub fn with_a_code(visit: &Token, path: &str) -> Markup {
    html! {
        p { "A sign-in link works once." }
        form.stack method="post" action=(path) data-link {
            input type="hidden" name="token" value=(form_token(visit));
            (hinted("link", "Code", "The whole link, or the part after its #.", &html! {
                input #link name="link" required autocomplete="off" spellcheck="false" aria-describedby="link-hint";
            }))
            button.primary { "Continue" }
        }
    }
}

/// A form from a browser without a session. Its origin and its token were checked.
pub struct VisitorsForm {
    pub browser: Browser,
    pub visit: Token,
    pub form: Fields,
}

/// Reads a form, and refuses it unless a page of the same visit sent it.
pub async fn visitors_form(app: &App, request: Request) -> Result<VisitorsForm, Failure> {
    let (parts, body) = request.into_parts();
    let browser = Browser::of(&parts.headers, app.site.behind_tls);
    check_origin(&parts.headers, &browser)?;
    let form = Fields::of_form(&parts.headers, body).await?;
    let visit = browser.visit.clone().ok_or(Failure::StaleForm)?;
    check_form_token(&visit, form.get("token"))?;
    Ok(VisitorsForm { browser, visit, form })
}

/// Returns the token of a sign-in link from a form. If the whole link was entered, the token comes after the `#`.
fn link_token(form: &Fields) -> Result<Token, Error<MemberRefused>> {
    let pasted = form.get("link").trim();
    let token = Token::parse(pasted.rsplit_once('#').map_or(pasted, |(_, token)| token));
    token.ok_or(Error::Refused(MemberRefused::LinkGone))
}

/// Renders a page with a form. If the form sent before was refused, the page shows the reason.
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

/// Renders the form again with the reason for the refusal.
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

/// Returns the browser's session, if it has not ended.
pub async fn session<P: Person>(app: &App, browser: &Browser) -> Result<Option<SignedIn>, Failure> {
    let Some(token) = browser.session_in(P::COOKIE) else { return Ok(None) };
    Ok(P::session(&app.management, token).await?)
}

/// Starts a session in the browser and ends any session that it had.
pub async fn begin<P: Person>(
    app: &App,
    browser: &Browser,
    SessionStart { cookies, page }: SessionStart,
) -> Result<Response, Failure> {
    if let Some(SignedIn { account, member, session, .. }) = session::<P>(app, browser).await? {
        app.management.end_session(account, member.id, session.id).await?;
    }
    let cookies = AppendHeaders(cookies.into_iter().map(|cookie| (header::SET_COOKIE, cookie)));
    Ok((cookies, Redirect::to(&page)).into_response())
}

/// Shows whom a link signs in, and asks for confirmation. This does not use up the link, because mail scanners open
/// links too.
pub async fn open_link<A: Area>(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, form, .. } = visitors_form(&app, request).await?;
    opened::<A>(&app, &browser, &form, None).await
}

async fn opened<A: Area>(
    app: &App,
    browser: &Browser,
    form: &Fields,
    wrong: Option<MemberRefused>,
) -> Result<Response, Failure> {
    let opened = async { A::opened(app, &link_token(form)?).await }.await;
    let (whom, member) = match opened {
        Ok(opened) => opened,
        Err(error) => return refused(app, browser, error, |visit| A::asked(visit, form)),
    };
    Ok(answered(app, browser, wrong, |visit| {
        html! {
            p { (whom) }
            form.stack method="post" action=(A::USES_LINK) {
                input type="hidden" name="token" value=(form_token(visit));
                input type="hidden" name="link" value=(form.get("link"));
                @if member.second_factor.is_some() { (asked_code(A::LOST)) }
                button.primary { "Sign in" }
            }
        }
    }))
}

pub async fn with_link<A: Area>(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, form, .. } = visitors_form(&app, request).await?;
    let code = form.get("code");
    let begun = async { A::use_link(&app, &link_token(&form)?, code, &browser).await }.await;
    match begun {
        Ok(begun) => begin::<A::Person>(&app, &browser, begun).await,
        Err(Error::Refused(wrong @ (MemberRefused::WrongCode | MemberRefused::TooManyCodes))) => {
            opened::<A>(&app, &browser, &form, Some(wrong)).await
        }
        Err(error) => refused(&app, &browser, error, |visit| A::asked(visit, &form)),
    }
}
