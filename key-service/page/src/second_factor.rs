//! Shared parts of the pages that set up a second factor or ask for its code.

use http::StatusCode;
use maud::{Markup, html};
use qrcode::{Color, QrCode};
use shared::secret::ExposeSecret;

use crate::{
    entry::{Entered, Fault},
    failure::{Failure, sentence},
    shown::show::copyable_line,
    site::document::hinted,
};
use key_service_management::{
    Error,
    members::{MemberRefused, OfferedFactor},
};

/// Light modules around a QR code, which scanners require.
const QUIET_ZONE: usize = 4;

/// Shows a new secret, as a QR code and as text.
pub fn offer(OfferedFactor { id: _, secret, uri }: &OfferedFactor) -> Markup {
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

/// Renders the code field of a sign-in. `lost` says what to do without the app and the recovery codes.
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

/// Shows recovery codes, which no other page shows again. `next` is the path that the button leads to.
pub fn recovery_codes(codes: &[String], next: &str) -> Markup {
    html! {
        p.lead { "Your second factor is on, and your other sessions have ended. Keep these recovery codes somewhere other than your \
            phone: each replaces a code once. They are shown only now." }
        div.copyable.once data-shown-once {
            pre tabindex="0" aria-label="Your recovery codes" data-copy { (codes.join("\n")) }
            button type="button" data-copies { "Copy" }
        }
        p { a.button.primary data-done href=(next) { "I have saved them" } }
    }
}

/// Returns the fault for a refusal, and the status of the page that shows it.
pub fn fault(refused: MemberRefused) -> Result<(Fault, StatusCode), Failure> {
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
        // Version 4 has 33 modules to a side.
        assert!(picture.contains("viewBox=\"0 0 41 41\""), "{picture}");
        for corner in ["M4 4h", "M36 4h", "M4 36h"] {
            assert!(picture.contains(corner), "{corner}: {picture}");
        }
        assert!(!picture.contains("M5 5h"), "within a corner's border it is light");
        assert_eq!(qr_code(&"x".repeat(5_000)).into_string(), "");
    }
}
