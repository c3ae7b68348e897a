//! Signing in with a link or a password.

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
    area::{Area, SessionStart},
    browser::{Browser, form_token},
    destination::{Destination, SignInReason, sign_in_address},
    failure::Failure,
    form::{Fields, query},
    layout::{Section, page, reveals},
    paths::{HOME, SIGN_IN, YOU},
    person::Person as _,
    second_factor::asked_code,
    session::Viewer,
    show::program,
    sign_in::{VisitorsForm, answered, begin, form_page, refused, session, visitors_form, with_a_code},
};

/// Path of sign-in links. A POST shows who will be signed in.
pub(crate) const LINK: &str = "/dashboard/sign-in/link";
/// Path of the form with a second-factor code, after a password.
pub(crate) const CODE: &str = "/dashboard/sign-in/code";

/// Asks for a password, unless the member is already signed in.
pub(crate) async fn show(
    State(app): State<App>,
    browser: Browser,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let destination = Destination::parse(query.get("to"));
    if session::<Viewer>(&app, &browser).await?.is_some() {
        let page = destination.as_ref().map_or(HOME, Destination::as_str);
        return Ok(Redirect::to(page).into_response());
    }
    let reason = SignInReason::parse(query.get("reason"));
    let page = form_page(&app, &browser, None, |visit| {
        html! {
            @if let Some(reason) = reason { p.note role="status" { (reason.sentence()) } }
            (Dashboard::asked(visit, &Fields::of([("account", browser.account.clone())])))
        }
    });
    // The page to open is stored in a cookie, so that signing in another way, even with a link in another tab, leads to
    // the same page.
    let cookies = AppendHeaders([
        (header::SET_COOKIE, browser.destination_cookie(destination.as_ref())),
        (header::SET_COOKIE, browser.no_session_cookie(Viewer::COOKIE)),
    ]);
    Ok((cookies, page).into_response())
}

/// Renders a form for a link's token. In the link, the token follows the `#`, so that only the browser sees it. The
/// script or the person enters the token into the form.
pub(crate) async fn link(State(app): State<App>, browser: Browser) -> Response {
    form_page(&app, &browser, None, |visit| with_a_code(visit, LINK))
}

fn with_a_code_of_the_app(visit: &Token, challenge: &str) -> Markup {
    html! {
        p { "Your password is correct. Now enter a code of your second factor." }
        form.stack method="post" action=(CODE) {
            input type="hidden" name="token" value=(form_token(visit));
            input type="hidden" name="challenge" value=(challenge);
            (asked_code(Dashboard::LOST))
            button.primary { "Sign in" }
        }
    }
}

/// Sign-in for members, as opposed to operators.
pub(crate) struct Dashboard;

impl Area for Dashboard {
    type Person = Viewer;

    const HOME_NAME: &'static str = "dashboard";
    const USES_LINK: &'static str = "/dashboard/sign-in/link/use";
    const LOST: &'static str = "Lost both? Ask an owner of the account.";
    const SECOND_FACTOR: &'static str = "/dashboard/you/second-factor";
    const AFTER_SECOND_FACTOR: &'static str = YOU;
    const WITHOUT_SECOND_FACTOR: Option<&'static str> = Some(YOU);

    fn page(viewer: &Viewer, title: &str, content: &Markup) -> Response {
        page(viewer, Section::Unlisted, title, content)
    }

    fn signed_out() -> String {
        sign_in_address(None, Some(SignInReason::Out))
    }

    fn asked(visit: &Token, entered: &Fields) -> Markup {
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

    async fn opened(app: &App, link: &Token) -> Result<(Markup, Member), Error<MemberRefused>> {
        let (account, member) = app.management.opened_link(link).await?;
        let whom = html! {
            "This link signs in " strong { bdi { (member.name) } } " of the account " strong { bdi { (account) } }
            ", once, in this browser. If that is not you, close this page: it is someone else’s account."
        };
        Ok((whom, member))
    }

    async fn use_link(
        app: &App,
        link: &Token,
        code: &str,
        browser: &Browser,
    ) -> Result<SessionStart, Error<MemberRefused>> {
        let session = app.management.sign_in_with_link(link, code, browser.client()).await?;
        Ok(begun(browser, &session))
    }

    fn issued_for(viewer: &Viewer) -> &str {
        &viewer.funds.name
    }

    fn factor_lead(needs_sign_in: bool) -> Markup {
        html! {
            @if needs_sign_in {
                p.lead { "To set up a second factor, sign in with a new link first." }
                p { a.button href=(YOU) { "Back to your sign-in" } }
            }
        }
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
        Ok(SignInStep::Session(session)) => {
            begin::<Viewer>(&app, &browser, begun(&browser, &session)).await?
        }
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
        Ok(session) => begin::<Viewer>(&app, &browser, begun(&browser, &session)).await,
        Err(Error::Refused(refused @ (MemberRefused::WrongCode | MemberRefused::TooManyCodes))) => {
            let form = |visit: &Token| with_a_code_of_the_app(visit, challenge);
            Ok(answered(&app, &browser, Some(refused), form))
        }
        Err(error) => refuse(&app, &browser, &form, error),
    }
}

/// Returns the cookies of a new session, and the page to go to.
fn begun(browser: &Browser, session: &NewSession) -> SessionStart {
    let cookies = vec![
        browser.session_cookie(Viewer::COOKIE, &session.token),
        browser.known_cookie(&session.browser),
        browser.destination_cookie(None),
    ];
    let page = browser.destination.as_ref().map_or(HOME, Destination::as_str).to_owned();
    SessionStart { cookies, page }
}

/// Shows why the sign-in was refused and asks for a password.
fn refuse(
    app: &App,
    browser: &Browser,
    form: &Fields,
    error: Error<MemberRefused>,
) -> Result<Response, Failure> {
    refused(app, browser, error, |visit| Dashboard::asked(visit, form))
}
