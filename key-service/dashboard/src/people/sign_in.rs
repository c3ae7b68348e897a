//! Signing in with a link or a password, and signing out.

use axum::{
    extract::{Request, State},
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use http::header;
use maud::{Markup, html};

use domain::member::Member;
use key_service_management::{
    Error,
    members::{CodeSignIn, MemberRefused, NewSession, SignIn, SignInStep, Token},
};
use key_service_page::{
    app::App,
    browser::{Browser, form_token},
    destination::{Destination, SignInReason, sign_in_address},
    failure::Failure,
    form::{Fields, query},
    layout::reveals,
    paths::{HOME, SIGN_IN},
    second_factor::asked_code,
    session::Act,
    show::program,
    visitor::{self, VisitorsForm, answered, form_page, link_form, link_token, visitors_form, with_a_code},
};

/// Path of sign-in links. A POST shows whom the link signs in.
pub(crate) const LINK: &str = "/dashboard/sign-in/link";
/// Path of the form with a second-factor code, after a password.
pub(crate) const CODE: &str = "/dashboard/sign-in/code";
/// Path of the form that uses up a link.
pub(crate) const USE_LINK: &str = "/dashboard/sign-in/link/use";

/// Hint for someone without the app and the recovery codes.
const LOST: &str = "Lost both? Ask an owner of the account.";

/// Asks for a password, unless the member is signed in.
pub(crate) async fn show(
    State(app): State<App>,
    browser: Browser,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let destination = Destination::parse(query.get("to"));
    if let Some(token) = &browser.session
        && app.management.session(token).await?.is_some()
    {
        let page = destination.as_ref().map_or(HOME, Destination::as_str);
        return Ok(Redirect::to(page).into_response());
    }
    let reason = SignInReason::parse(query.get("reason"));
    let page = form_page(&app, &browser, None, |visit| {
        html! {
            @if let Some(reason) = reason { p.note role="status" { (reason.sentence()) } }
            (with_a_password(visit, &Fields::of([("account", browser.account.clone())])))
        }
    });
    // A cookie, so that signing in another way, even with a link in another tab, leads to the same page.
    let cookies = AppendHeaders([
        (header::SET_COOKIE, browser.destination_cookie(destination.as_ref())),
        (header::SET_COOKIE, browser.no_session_cookie()),
    ]);
    Ok((cookies, page).into_response())
}

/// Asks for the code of a link. The code follows the `#`, so that only the browser sees it; the script fills it in, or a
/// person does.
pub(crate) async fn link(State(app): State<App>, browser: Browser) -> Response {
    form_page(&app, &browser, None, |visit| with_a_code(visit, LINK))
}

fn confirmed(visit: &Token, link: &str, account: &str, member: &Member) -> Markup {
    html! {
        p { "This link signs in " strong { bdi { (member.name) } } " of the account " strong { bdi { (account) } }
            ", once, in this browser. If that is not you, close this page: it is someone else’s account." }
        (link_form(visit, USE_LINK, link, member.second_factor.is_some().then(|| asked_code(LOST))))
    }
}

fn with_a_code_of_the_app(visit: &Token, challenge: &str) -> Markup {
    html! {
        p { "Your password is correct. Now enter a code of your second factor." }
        form.stack method="post" action=(CODE) {
            input type="hidden" name="token" value=(form_token(visit));
            input type="hidden" name="challenge" value=(challenge);
            (asked_code(LOST))
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
            label { "Password" input #password type="password" name="password" autocomplete="current-password" required; }
            (reveals("password"))
            button.primary { "Sign in" }
        }
        p.quiet {
            "No password yet, or forgotten? Ask an owner of the account, or whoever runs this service, for a sign-in link."
        }
        details {
            summary { "I run this service" }
            p { "Run this on the server to print a link:" }
            pre tabindex="0" { (program()) " sign-in-link --account NAME --name NAME" }
        }
    }
}

/// Shows whom a link signs in and asks for confirmation. This does not use up the link, since mail scanners open links too.
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
    let link = async { app.management.opened_link(&link_token(form)?).await }.await;
    match link {
        Ok((account, member)) => {
            Ok(answered(app, browser, refused, |visit| confirmed(visit, form.get("link"), &account, &member)))
        }
        Err(error) => refuse(app, browser, form, error),
    }
}

/// Signs in with a link.
pub(crate) async fn with_link(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, form, .. } = visitors_form(&app, request).await?;
    let code = form.get("code");
    let signed_in =
        async { app.management.sign_in_with_link(&link_token(&form)?, code, browser.client()).await }.await;
    match signed_in {
        Ok(session) => begin(&app, &browser, &session).await,
        Err(Error::Refused(refused @ (MemberRefused::WrongCode | MemberRefused::TooManyCodes))) => {
            opened(&app, &browser, &form, Some(refused)).await
        }
        Err(error) => refuse(&app, &browser, &form, error),
    }
}

/// Signs in with a password, or asks for a code as well.
pub(crate) async fn with_password(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, visit, form } = visitors_form(&app, request).await?;
    let attempt = SignIn {
        account: form.get("account").trim(),
        name: form.get("name").trim(),
        password: form.get("password").into(),
        client: browser.client(),
        visit: &visit,
    };
    let response = match app.management.sign_in(attempt).await {
        Ok(SignInStep::Session(session)) => begin(&app, &browser, &session).await?,
        Ok(SignInStep::Code(challenge)) => {
            answered(&app, &browser, None, |visit| with_a_code_of_the_app(visit, &challenge))
        }
        Err(error) => return refuse(&app, &browser, &form, error),
    };
    let account = browser.account_cookie(form.get("account").trim());
    Ok((AppendHeaders([(header::SET_COOKIE, account)]), response).into_response())
}

/// Signs in with a code after a password.
pub(crate) async fn with_code(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let VisitorsForm { browser, visit, form } = visitors_form(&app, request).await?;
    let (challenge, code) = (form.get("challenge"), form.get("code"));
    let attempt = CodeSignIn { challenge, code, visit: &visit, client: browser.client() };
    match app.management.sign_in_with_code(attempt).await {
        Ok(session) => begin(&app, &browser, &session).await,
        Err(Error::Refused(refused @ (MemberRefused::WrongCode | MemberRefused::TooManyCodes))) => {
            let form = |visit: &Token| with_a_code_of_the_app(visit, challenge);
            Ok(answered(&app, &browser, Some(refused), form))
        }
        Err(error) => refuse(&app, &browser, &form, error),
    }
}

/// Starts the session in the browser and ends any session that it had.
async fn begin(app: &App, browser: &Browser, session: &NewSession) -> Result<Response, Failure> {
    if let Some(before) = &browser.session {
        visitor::end(app, app.management.session(before).await?).await?;
    }
    let cookies = AppendHeaders([
        (header::SET_COOKIE, browser.session_cookie(&session.token)),
        (header::SET_COOKIE, browser.known_cookie(&session.browser)),
        (header::SET_COOKIE, browser.destination_cookie(None)),
    ]);
    let page = browser.destination.as_ref().map_or(HOME, Destination::as_str);
    Ok((cookies, Redirect::to(page)).into_response())
}

/// Shows why the sign-in was refused and asks for a password.
fn refuse(
    app: &App,
    browser: &Browser,
    form: &Fields,
    error: Error<MemberRefused>,
) -> Result<Response, Failure> {
    visitor::refused(app, browser, error, |visit| with_a_password(visit, form))
}

/// Signs out: ends the session in the store and removes its cookie.
pub(crate) async fn out(State(app): State<App>, Act { viewer, .. }: Act) -> Result<Response, Failure> {
    let (account, member) = (viewer.signed_in.account, viewer.signed_in.member.id);
    app.management.end_session(account, member, viewer.signed_in.session.id).await?;
    let cookie = [(header::SET_COOKIE, viewer.browser.no_session_cookie())];
    Ok((cookie, Redirect::to(&sign_in_address(None, Some(SignInReason::Out)))).into_response())
}
