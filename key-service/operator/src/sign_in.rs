//! Signing in with an operator's link, and the second factor that operators need.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use domain::member::Member;
use key_service_management::{
    Error,
    members::{MemberRefused, Token},
};
use key_service_page::{
    app::App,
    area::{Area, SessionStart},
    browser::Browser,
    failure::Failure,
    form::Fields,
    operator::{NewOperator, Operator},
    paths::{OPERATOR, OPERATOR_SECOND_FACTOR, OPERATOR_SIGN_IN},
    person::Person as _,
    second_factor::asked_on,
    show::program,
    sign_in::{form_page, session, with_a_code},
};
use maud::{Markup, html};

use crate::layout;

/// Path of sign-in links. It shows the sign-in page under another path. A browser that already shows the sign-in page
/// would not reload it for a pasted link that differs only after the `#`, so the script would miss the token.
pub(crate) const LINK: &str = "/operator/sign-in/link";

/// Sign-in for operators, as opposed to members.
pub(crate) struct Operators;

impl Area for Operators {
    type Person = Operator;

    const HOME_NAME: &'static str = "accounts";
    const USES_LINK: &'static str = "/operator/sign-in/use";
    const LOST: &'static str = "Lost both? Remove the operator on the server and create it again.";
    const SECOND_FACTOR: &'static str = OPERATOR_SECOND_FACTOR;
    const AFTER_SECOND_FACTOR: &'static str = OPERATOR;
    const WITHOUT_SECOND_FACTOR: Option<&'static str> = None;

    fn page(operator: &Operator, title: &str, content: &Markup) -> Response {
        layout::page(operator, layout::Section::Unlisted, title, content)
    }

    fn signed_out() -> String {
        OPERATOR_SIGN_IN.to_owned()
    }

    fn asked(visit: &Token, _: &Fields) -> Markup {
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

    async fn opened(app: &App, link: &Token) -> Result<(Markup, Member), Error<MemberRefused>> {
        let operator = app.management.opened_operator_link(link).await?;
        let whom = html! {
            "This link signs in " strong { bdi { (operator.name) } } " as an operator of this installation, once, in this browser. "
            "If that is not you, close this page."
        };
        Ok((whom, operator))
    }

    async fn use_link(
        app: &App,
        link: &Token,
        code: &str,
        browser: &Browser,
    ) -> Result<SessionStart, Error<MemberRefused>> {
        let token = app.management.sign_in_operator(link, code, browser.client()).await?;
        let cookies = vec![browser.session_cookie(Operator::COOKIE, &token)];
        Ok(SessionStart { cookies, page: OPERATOR.to_owned() })
    }

    fn issued_for(_: &Operator) -> &'static str {
        "operators"
    }

    fn factor_lead(needs_sign_in: bool) -> Markup {
        html! {
            @if needs_sign_in {
                p.lead { "Operators need a second factor. To set it up, sign in with a new link:" }
                pre tabindex="0" { (program()) " operators sign-in-link --name NAME" }
            } @else { p.lead { "Operators need a second factor. Set it up to see any other page." } }
        }
    }
}

/// Renders a form for a link's token. In the link, the token follows the `#`, so that only the browser sees it.
pub(crate) async fn show(State(app): State<App>, browser: Browser) -> Result<Response, Failure> {
    if session::<Operator>(&app, &browser).await?.is_some() {
        return Ok(Redirect::to(OPERATOR).into_response());
    }
    Ok(form_page(&app, &browser, None, |visit| Operators::asked(visit, &Fields::default())))
}

/// Offers a second factor, unless the operator has one. Every other page requires it, and no page turns it off.
pub(crate) async fn offer(
    State(app): State<App>,
    NewOperator(operator): NewOperator,
) -> Result<Response, Failure> {
    if operator.has_second_factor() {
        return Ok(Redirect::to(OPERATOR).into_response());
    }
    asked_on::<Operators>(&app, &operator)
}
