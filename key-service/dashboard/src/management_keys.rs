//! Pages about management keys: the list, creating a key, its plaintext (shown once), and revoking a key.

use std::collections::HashMap;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{
    ids::GroupId,
    secret::{ExposeSecret, SecretString},
    text::is_name,
    time::Timestamp,
};

use domain::{
    access::{Access, Scope},
    group::{BadGroup, Group},
    key::Status,
};
use key_service_management::{
    Error,
    management_keys::{ManagementKeyRefused, ManagementKeySettings},
    once::Once,
};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::{Failure, bad_group},
    form::Fields,
    layout::{Section, WayBack, confirmation, hidden, page},
    notice,
    object_page::{ObjectAct, ObjectPage},
    paths::MANAGEMENT_KEYS as PATH,
    session::{OwnerAct, Viewer},
    show::{copyable, new_key, status, time, time_or},
    table::{Column, Row, Table, hidden_heading},
};
use key_service_settings::settings_form::{self, Offered, offered};
use key_service_store::store::ManagementKey;

const MAX_NAME_CHARS: usize = 80;

/// Lists the keys, with a form for a new key.
pub(super) async fn list(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    whole(&app, &viewer, Entered::new(&Fields::default())).await
}

async fn whole(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let keys = app.management.management_keys(account).await?;
    let of_keys = keys.iter().filter_map(|key| key.access.group).collect();
    let named = app.management.groups_by_id(viewer.reach(), of_keys).await?;
    let now = app.management.now();
    let (revoked, live): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.revoked_at.is_some());
    let content = html! {
        p.lead { "Management keys create, change and revoke API keys through the management API. They cannot make model calls. A key with scope read changes nothing, and a key limited to a group sees only that group." }
        @if live.is_empty() { p.empty { "There are no management keys yet." } }
        @else { (table(viewer, &live, &named, now)) }
        @if !revoked.is_empty() {
            details {
                summary { "Revoked (" (revoked.len()) ")" }
                (table(viewer, &revoked, &named, now))
            }
        }
        @if viewer.is_owner() {
            h2 { "New management key" }
            (form(app, viewer, entered.in_zone(&viewer.browser.zone()), &offered(app, viewer).await?))
        }
    };
    Ok(page(viewer, Section::ManagementKeys, "Management keys", &content))
}

fn form(app: &App, viewer: &Viewer, entered: Entered<'_>, offered: &Offered) -> Markup {
    html! {
        form.stack.card method="post" action=(PATH) {
            (hidden(viewer))
            // An idempotency key: a form that is sent twice creates one key.
            input type="hidden" name="attempt" value=(app.management.form_attempt());
            (entered.field("name", "Name", "", |entry| html! {
                input id=(entry.name) name=(entry.name) required maxlength=(MAX_NAME_CHARS) value=(entry.value)
                    autocomplete="off" placeholder="Deployment" aria-describedby=[&entry.described]
                    aria-invalid=[entry.invalid] autofocus[entry.has_focus];
            }))
            (entered.field("scope", "Scope", "", |entry| html! {
                select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid] {
                    @for (scope, does) in [(Scope::Full, "full: reads and changes"), (Scope::Read, "read: changes nothing")] {
                        option value=(scope.as_str()) selected[entry.value == scope.as_str()] { (does) }
                    }
                }
            }))
            (settings_form::group("group_id", "Group", "Limits the key to this group and its subgroups. Leave empty for the whole account.", entered, offered))
            (entered.instant("expires_at", "Expires", "Leave empty to never expire.", &settings_form::later(offered.now)))
            div.buttons { button.primary { "Create management key" } }
        }
    }
}

fn read(form: &Fields) -> Result<ManagementKeySettings, Fault> {
    let name = form.get("name").trim();
    if !is_name(name, MAX_NAME_CHARS) {
        return Err(Fault::of("name", format!("Enter 1 to {MAX_NAME_CHARS} visible characters.")));
    }
    let scope = form.filled("scope").map_or(Some(Scope::Full), Scope::parse);
    let scope = scope.ok_or_else(|| Fault::of("scope", "Choose full or read."))?;
    let group = form.filled("group_id").map(str::parse).transpose();
    let group = group.map_err(|_| Fault::of("group_id", "Enter the id of a group, such as grp_…."))?;
    let expires_at = form.filled("expires_at").map(Timestamp::parse);
    if expires_at == Some(None) {
        return Err(Fault::of("expires_at", "Enter a date and time, such as 2027-12-31T23:59."));
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
    let columns = [
        Column::new("Name", ""),
        Column::new("Key", "wide-only"),
        Column::new("Scope", "wide-only"),
        Column::new("Created", "wide-only"),
        Column::new("Expires", "wide-only"),
        Column::new("Last used", "wide-only"),
        Column::new("Status", "wide-only"),
        Column::new(hidden_heading("Revoke"), "act"),
    ];
    let row = |key: &ManagementKey| {
        let (access, used) = (access(key, groups), time_or(key.last_used_at, "never"));
        let status = html! { (status(key.status(now))) @if let Some(at) = key.revoked_at { " " (time(at)) } };
        let name = html! {
            bdi { (key.name) }
            p.narrow-only { code { (key.hint) } }
            p.narrow-only { "scope " (access) }
            p.narrow-only { (status) }
            p.narrow-only { "created " (time(key.created_at)) }
            @if let Some(at) = key.expires_at { p.narrow-only { "expires " (time(at)) } }
            p.narrow-only { "used " (used) }
        };
        let revoke = html! {
            @if key.revoked_at.is_none() && viewer.is_owner() {
                a.button.danger href={ (PATH) "/" (key.id.to_string()) "/revoke" } {
                    "Revoke" span.hidden { " " (key.name) }
                }
            }
        };
        let hint = html! { code { (key.hint) } };
        let (created, expires) = (time(key.created_at), time_or(key.expires_at, "never"));
        Row::new([name, hint, access, created, expires, used, status, revoke])
            .class("gone", key.status(now) != Status::Active)
    };
    Table::new("Management keys", columns).rows(keys.iter().rev().map(row))
}

/// Shows a key's scope and the name of its group.
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

/// Creates a key and shows its plaintext, which is never shown again.
pub(super) async fn create(State(app): State<App>, act: OwnerAct) -> Result<Response, Failure> {
    let OwnerAct(act) = act;
    let (account, form) = (act.viewer.signed_in.account, &act.form);
    let refused = async |fault: &Fault| {
        Ok(refused_form(whole(&app, &act.viewer, Entered::refused(form, fault)).await?))
    };
    let settings = match read(form) {
        Ok(settings) => settings,
        Err(fault) => return refused(&fault).await,
    };
    let (management, again) = (&app.management, settings.clone());
    let actor = act.viewer.signed_in.actor();
    let made = if let Some(attempt) = form.filled("attempt") {
        management.create_management_key_once(account, again, attempt, actor).await
    } else {
        management.create_management_key(account, again, actor).await.map(Once::New)
    };
    let plaintext = match made {
        Ok(Once::New(plaintext)) => plaintext,
        Ok(Once::Replayed) => {
            return Ok(notice::done(
                &act.viewer,
                PATH,
                "This form was already submitted and created this key.",
            ));
        }
        Ok(Once::Stale) => return Err(Failure::StaleForm),
        Err(Error::Refused(ManagementKeyRefused::UnknownGroup)) => {
            return refused(&Fault::of("group_id", bad_group(BadGroup::Unknown))).await;
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
        Scope::Full => ("This creates an API key that can spend five dollars:", call + body),
        Scope::Read => ("This lists the API keys:", call),
    };
    html! {
        p.lead { "Copy the key of " strong { bdi { (settings.name) } } " now. It is shown only once, since only a hash of it is stored." }
        (new_key(plaintext))
        p { a.button.primary data-done href=(PATH) { "I have copied it" } }
        h2 { "First use" }
        p { (does) }
        (copyable("Command", &command))
    }
}

/// Explains what revoking does and asks for confirmation.
pub(super) async fn confirm(
    ObjectPage { viewer, object: key, .. }: ObjectPage<ManagementKey>,
) -> Result<Response, Failure> {
    let effects = [
        "Its next request is refused on every server.",
        "API keys that it created keep working.",
        "This cannot be undone.",
    ];
    let question = html! { "Revoke " strong { bdi { (key.name) } } " (" code { (key.hint) } ")?" };
    let content = html! {
        @if let Some(at) = key.revoked_at {
            p.lead { strong { bdi { (key.name) } } " (" code { (key.hint) } ") was revoked " (time(at)) "." }
            p { a.button href=(PATH) { "Back to the management keys" } }
        } @else { (confirmation(&viewer, &question, &effects, "Revoke", WayBack { address: PATH, name: "management keys" })) }
    };
    Ok(page(&viewer, Section::ManagementKeys, "Revoke a management key", &content))
}

pub(super) async fn revoke(
    ObjectAct { app, viewer, object: key, .. }: ObjectAct<ManagementKey>,
) -> Result<Response, Failure> {
    app.management.revoke_management_key(key.id, viewer.signed_in.actor()).await?;
    Ok(notice::done(&viewer, PATH, &format!("The management key {} is revoked.", key.name)))
}
