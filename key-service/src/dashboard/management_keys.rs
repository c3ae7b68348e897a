//! The page of management keys: creation, the plaintext shown once, and revocation.

use std::collections::HashMap;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::{
    ids::{GroupId, ManagementKeyId},
    secret::{ExposeSecret, SecretString},
    text::is_invisible,
    time::Timestamp,
};

use super::{
    Desk,
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, hinted, page, problem},
    session::{OwnerAct, Viewer},
    show::{copyable, new_key, status, time, time_or},
};
use crate::{
    management::{
        Error,
        management_keys::{ManagementKeyRefused, ManagementKeySettings},
        once::Once,
    },
    store::ManagementKey,
};
use domain::{
    access::{Access, Scope},
    group::Group,
    key::Status,
};

/// Path of this page.
const PATH: &str = "/dashboard/management-keys";

/// Most characters of a name.
const MAX_NAME_CHARS: usize = 80;

/// Groups offered by name in the form, newest first. An id of any other can be typed in.
const OFFERED_GROUPS: usize = 200;

/// Lists the keys, with the form for a new key.
pub(super) async fn list(State(desk): State<Desk>, viewer: Viewer) -> Result<Response, Failure> {
    whole(&desk, &viewer, &Fields::default(), None).await
}

async fn whole(
    desk: &Desk,
    viewer: &Viewer,
    entered: &Fields,
    wrong: Option<&str>,
) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let keys = desk.management.management_keys(account).await?;
    let of_keys = keys.iter().filter_map(|key| key.access.group).collect();
    let named = desk.management.groups_by_id(account, of_keys).await?;
    let content = html! {
        p.lead { "A management key creates, changes and revokes API keys. It never makes model calls. One that reads changes nothing; one of a group reaches the keys of the group alone." }
        @if viewer.is_owner() {
            (form(desk, viewer, (entered, wrong), &desk.management.newest_groups(account, OFFERED_GROUPS).await?))
        }
        @if keys.is_empty() {
            p.empty { "There is no management key yet." }
        } @else {
            (table(viewer, &keys, &named, desk.management.now()))
        }
    };
    Ok(page(viewer, Section::ManagementKeys, "Management keys", &content))
}

fn form(desk: &Desk, viewer: &Viewer, (entered, wrong): (&Fields, Option<&str>), groups: &[Group]) -> Markup {
    let text = |name| entered.get(name);
    html! {
        form.stack.card method="post" action=(PATH) {
            (hidden(viewer))
            // A form sent twice creates a single key.
            input type="hidden" name="attempt" value=(desk.management.form_attempt());
            (problem(wrong))
            label { "Name" input name="name" required maxlength=(MAX_NAME_CHARS) value=(text("name"))
                autocomplete="off" placeholder="Deployment"; }
            label { "Scope" select name="scope" {
                @for (scope, does) in [(Scope::Full, "full: reads and changes"), (Scope::Read, "read: changes nothing")] {
                    option value=(scope.as_str()) selected[text("scope") == scope.as_str()] { (does) }
                }
            } }
            (hinted("group_id", "Group", "Its id: only API keys in it, and in groups in it. Empty: the whole account.", &html! {
                input id="group_id" name="group_id" value=(text("group_id")) list="groups" autocomplete="off"
                    placeholder="grp_…" aria-describedby="group_id-hint";
            }))
            datalist #groups { @for group in groups { option value=(group.id.to_string()) { (group.name) } } }
            (hinted("expires_at", "Expires", "In UTC. Empty: never.", &html! {
                input id="expires_at" type="datetime-local" name="expires_at" value=(text("expires_at"))
                    aria-describedby="expires_at-hint";
            }))
            div.buttons { button.primary { "Create management key" } }
        }
    }
}

/// Reads the settings, or describes the first fault.
fn read(form: &Fields) -> Result<ManagementKeySettings, String> {
    let name = form.get("name").trim();
    if !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) || name.chars().any(is_invisible) {
        return Err(format!("Name: give 1 to {MAX_NAME_CHARS} characters that can be seen."));
    }
    let scope = form.filled("scope").map_or(Some(Scope::Full), Scope::parse);
    let scope = scope.ok_or("Scope: choose full or read.")?;
    let group = form.filled("group_id").map(str::parse).transpose();
    let group = group.map_err(|_| "Group: give the id of a group, such as grp_….")?;
    let expires_at = form.filled("expires_at").map(Timestamp::parse);
    if expires_at == Some(None) {
        return Err("Expires: give a date and a time, such as 2027-12-31T23:59.".into());
    }
    let access = Access { scope, group };
    Ok(ManagementKeySettings { name: name.to_owned(), access, expires_at: expires_at.flatten() })
}

fn table(
    viewer: &Viewer,
    keys: &[ManagementKey],
    groups: &HashMap<GroupId, Group>,
    now: Timestamp,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Management keys" {
            table {
                thead { tr {
                    th scope="col" { "Name" } th.wide-only scope="col" { "Key" } th.wide-only scope="col" { "Scope" }
                    th.wide-only scope="col" { "Created" } th.wide-only scope="col" { "Expires" }
                    th.wide-only scope="col" { "Last used" } th.wide-only scope="col" { "Status" }
                    th scope="col" { span.hidden { "Revoke" } }
                } }
                tbody {
                    @for key in keys.iter().rev() {
                        tr.gone[key.status(now) != Status::Active] {
                            th scope="row" {
                                bdi { (key.name) }
                                p.narrow-only { code { (key.hint) } }
                                p.narrow-only { (access(key, groups)) }
                                p.narrow-only { (status(key.status(now))) " created " (time(key.created_at)) }
                                @if let Some(at) = key.expires_at { p.narrow-only { "expires " (time(at)) } }
                                p.narrow-only { "used " (time_or(key.last_used_at, "never")) }
                            }
                            td.wide-only { code { (key.hint) } }
                            td.wide-only { (access(key, groups)) }
                            td.wide-only { (time(key.created_at)) }
                            td.wide-only { (time_or(key.expires_at, "never")) }
                            td.wide-only { (time_or(key.last_used_at, "never")) }
                            td.wide-only { (status(key.status(now))) @if let Some(at) = key.revoked_at { " " (time(at)) } }
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

/// Scope of a key, and its group by name.
fn access(key: &ManagementKey, groups: &HashMap<GroupId, Group>) -> Markup {
    html! {
        (key.access.scope.as_str())
        @if let Some(id) = key.access.group {
            " in "
            @match groups.get(&id).filter(|group| !group.name.is_empty()) {
                Some(group) => bdi title=(id) { (group.name) },
                None => code { (id) },
            }
        }
    }
}

/// Creates a key, and shows the plaintext only this once.
pub(super) async fn create(State(desk): State<Desk>, act: OwnerAct) -> Result<Response, Failure> {
    let OwnerAct(act) = act;
    let (account, form) = (act.viewer.signed_in.account, &act.form);
    let refused = async |wrong: &str| {
        let again = whole(&desk, &act.viewer, form, Some(wrong)).await?;
        Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response())
    };
    let settings = match read(form) {
        Ok(settings) => settings,
        Err(wrong) => return refused(&wrong).await,
    };
    let (management, again) = (&desk.management, settings.clone());
    let actor = act.viewer.signed_in.actor();
    let made = if let Some(attempt) = form.filled("attempt") {
        management.create_management_key_once(account, again, attempt, actor).await
    } else {
        management.create_management_key(account, again, actor).await.map(Once::New)
    };
    let plaintext = match made {
        Ok(Once::New(plaintext)) => plaintext,
        Ok(Once::Replayed) => return Ok(Redirect::to(PATH).into_response()),
        Ok(Once::Stale) => return Err(Failure::StaleForm),
        Err(Error::Refused(ManagementKeyRefused::UnknownGroup)) => {
            return refused("Group: this account has no such group.").await;
        }
        Err(other) => return Err(other.into()),
    };
    let content = created(&settings, &plaintext, &act.viewer.browser.base());
    Ok(page(&act.viewer, Section::ManagementKeys, "Management key created", &content))
}

fn created(settings: &ManagementKeySettings, plaintext: &SecretString, base: &str) -> Markup {
    let call = format!(
        "curl {base}/v1/management/keys \\\n  -H 'Authorization: Bearer {}'",
        plaintext.expose_secret()
    );
    let body =
        " \\\n  -H 'Content-Type: application/json' \\\n  -d '{\"label\": \"Customer A\", \"limit\": 5}'";
    let (does, command) = match settings.access.scope {
        Scope::Full => ("This makes an API key that can spend five dollars:", call + body),
        Scope::Read => ("This lists the API keys:", call),
    };
    html! {
        p.lead { "Copy the key of " strong { bdi { (settings.name) } } " now. It is shown this once; only a hash of it is kept." }
        (new_key(plaintext))
        h2 { "First use" }
        p { (does) }
        (copyable("Command", &command))
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
