//! The member's second factor, which is set up with an app and turned off with a code.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use qrcode::{Color, QrCode};
use shared::secret::ExposeSecret;

use domain::{
    member::{Member, PasswordCondition},
    second_factor::FactorId,
};
use key_service_management::{
    Error,
    members::{MemberRefused, OfferedFactor},
};
use key_service_page::{
    app::App,
    entry::{Entered, Fault},
    failure::{Failure, sentence},
    form::Fields,
    layout::{Section, hidden, hinted, page},
    notice,
    paths::YOU,
    session::{Act, Viewer},
    show::copyable_line,
};

pub(super) const PATH: &str = "/dashboard/you/second-factor";

/// Light modules around a QR code, as readers need.
const QUIET_ZONE: usize = 4;

/// Shows how to turn the second factor on or off.
pub(super) async fn show(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    let none = Fields::default();
    if viewer.signed_in.member.second_factor.is_some() {
        return Ok(asked_off(&viewer, Entered::new(&none)));
    }
    asked_on(&app, &viewer, None, Entered::new(&none))
}

/// Shows the part of the member's page that links here.
pub(super) fn summary(member: &Member) -> Markup {
    html! {
        @match &member.second_factor {
            None => {
                p { "Beside your password or link, a code of an app on your phone can be asked for at each sign-in." }
                div.buttons { a.button href=(PATH) { "Set up …" } }
            },
            Some(factor) => {
                p { "On: each sign-in asks for a code. Unused recovery codes: " (factor.recovery.len()) ". Turn it off and on again for new ones." }
                div.buttons { a.button.danger href=(PATH) { "Turn off …" } }
            },
        }
    }
}

/// A field for a code of the second factor.
pub(super) fn code_field(entered: Entered<'_>, hint: &str) -> Markup {
    entered.field("code", ("Code", hint), |entry| {
        html! {
            input id=(entry.name) name=(entry.name) required autocomplete="one-time-code" spellcheck="false"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

fn present_password(entered: Entered<'_>) -> Markup {
    entered.field("present", ("Present password", ""), |entry| {
        html! {
            input id=(entry.name) type="password" name=(entry.name) required autocomplete="current-password"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Offers a secret, and asks for a code of it.
fn asked_on(
    app: &App,
    viewer: &Viewer,
    id: Option<FactorId>,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let OfferedFactor { id, secret, uri } =
        app.management.offered_factor(&viewer.signed_in, &viewer.funds.name, id)?;
    let condition = app.management.password_condition(&viewer.signed_in);
    let content = html! {
        @if condition == PasswordCondition::FreshSignIn {
            p.lead { "To set one up, sign in with a new link first." }
            p { a.button href=(YOU) { "Back to your sign-in" } }
        } @else {
            p.lead { "Scan this with an app for one-time codes, then enter the code that the app shows." }
            (qr_code(uri.expose_secret()))
            (copyable_line("Or type the secret in:", secret.expose_secret()))
            p { a href=(uri.expose_secret()) { "Open in an app on this device" } }
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                input type="hidden" name="factor" value=(id.to_string());
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
        p.lead { "Turn off your second factor? Then your password or a link alone signs you in." }
        form.stack method="post" action={ (PATH) "/off" } {
            (hidden(viewer))
            @if viewer.signed_in.member.password.is_some() { (present_password(entered)) }
            (code_field(entered, "Six digits of your app, or a recovery code."))
            div.buttons { button.danger { "Turn off" } a.button href=(YOU) { "Cancel" } }
        }
    };
    page(viewer, Section::Unlisted, "Second factor", &content)
}

/// Draws a QR code; nothing for a text that is too long.
fn qr_code(text: &str) -> Markup {
    let Ok(code) = QrCode::new(text) else { return html! {} };
    let (width, size) = (code.width(), code.width() + 2 * QUIET_ZONE);
    let modules = code.into_colors().into_iter().enumerate().filter(|(_, color)| *color == Color::Dark);
    let modules =
        modules.map(|(at, _)| format!("M{} {}h1v1h-1z", at % width + QUIET_ZONE, at / width + QUIET_ZONE));
    html! {
        svg.qr role="img" aria-label="QR code of the secret" viewBox={ "0 0 " (size) " " (size) } {
            path d=(modules.collect::<String>()) {}
        }
    }
}

/// Turns the second factor on, and shows the recovery codes only this once.
pub(super) async fn enable(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    let id = FactorId::parse(form.get("factor")).ok_or(Failure::NotFound)?;
    let (code, present) = (form.get("code"), form.get("present").into());
    let refused = match app.management.enable_second_factor(&viewer.signed_in, id, code, present).await {
        Ok(codes) => return Ok(recovery_codes(&viewer, &codes)),
        Err(Error::Refused(refused)) => refused,
        Err(other) => return Err(other.into()),
    };
    let (fault, status) = fault(refused)?;
    let again = asked_on(&app, &viewer, Some(id), Entered::refused(&Fields::default(), &fault))?;
    Ok((status, again).into_response())
}

fn recovery_codes(viewer: &Viewer, codes: &[String]) -> Response {
    let content = html! {
        p.lead { "Your second factor is on, and your other sessions have ended. Keep these recovery codes apart from your phone: each signs \
            you in once in place of a code. They are shown this once." }
        div.copyable.once data-shown-once {
            pre tabindex="0" aria-label="Your recovery codes" data-copy { (codes.join("\n")) }
            button type="button" data-copies { "Copy" }
        }
        p { a.button.primary data-done href=(YOU) { "I have kept them" } }
    };
    page(viewer, Section::Unlisted, "Recovery codes", &content)
}

/// Turns the second factor off.
pub(super) async fn disable(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
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

/// Returns the field of a refusal, and the status of the page that shows it.
fn fault(refused: MemberRefused) -> Result<(Fault, StatusCode), Failure> {
    let (field, status) = match refused {
        MemberRefused::WrongCode => ("code", StatusCode::FORBIDDEN),
        MemberRefused::WrongPresentPassword => ("present", StatusCode::FORBIDDEN),
        MemberRefused::TooManyCodes => ("code", StatusCode::TOO_MANY_REQUESTS),
        MemberRefused::TooManyAttempts => ("present", StatusCode::TOO_MANY_REQUESTS),
        other => return Err(Error::Refused(other).into()),
    };
    Ok((Fault::of(field, sentence(&refused.to_string())), status))
}

/// A code field of a page before the sign-in.
pub(super) fn asked_code() -> Markup {
    hinted(
        "code",
        "Code",
        "Six digits of your app, or a recovery code. Lost both? Ask an owner of the account.",
        &html! {
            input #code name="code" required autofocus autocomplete="one-time-code" spellcheck="false" aria-describedby="code-hint";
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_has_its_three_corners() {
        let picture = qr_code("otpauth://totp/Faregate:ann?secret=JBSWY3DPEHPK3PXP").into_string();
        // Version 4 has 33 modules to a side.
        assert!(picture.contains("viewBox=\"0 0 41 41\""), "{picture}");
        for corner in ["M4 4h", "M36 4h", "M4 36h"] {
            assert!(picture.contains(corner), "{corner}: {picture}");
        }
        assert!(!picture.contains("M5 5h"), "within a corner's border it is light");
        assert_eq!(qr_code(&"x".repeat(5_000)).into_string(), "");
    }
}
