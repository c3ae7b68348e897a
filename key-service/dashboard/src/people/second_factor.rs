//! The member's own second factor: setting it up with an authenticator app, and turning it off.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use crate::people::sign_in::Dashboard;
use domain::member::Member;
use key_service_page::{
    app::App,
    area::Area as _,
    entry::Entered,
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, page},
    notice,
    paths::YOU,
    second_factor::{asked_on, code_field, fault, present_password},
    session::{Act, OwnViewer, Viewer},
};

const PATH: &str = Dashboard::SECOND_FACTOR;

/// Shows the form that turns the second factor on or off.
pub(crate) async fn show(State(app): State<App>, OwnViewer(viewer): OwnViewer) -> Result<Response, Failure> {
    if viewer.signed_in.member.second_factor.is_some() {
        return Ok(asked_off(&viewer, Entered::new(&Fields::default())));
    }
    asked_on::<Dashboard>(&app, &viewer)
}

/// Summarises the second factor for the member's own page.
pub(crate) fn summary(member: &Member) -> Markup {
    html! {
        @match &member.second_factor {
            None => {
                p { "Ask for a code from an app on your phone each time you sign in." }
                div.buttons { a.button href=(PATH) { "Set up …" } }
            },
            Some(factor) => {
                p { "On. Each sign-in asks for a code. Unused recovery codes: " (factor.recovery.len()) ". Turn it off and on again for new ones." }
                div.buttons { a.button.danger href=(PATH) { "Turn off …" } }
            },
        }
    }
}

/// Asks for a code before the second factor is turned off.
fn asked_off(viewer: &Viewer, entered: Entered<'_>) -> Response {
    let content = html! {
        p.lead { "Turn off your second factor? Then a password or a link is enough to sign in." }
        form.stack method="post" action={ (PATH) "/off" } {
            (hidden(viewer))
            @if viewer.signed_in.member.password.is_some() { (present_password(entered, "")) }
            (code_field(entered, "Six digits from your app, or a recovery code."))
            div.buttons { button.danger { "Turn off" } a.button href=(YOU) { "Cancel" } }
        }
    };
    page(viewer, Section::Unlisted, "Second factor", &content)
}

pub(crate) async fn disable(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    let (code, present) = (form.get("code"), form.get("present").into());
    match app.management.disable_second_factor(&viewer.signed_in, code, present).await {
        Ok(()) => Ok(notice::done(&viewer, YOU, "Your second factor is off.")),
        Err(error) => {
            let (fault, status) = fault(error)?;
            let again = asked_off(&viewer, Entered::refused(&Fields::default(), &fault));
            Ok((status, again).into_response())
        }
    }
}
