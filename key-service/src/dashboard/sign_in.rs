//! Signing in with a link or a password, and signing out.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use http::{StatusCode, header};
use maud::{Markup, html};

use super::{
    Desk, HOME, SIGN_IN,
    browser::{Browser, check_form_token, check_origin, form_token},
    failure::{Failure, sentence},
    form::{Fields, query},
    layout::{bare, problem},
    session::Act,
};
use crate::management::{
    Error,
    members::{MemberRefused, SignIn, Token},
};

/// Asks for a password, or offers to use a link. Opening a link does nothing: scanners of mail open links too.
pub(super) async fn show(State(desk): State<Desk>, browser: Browser, request: Request) -> Response {
    let query = query(&request);
    let link = query.filled("link");
    form_page(&desk, &browser, link, &Fields::default(), None)
}

fn form_page(
    desk: &Desk,
    browser: &Browser,
    link: Option<&str>,
    entered: &Fields,
    wrong: Option<&str>,
) -> Response {
    // The token of a form follows from a cookie, which a first visit has not.
    let visit = browser.visit.clone().unwrap_or_else(|| desk.management.visit());
    let content = html! {
        h1 { "Sign in" }
        (problem(wrong))
        @if let Some(link) = link { (with_a_link(&visit, link)) } @else { (with_a_password(&visit, entered)) }
    };
    let cookie = [(header::SET_COOKIE, browser.visit_cookie(&visit))];
    (cookie, bare(browser.theme, "Sign in · Faregate", &content)).into_response()
}

fn with_a_link(visit: &Token, link: &str) -> Markup {
    html! {
        p { "This link signs you in once, in this browser." }
        form.stack method="post" action="/dashboard/sign-in/link" {
            input type="hidden" name="token" value=(form_token(visit));
            input type="hidden" name="link" value=(link);
            button.primary { "Sign in" }
        }
    }
}

fn with_a_password(visit: &Token, entered: &Fields) -> Markup {
    html! {
        form.stack method="post" action=(SIGN_IN) {
            input type="hidden" name="token" value=(form_token(visit));
            label { "Account" input name="account" autocomplete="organization" required value=(entered.get("account")); }
            label { "Name" input name="name" autocomplete="username" required value=(entered.get("name")); }
            label { "Password" input type="password" name="password" autocomplete="current-password" required; }
            button.primary { "Sign in" }
        }
        p.quiet {
            "No password yet, or forgotten? An operator makes a link that signs you in: "
            code { "faregate sign-in-link --account NAME --name YOU" }
        }
    }
}

/// A form of a browser in which no member has signed in.
async fn visitors_form(desk: &Desk, request: Request) -> Result<(Browser, Fields), Failure> {
    let (parts, body) = request.into_parts();
    let browser = Browser::of(&parts.headers, desk.behind_tls);
    check_origin(&parts.headers, &browser)?;
    let form = Fields::of_form(&parts.headers, body).await?;
    let visit = browser.visit.as_ref().ok_or(Failure::StaleForm)?;
    check_form_token(visit, form.get("token"))?;
    Ok((browser, form))
}

/// Signs in with a link.
pub(super) async fn with_link(State(desk): State<Desk>, request: Request) -> Result<Response, Failure> {
    let (browser, form) = visitors_form(&desk, request).await?;
    let signed_in = match Token::parse(form.get("link")) {
        Some(link) => desk.management.sign_in_with_link(&link, &browser.agent).await,
        None => Err(Error::Refused(MemberRefused::LinkGone)),
    };
    answer(&desk, &browser, &form, signed_in).await
}

/// Signs in with a password.
pub(super) async fn with_password(State(desk): State<Desk>, request: Request) -> Result<Response, Failure> {
    let (browser, form) = visitors_form(&desk, request).await?;
    let attempt = SignIn {
        account: form.get("account").trim(),
        name: form.get("name").trim(),
        password: form.get("password").into(),
        address: &browser.address,
        agent: &browser.agent,
    };
    let signed_in = desk.management.sign_in(attempt).await;
    answer(&desk, &browser, &form, signed_in).await
}

/// Begins the session in the browser, whatever session it had before, or tells why there is none.
async fn answer(
    desk: &Desk,
    browser: &Browser,
    form: &Fields,
    signed_in: Result<Token, Error<MemberRefused>>,
) -> Result<Response, Failure> {
    match signed_in {
        Ok(token) => {
            if let Some(before) = &browser.session {
                end(desk, before).await?;
            }
            let cookie = [(header::SET_COOKIE, browser.session_cookie(&token))];
            Ok((cookie, Redirect::to(HOME)).into_response())
        }
        Err(Error::Refused(refused)) => {
            let status = match refused {
                MemberRefused::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
                _ => StatusCode::FORBIDDEN,
            };
            let page = form_page(desk, browser, None, form, Some(&sentence(&refused.to_string())));
            Ok((status, page).into_response())
        }
        Err(Error::Unavailable(unavailable)) => Err(unavailable.into()),
    }
}

async fn end(desk: &Desk, token: &Token) -> Result<(), Failure> {
    if let Some(signed_in) = desk.management.session(token).await? {
        let (account, member) = (signed_in.account, signed_in.member.id);
        desk.management.end_session(account, member, signed_in.session.id).await?;
    }
    Ok(())
}

/// Signs out: the session ends here and in the store.
pub(super) async fn out(State(desk): State<Desk>, Act { viewer, .. }: Act) -> Result<Response, Failure> {
    let (account, member) = (viewer.signed_in.account, viewer.signed_in.member.id);
    desk.management.end_session(account, member, viewer.signed_in.session.id).await?;
    let cookie = [(header::SET_COOKIE, viewer.browser.no_session_cookie())];
    Ok((cookie, Redirect::to(SIGN_IN)).into_response())
}
