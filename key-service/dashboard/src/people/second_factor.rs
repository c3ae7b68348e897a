//! The member's own second factor: setting it up with an authenticator app, and turning it off.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use domain::{
    member::{Member, PasswordCondition},
    second_factor::FactorId,
};
use key_service_management::Error;
use key_service_page::{
    app::App,
    entry::Entered,
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, page},
    notice,
    paths::YOU,
    second_factor::{code_field, fault, offer, recovery_codes},
    session::{Act, OwnViewer, Viewer},
};

pub(crate) const PATH: &str = "/dashboard/you/second-factor";

/// Shows the form that turns the second factor on or off.
pub(crate) async fn show(State(app): State<App>, OwnViewer(viewer): OwnViewer) -> Result<Response, Failure> {
    let none = Fields::default();
    if viewer.signed_in.member.second_factor.is_some() {
        return Ok(asked_off(&viewer, Entered::new(&none)));
    }
    asked_on(&app, &viewer, None, Entered::new(&none))
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

fn present_password(entered: Entered<'_>) -> Markup {
    entered.field("present", "Current password", "", |entry| {
        html! {
            input id=(entry.name) type="password" name=(entry.name) required autocomplete="current-password"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Offers a secret and asks for a first code.
fn asked_on(
    app: &App,
    viewer: &Viewer,
    id: Option<FactorId>,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let offered = app.management.offered_factor(&viewer.signed_in, &viewer.funds.name, id)?;
    let condition = app.management.password_condition(&viewer.signed_in);
    let content = html! {
        @if condition == PasswordCondition::FreshSignIn {
            p.lead { "To set up a second factor, sign in with a new link first." }
            p { a.button href=(YOU) { "Back to your sign-in" } }
        } @else {
            (offer(&offered))
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                input type="hidden" name="factor" value=(offered.id.to_string());
                @if condition == PasswordCondition::PresentPassword { (present_password(entered)) }
                (code_field(entered, "Six digits."))
                div.buttons { button.primary { "Turn on" } a.button href=(YOU) { "Cancel" } }
            }
        }
    };
    Ok(page(viewer, Section::Unlisted, "Second factor", &content))
}

/// Asks for a code before the second factor is turned off.
fn asked_off(viewer: &Viewer, entered: Entered<'_>) -> Response {
    let content = html! {
        p.lead { "Turn off your second factor? Then a password or a link is enough to sign in." }
        form.stack method="post" action={ (PATH) "/off" } {
            (hidden(viewer))
            @if viewer.signed_in.member.password.is_some() { (present_password(entered)) }
            (code_field(entered, "Six digits from your app, or a recovery code."))
            div.buttons { button.danger { "Turn off" } a.button href=(YOU) { "Cancel" } }
        }
    };
    page(viewer, Section::Unlisted, "Second factor", &content)
}

/// Turns the second factor on and shows the recovery codes, for the only time.
pub(crate) async fn enable(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    let id = FactorId::parse(form.get("factor")).ok_or(Failure::NotFound)?;
    let (code, present) = (form.get("code"), form.get("present").into());
    let refused = match app.management.enable_second_factor(&viewer.signed_in, id, code, present).await {
        Ok(codes) => {
            let content = recovery_codes(&codes, YOU);
            return Ok(page(&viewer, Section::Unlisted, "Recovery codes", &content));
        }
        Err(Error::Refused(refused)) => refused,
        Err(other) => return Err(other.into()),
    };
    let (fault, status) = fault(refused)?;
    let again = asked_on(&app, &viewer, Some(id), Entered::refused(&Fields::default(), &fault))?;
    Ok((status, again).into_response())
}

pub(crate) async fn disable(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    let (code, present) = (form.get("code"), form.get("present").into());
    match app.management.disable_second_factor(&viewer.signed_in, code, present).await {
        Ok(()) => Ok(notice::done(&viewer, YOU, "Your second factor is off.")),
        Err(Error::Refused(refused)) => {
            let (fault, status) = fault(refused)?;
            let again = asked_off(&viewer, Entered::refused(&Fields::default(), &fault));
            Ok((status, again).into_response())
        }
        Err(other) => Err(other.into()),
    }
}
