//! What the dashboard and the operators' pages do in the same way: they guard every page, sign people out, and store
//! the chosen theme.

use std::future::{Ready, ready};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{AppendHeaders, IntoResponse, Redirect, Response},
};
use http::header;
use maud::{Markup, html};

use crate::{
    app::App,
    failure::{Explained, Failure},
    form::Fields,
    site::{document::bare, headers},
    visitors::{
        browser::Browser,
        person::{ActOf, Person},
        session::AskingAccount,
    },
};
use domain::member::Member;
use key_service_management::{
    Error,
    members::{MemberRefused, Token},
};

/// What the browser gets when a session begins.
pub struct SessionStart {
    pub cookies: Vec<String>,
    /// The page that the browser is sent to.
    pub page: String,
}

/// One of the two areas with pages: the dashboard, or the operators' pages.
pub trait Area: Send + Sync + 'static {
    type Person: Person;

    /// Name of the first page, as it appears after `Back to the`.
    const HOME_NAME: &'static str;
    /// Path of the form that uses up a sign-in link.
    const USES_LINK: &'static str;
    /// Hint for someone who has lost both the authenticator app and the recovery codes.
    const LOST: &'static str;
    /// Path of the form that turns on the second factor.
    const SECOND_FACTOR: &'static str;
    /// Path of the page to show once the second factor is turned on.
    const AFTER_SECOND_FACTOR: &'static str;
    /// Path of the page to which *Cancel* leads. `None` if the second factor cannot be declined.
    const WITHOUT_SECOND_FACTOR: Option<&'static str>;

    /// Renders a page to which the navigation has no link.
    fn page(person: &Self::Person, title: &str, content: &Markup) -> Response;

    /// Returns the address of the sign-in page for someone who has signed out.
    fn signed_out() -> String;

    /// Renders the first form of the sign-in again, after its answer was refused.
    fn asked(visit: &Token, entered: &Fields) -> Markup;

    /// Finds out whom a link signs in, and renders a text that says so. The link is not used up.
    fn opened(
        app: &App,
        link: &Token,
    ) -> impl Future<Output = Result<(Markup, Member), Error<MemberRefused>>> + Send;

    /// Signs in with a link.
    fn use_link(
        app: &App,
        link: &Token,
        code: &str,
        browser: &Browser,
    ) -> impl Future<Output = Result<SessionStart, Error<MemberRefused>>> + Send;

    /// Returns the account name that authenticator apps show.
    fn issued_for(person: &Self::Person) -> &str;

    /// Renders the text above the form that turns on the second factor. It explains whether the person must sign in
    /// again first.
    fn factor_lead(needs_sign_in: bool) -> Markup;
}

/// Middleware that sets security headers, renders failures as pages, and reports the account to the gateway.
pub async fn secure<A: Area>(
    State(app): State<App>,
    browser: Browser,
    mut request: Request,
    next: Next,
) -> Response {
    let account = AskingAccount::default();
    request.extensions_mut().insert(account.clone());
    let over_tls = browser.secure;
    let response =
        if browser.is_at(&app.site) { next.run(request).await } else { Failure::ForeignHost.into_response() };
    let mut response = framed::<A>(&app, browser, response).await;
    account.write(response.headers_mut());
    headers::secure(response.headers_mut(), over_tls);
    response
}

/// Renders a failure as a page: with navigation for someone who is signed in, without it for others. Other responses
/// pass unchanged.
async fn framed<A: Area>(app: &App, browser: Browser, mut response: Response) -> Response {
    let Some(Explained { title, message }) = response.extensions_mut().remove() else { return response };
    let content = html! {
        p { (message) }
        p { a.button href=(A::Person::HOME) { "Back to the " (A::HOME_NAME) } }
    };
    let theme = browser.theme;
    let page = match A::Person::of(app, browser).await {
        Ok(Some(person)) => A::page(&person, title, &content),
        Ok(None) | Err(_) => bare(theme, title, &html! { h1 { (title) } (content) }),
    };
    (response.status(), page).into_response()
}

/// Answers requests for a path or method that no page has.
pub fn no_such_page() -> Ready<Failure> {
    ready(Failure::NotFound)
}

/// Stores the theme or the time zone that was chosen in the personal menu.
pub fn choose_display<P: Person>(ActOf { viewer, form }: ActOf<P>) -> Ready<Response> {
    ready(viewer.browser().choose_display(&form, P::HOME))
}

/// Signs out: ends the session in the store and removes its cookie.
pub async fn sign_out<A: Area>(
    State(app): State<App>,
    ActOf { viewer, .. }: ActOf<A::Person>,
) -> Result<Response, Failure> {
    let signed_in = viewer.signed_in();
    app.management.end_session(signed_in.account, signed_in.member.id, signed_in.session.id).await?;
    let cookie = AppendHeaders([(header::SET_COOKIE, viewer.browser().no_session_cookie(A::Person::COOKIE))]);
    Ok((cookie, Redirect::to(&A::signed_out())).into_response())
}
