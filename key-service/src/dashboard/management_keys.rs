//! The page of management keys: creation, the plaintext shown once, and revocation.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::{
    ids::ManagementKeyId,
    secret::{ExposeSecret, SecretString},
    text::is_invisible,
};

use super::{
    Desk,
    failure::Failure,
    layout::{Section, hidden, page, problem},
    session::{OwnerAct, Viewer},
    show::{copyable, new_key, time},
};
use crate::{management::accounts::CreatedManagementKey, store::ManagementKey};

/// Path of this page.
const PATH: &str = "/dashboard/management-keys";

/// Most characters of a name.
const MAX_NAME_CHARS: usize = 80;

/// Lists the keys, with the form for a new key.
pub(super) async fn list(State(desk): State<Desk>, viewer: Viewer) -> Result<Response, Failure> {
    let keys = desk.management.management_keys(viewer.signed_in.account).await?;
    Ok(page(&viewer, Section::ManagementKeys, "Management keys", &listing(&desk, &viewer, &keys, ("", None))))
}

fn listing(
    desk: &Desk,
    viewer: &Viewer,
    keys: &[ManagementKey],
    (entered, wrong): (&str, Option<&str>),
) -> Markup {
    html! {
        p.lead { "A management key creates, changes and revokes API keys. It never makes model calls." }
        @if viewer.is_owner() {
            form.row.card method="post" action=(PATH) {
                (hidden(viewer))
                // A form sent twice creates a single key.
                input type="hidden" name="attempt" value=(desk.management.management_key_attempt());
                (problem(wrong))
                label { "Name" input name="name" required maxlength=(MAX_NAME_CHARS) value=(entered)
                    autocomplete="off" placeholder="Deployment"; }
                button.primary { "Create management key" }
            }
        }
        @if keys.is_empty() {
            p.empty { "There is no management key yet." }
        } @else {
            (table(viewer, keys))
        }
    }
}

fn table(viewer: &Viewer, keys: &[ManagementKey]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Management keys" {
            table {
                thead { tr {
                    th scope="col" { "Name" } th.wide-only scope="col" { "Key" }
                    th.wide-only scope="col" { "Created" } th.wide-only scope="col" { "Status" } th scope="col" { span.hidden { "Revoke" } }
                } }
                tbody {
                    @for key in keys.iter().rev() {
                        tr.gone[key.revoked_at.is_some()] {
                            th scope="row" {
                                bdi { (key.name) }
                                p.narrow-only { code { (key.hint) } }
                                p.narrow-only { (status(key)) " created " (time(key.created_at)) }
                            }
                            td.wide-only { code { (key.hint) } }
                            td.wide-only { (time(key.created_at)) }
                            td.wide-only { (status(key)) }
                            td.act {
                                @if key.revoked_at.is_none() && viewer.is_owner() {
                                    a.button.danger href={ (PATH) "/" (key.id.to_string()) "/revoke" } {
                                        "Revoke" span.hidden { " " (key.name) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn status(key: &ManagementKey) -> Markup {
    html! {
        @match key.revoked_at {
            Some(at) => { span.badge.revoked { "revoked" } " " (time(at)) },
            None => span.badge.active { "active" },
        }
    }
}

/// Creates a key, and shows the plaintext only this once.
pub(super) async fn create(State(desk): State<Desk>, act: OwnerAct) -> Result<Response, Failure> {
    let OwnerAct(act) = act;
    let (account, name) = (act.viewer.signed_in.account, act.form.get("name").trim());
    let fits = (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !name.chars().any(is_invisible);
    if !fits {
        let keys = desk.management.management_keys(account).await?;
        let wrong = format!("Name: give 1 to {MAX_NAME_CHARS} characters that can be seen.");
        let content = listing(&desk, &act.viewer, &keys, (name, Some(&wrong)));
        let again = page(&act.viewer, Section::ManagementKeys, "Management keys", &content);
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response());
    }
    let actor = act.viewer.signed_in.actor();
    let made = match act.form.filled("attempt") {
        Some(attempt) => desk.management.create_management_key_once(account, name, attempt, actor).await?,
        None => CreatedManagementKey::New(desk.management.create_management_key(account, name, actor).await?),
    };
    let plaintext = match made {
        CreatedManagementKey::New(plaintext) => plaintext,
        CreatedManagementKey::Replayed => return Ok(Redirect::to(PATH).into_response()),
        CreatedManagementKey::Stale => return Err(Failure::StaleForm),
    };
    let content = created(name, &plaintext, &act.viewer.browser.base());
    Ok(page(&act.viewer, Section::ManagementKeys, "Management key created", &content))
}

fn created(name: &str, plaintext: &SecretString, base: &str) -> Markup {
    let curl = format!(
        "curl {base}/v1/management/keys \\\n  -H 'Authorization: Bearer {}' \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{{\"label\": \"Customer A\", \"limit\": 5}}'",
        plaintext.expose_secret()
    );
    html! {
        p.lead { "Copy the key of " strong { bdi { (name) } } " now. It is shown this once; only a hash of it is kept." }
        (new_key(plaintext))
        h2 { "First use" }
        p { "This makes an API key that can spend five dollars:" }
        (copyable("Command", &curl))
        p { a.button data-done href=(PATH) { "I have copied it" } }
    }
}

async fn named(desk: &Desk, viewer: &Viewer, id: &str) -> Result<ManagementKey, Failure> {
    let id: ManagementKeyId = id.parse().map_err(|_| Failure::NotFound)?;
    Ok(desk.management.management_key(viewer.signed_in.account, id).await?)
}

/// Explains the effect of revoking, before the key is revoked.
pub(super) async fn confirm(
    State(desk): State<Desk>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let key = named(&desk, &viewer, &id).await?;
    let content = html! {
        p.lead { "Revoke " strong { bdi { (key.name) } } " (" code { (key.hint) } ")?" }
        ul {
            li { "Its next request is refused, on every server." }
            li { "API keys that it made go on working." }
            li { "This cannot be undone." }
        }
        @if viewer.is_owner() && key.revoked_at.is_none() {
            form.buttons method="post" {
                (hidden(&viewer))
                button.danger { "Revoke" }
                a.button href=(PATH) { "Keep it" }
            }
        }
    };
    Ok(page(&viewer, Section::ManagementKeys, "Revoke a management key", &content))
}

/// Revokes a key.
pub(super) async fn revoke(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(act): OwnerAct,
) -> Result<Response, Failure> {
    let key = named(&desk, &act.viewer, &id).await?;
    desk.management.revoke_management_key(key.id, act.viewer.signed_in.actor()).await?;
    Ok(Redirect::to(PATH).into_response())
}
