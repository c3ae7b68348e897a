//! Signing in with an operator's link, and signing out.

use axum::{
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use domain::member::Member;
use http::header;
use key_service_management::{
    Error,
    members::{MemberRefused, Token},
};
use key_service_page::{
    app::App,
    browser::Browser,
    failure::Failure,
    form::Fields,
    operator::NewOperatorAct,
    paths::{OPERATOR, OPERATOR_SIGN_IN},
    second_factor::asked_code,
    show::program,
    visitor::{self, VisitorsForm, answered, form_page, link_form, link_token, visitors_form, with_a_code},
};
use maud::{Markup, html};

/// Path of sign-in links. It shows the sign-in page, but at another path: a browser that is on the sign-in page already would
/// not load it again for a pasted link that differs only after the `#`, and the script would miss the code.
pub(crate) const LINK: &str = "/operator/sign-in/link";
/// Path of the form that uses up a link.
pub(crate) const USE_LINK: &str = "/operator/sign-in/use";
/// Hint for someone without the app and the recovery codes.
const LOST: &str = "Lost both? Remove the operator on the server and create it again.";

/// Asks for the code of a link. The code follows the `#`, so that only the browser sees it.
pub(crate) async fn show(State(app): State<App>, browser: Browser) -> Result<Response, Failure> {
    if let Some(token) = &browser.operator
        && app.management.operator_session(token).await?.is_some()
    {
        return Ok(Redirect::to(OPERATOR).into_response());
    }
    Ok(form_page(&app, &browser, None, asked))
}

fn asked(visit: &Token) -> Markup {
    html! {
        (with_a_code(visit, OPERATOR_SIGN_IN))
        p.quiet { "This page is for the people who run this installation. Members of an account sign in to "
            a href="/dashboard" { "the dashboard" } "." }
        details {
            summary { "I run this service" }
            p { "Run this on the server to create an operator and print a link:" }
            pre tabindex="0" { (program()) " operators create --name NAME" }
            p { "Run this to print another link for an operator:" }
            pre tabindex="0" { (program()) " operators sign-in-link --name NAME" }
        }
    }
}

fn confirmed(visit: &Token, link: &str, operator: &Member) -> Markup {
    html! {
        p { "This link signs in " strong { bdi { (operator.name) } } " as an operator of this installation, once, in this browser. "
            "If that is not you, close this page." }
        (link_form(visit, USE_LINK, link, operator.second_factor.is_some().then(|| asked_code(LOST))))
    }
}

/// Shows whom a link signs in and asks for confirmation. This does not use up the link.
pub(crate) async fn open_link(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, form, .. } = visitors_form(&app, request).await?;
    opened(&app, &browser, &form, None).await
}

async fn opened(
    app: &App,
    browser: &Browser,
    form: &Fields,
    refused: Option<MemberRefused>,
) -> Result<Response, Failure> {
    let operator = async { app.management.opened_operator_link(&link_token(form)?).await }.await;
    match operator {
        Ok(operator) => {
            Ok(answered(app, browser, refused, |visit| confirmed(visit, form.get("link"), &operator)))
        }
        Err(error) => visitor::refused(app, browser, error, asked),
    }
}

/// Signs in with a link and ends any session that the browser had.
pub(crate) async fn with_link(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, form, .. } = visitors_form(&app, request).await?;
    let signed_in = async {
        app.management.sign_in_operator(&link_token(&form)?, form.get("code"), browser.client()).await
    }
    .await;
    match signed_in {
        Ok(token) => {
            if let Some(before) = &browser.operator {
                visitor::end(&app, app.management.operator_session(before).await?).await?;
            }
            let cookie = [(header::SET_COOKIE, browser.operator_cookie(&token))];
            Ok((cookie, Redirect::to(OPERATOR)).into_response())
        }
        Err(Error::Refused(refused @ (MemberRefused::WrongCode | MemberRefused::TooManyCodes))) => {
            opened(&app, &browser, &form, Some(refused)).await
        }
        Err(error) => visitor::refused(&app, &browser, error, asked),
    }
}

/// Signs out: ends the session in the store and removes its cookie.
pub(crate) async fn out(
    State(app): State<App>,
    NewOperatorAct { operator, .. }: NewOperatorAct,
) -> Result<Response, Failure> {
    let signed_in = &operator.signed_in;
    app.management.end_session(signed_in.account, signed_in.member.id, signed_in.session.id).await?;
    let cookie = AppendHeaders([(header::SET_COOKIE, operator.browser.no_operator_cookie())]);
    Ok((cookie, Redirect::to(OPERATOR_SIGN_IN)).into_response())
}
