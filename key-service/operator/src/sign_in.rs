//! Signing an operator in with a link, and out.

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

/// Path of a link. It shows the same page as signing in, whose address would stay when a link is pasted there, and the
/// script would not see the code.
pub(crate) const LINK: &str = "/operator/sign-in/link";
/// Path of the form that uses a link up.
pub(crate) const USE_LINK: &str = "/operator/sign-in/use";
/// What to do without app and recovery codes.
const LOST: &str = "Lost both? Remove the operator on the server, and make it again.";

/// Asks for the code of a link. It stands after the link's `#`, where only the browser sees it.
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
        p.quiet { "This is where the people who run this installation sign in. The people of an account sign in "
            a href="/dashboard" { "to its dashboard" } "." }
        details {
            summary { "I run this service" }
            p { "This makes an operator on the server, and prints a link:" }
            pre tabindex="0" { (program()) " operators create --name NAME" }
            p { "This prints another link for one:" }
            pre tabindex="0" { (program()) " operators sign-in-link --name NAME" }
        }
    }
}

fn confirmed(visit: &Token, link: &str, operator: &Member) -> Markup {
    html! {
        p { "This link signs in " strong { bdi { (operator.name) } } " as an operator of this installation, once, in this browser. "
            "Is that not you? Then close the page." }
        (link_form(visit, USE_LINK, link, operator.second_factor.is_some().then(|| asked_code(LOST))))
    }
}

/// Says whom a link signs in, and offers to do so. This does not use the link up.
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

/// Signs in with a link, in place of any session that the browser had.
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

/// Signs out, which ends the session here and in the store.
pub(crate) async fn out(
    State(app): State<App>,
    NewOperatorAct { operator, .. }: NewOperatorAct,
) -> Result<Response, Failure> {
    let signed_in = &operator.signed_in;
    app.management.end_session(signed_in.account, signed_in.member.id, signed_in.session.id).await?;
    let cookie = AppendHeaders([(header::SET_COOKIE, operator.browser.no_operator_cookie())]);
    Ok((cookie, Redirect::to(OPERATOR_SIGN_IN)).into_response())
}
