//! Rotating an API key: a confirmation, then the new plaintext, shown once.

use std::time::Duration;

use axum::response::Response;
use maud::html;

use domain::key::{ApiKey, Status};
use key_service_management::{governed::Issued, rotation::RotationTerms};
use key_service_page::{
    browser::form_token,
    failure::Failure,
    layout::{Section, hidden, page},
    notice,
    object_page::{ObjectAct, ObjectPage},
    paths::KEYS as PATH,
    session::{KeysAct, KeysViewer},
    show::{new_key, or_unnamed, time},
};

/// Grace periods to choose from, in seconds.
const GRACES: [(u64, &str); 5] = [
    (0, "at once"),
    (3_600, "in an hour"),
    (86_400, "in a day"),
    (604_800, "in a week"),
    (2_592_000, "in 30 days"),
];

/// Preselected grace period: enough time to replace the key wherever it is used.
const USUAL_GRACE: u64 = 86_400;

/// Explains what rotating does and asks for confirmation. A revoked or expired key cannot be rotated; a disabled one
/// can.
pub(crate) async fn show(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
) -> Result<Response, Failure> {
    let now = app.management.now();
    let (previous_until, back) = (key.previous_expires_at(now), format!("{PATH}/{}/settings", key.id));
    let is_rotated = matches!(key.status(now), Status::Active | Status::Disabled);
    let content = html! {
        @if viewer.keeps_keys() && is_rotated {
            p.lead { "Give " strong { (or_unnamed(&key.label)) } " (" code { (key.hint) } ") a new key?" }
            ul {
                li { "The new key is shown once. Limits, spend and id stay the same." }
                @match previous_until {
                    Some(until) => li { "The previous key works until " (time(until)) ". Rotating again ends it at once." },
                    None => li { "The current key keeps working for as long as you choose here." },
                }
            }
            form.stack method="post" {
                (hidden(&viewer))
                // An idempotency key: a form that is sent twice rotates once.
                input type="hidden" name="attempt" value=(form_token(&app.management.visit()));
                @if previous_until.is_some() { input type="hidden" name="force" value="true"; }
                label { "Old key stops working" select name="grace_seconds" {
                    @for (seconds, name) in GRACES { option value=(seconds) selected[seconds == USUAL_GRACE] { (name) } }
                } }
                div.buttons { button.primary { "Rotate" } a.button href=(back) { "Cancel" } }
            }
        } @else {
            p.lead { @if is_rotated { "Only owners can do this. Your role is viewer." } @else { "A revoked or expired key cannot be rotated." } }
            p { a.button href=(back) { "Back to the key" } }
        }
    };
    Ok(page(&viewer, Section::Keys, "Rotate an API key", &content))
}

/// Rotates a key and shows its new plaintext, which is never shown again.
pub(crate) async fn rotate(
    ObjectAct { app, viewer, form, object: key, .. }: ObjectAct<ApiKey, KeysAct>,
) -> Result<Response, Failure> {
    let chosen = GRACES.iter().find(|(seconds, _)| form.get("grace_seconds") == seconds.to_string());
    let (seconds, _) = chosen.ok_or_else(|| {
        Failure::BadRequest(
            "This form did not come from a page of this site. Open the page again and retry.".into(),
        )
    })?;
    let terms =
        RotationTerms { grace: Duration::from_secs(*seconds), is_forced: form.get("force") == "true" };
    let attempt = Some(format!("dashboard-{}", form.attempt()?));
    let Issued { made, secret } = viewer.by(&app).rotate(key.id, terms, attempt).await?;
    let key = made.into_inner();
    match secret {
        None => Ok(notice::done(
            &viewer,
            &format!("{PATH}/{}", key.id),
            "This form was already submitted and rotated this key.",
        )),
        Some(plaintext) => {
            let content = html! {
                p.lead { "Copy the new key of " strong { (or_unnamed(&key.label)) } " now. It is shown only once, since only a hash of it is stored." }
                (new_key(&plaintext))
                @match key.previous_expires_at(app.management.now()) {
                    Some(until) => p { "The previous key works until " (time(until)) "." },
                    None => p { "The previous key is refused from now on." },
                }
                p { a.button data-done href={ (PATH) "/" (key.id.to_string()) } { "I have copied it" } }
            };
            Ok(page(&viewer, Section::Keys, "API key rotated", &content))
        }
    }
}
