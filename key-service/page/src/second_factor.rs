//! Shared parts of the pages that set up a second factor or ask for its code.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use qrcode::{Color, QrCode};
use shared::{secret::ExposeSecret, text::sentence};

use crate::{
    app::App,
    area::Area,
    entry::{Entered, Fault},
    failure::Failure,
    form::Fields,
    format::show::copyable_line,
    layouts::frame::hidden,
    site::document::hinted,
    visitors::person::{ActOf, Person},
};
use domain::{member::PasswordCondition, second_factor::FactorId};
use key_service_management::{
    Error,
    members::{MemberRefused, OfferedFactor},
};

/// Width in modules of the light margin around a QR code. Scanners require this margin.
const QUIET_ZONE: usize = 4;

/// Renders a new secret as a QR code and as text.
fn offer(OfferedFactor { id: _, secret, uri }: &OfferedFactor) -> Markup {
    html! {
        p.lead { "Scan this with an authenticator app, then enter the code that the app shows." }
        (qr_code(uri.expose_secret()))
        (copyable_line("Or enter the secret by hand:", secret.expose_secret()))
        p { a href=(uri.expose_secret()) { "Open in an app on this device" } }
    }
}

/// Renders a field for a second-factor code.
pub fn code_field(entered: Entered<'_>, hint: &str) -> Markup {
    entered.field("code", "Code", hint, |entry| {
        html! {
            input id=(entry.name) name=(entry.name) required autocomplete="one-time-code" spellcheck="false"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Renders a field for the current password.
pub fn present_password(entered: Entered<'_>, hint: &str) -> Markup {
    entered.field("present", "Current password", hint, |entry| {
        html! {
            input id=(entry.name) type="password" name=(entry.name) required autocomplete="current-password"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Renders the form that offers a secret and asks for a first code. It requires a fresh session or the password, so
/// that a stolen cookie is not enough to set up a second factor.
pub fn asked_on<A: Area>(app: &App, person: &A::Person) -> Result<Response, Failure> {
    offered::<A>(app, person, None, Entered::new(&Fields::default()))
}

fn offered<A: Area>(
    app: &App,
    person: &A::Person,
    id: Option<FactorId>,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let offered = app.management.offered_factor(person.signed_in(), A::issued_for(person), id)?;
    let condition = app.management.password_condition(person.signed_in());
    let content = html! {
        (A::factor_lead(condition == PasswordCondition::FreshSignIn))
        @if condition != PasswordCondition::FreshSignIn {
            (offer(&offered))
            form.stack method="post" action=(A::SECOND_FACTOR) {
                (hidden(person))
                input type="hidden" name="factor" value=(offered.id.to_string());
                @if condition == PasswordCondition::PresentPassword { (present_password(entered, "")) }
                (code_field(entered, "Six digits."))
                div.buttons {
                    button.primary { "Turn on" }
                    @if let Some(page) = A::WITHOUT_SECOND_FACTOR { a.button href=(page) { "Cancel" } }
                }
            }
        }
    };
    Ok(A::page(person, "Second factor", &content))
}

/// Turns on the second factor, and shows the recovery codes, which are never shown again.
pub async fn enable<A: Area>(
    State(app): State<App>,
    ActOf { viewer, form }: ActOf<A::Person>,
) -> Result<Response, Failure> {
    let id = FactorId::parse(form.get("factor")).ok_or(Failure::NotFound)?;
    let (code, present) = (form.get("code"), form.get("present").into());
    match app.management.enable_second_factor(viewer.signed_in(), id, code, present).await {
        Ok(codes) => Ok(A::page(&viewer, "Recovery codes", &recovery_codes(&codes, A::AFTER_SECOND_FACTOR))),
        Err(error) => {
            let (fault, status) = fault(error)?;
            let again = offered::<A>(&app, &viewer, Some(id), Entered::refused(&Fields::default(), &fault))?;
            Ok((status, again).into_response())
        }
    }
}

/// Renders the code field of a sign-in. `lost` tells someone who has neither the app nor the recovery codes what to do.
pub fn asked_code(lost: &str) -> Markup {
    let hint = format!("Six digits from your app, or a recovery code. {lost}");
    hinted(
        "code",
        "Code",
        &hint,
        &html! {
            input #code name="code" required autofocus autocomplete="one-time-code" spellcheck="false" aria-describedby="code-hint";
        },
    )
}

/// Renders recovery codes, which no other page shows again. `next` is the path to which the button leads.
fn recovery_codes(codes: &[String], next: &str) -> Markup {
    html! {
        p.lead { "Your second factor is on, and your other sessions have ended. Keep these recovery codes somewhere other than your \
            phone: each can be entered once instead of a code. They are shown only now." }
        div.copyable.once data-shown-once {
            pre tabindex="0" aria-label="Your recovery codes" data-copy { (codes.join("\n")) }
            button type="button" data-copies { "Copy" }
        }
        p { a.button.primary data-done href=(next) { "I have saved them" } }
    }
}

/// Returns the fault that explains a refusal, and the status of the page with this fault.
pub fn fault(error: Error<MemberRefused>) -> Result<(Fault, StatusCode), Failure> {
    let refused = match error {
        Error::Refused(refused) => refused,
        Error::Store(unavailable) => return Err(unavailable.into()),
    };
    let (field, status) = match refused {
        MemberRefused::WrongCode => ("code", StatusCode::FORBIDDEN),
        MemberRefused::WrongPresentPassword => ("present", StatusCode::FORBIDDEN),
        MemberRefused::TooManyCodes => ("code", StatusCode::TOO_MANY_REQUESTS),
        MemberRefused::TooManyAttempts => ("present", StatusCode::TOO_MANY_REQUESTS),
        other => return Err(Error::Refused(other).into()),
    };
    Ok((Fault::of(field, sentence(&refused.to_string())), status))
}

/// Draws a QR code, or nothing if the text is too long.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_has_its_three_corners() {
        let picture = qr_code("otpauth://totp/Faregate:ann?secret=JBSWY3DPEHPK3PXP").into_string();
        // A QR code of version 4 has 33 modules on each side.
        assert!(picture.contains("viewBox=\"0 0 41 41\""), "{picture}");
        for corner in ["M4 4h", "M36 4h", "M4 36h"] {
            assert!(picture.contains(corner), "{corner}: {picture}");
        }
        assert!(!picture.contains("M5 5h"), "within a corner's border it is light");
        assert_eq!(qr_code(&"x".repeat(5_000)).into_string(), "");
    }
}
