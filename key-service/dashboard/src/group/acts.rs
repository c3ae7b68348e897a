//! Acts of owners on groups: making, changing and archiving them, and revoking all their keys.

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};
use shared::wire::GroupField;

use super::groups::{keys_in, path, tabbed};
use crate::tabs::Tab;
use domain::group::{Group, GroupPatch};
use key_service_management::governed::{Governed as _, Made};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::{Fields, query},
    layout::{Section, WayBack, confirmation, hidden, page},
    notice,
    object_page::{ObjectAct, ObjectPage},
    paths::GROUPS as PATH,
    session::{Act, KeysAct, KeysViewer, OwnerAct, Viewer},
    show::{count, name_of},
};
use key_service_settings::{
    limits,
    settings_form::{self, Edit, Offered, offered},
    words,
};

/// Shows the settings of a group to owners, and what its lead may do to its keys together.
pub(crate) async fn settings(
    ObjectPage { app, viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let now = app.management.now();
    let present = settings_form::entered(|field: GroupField| group.value(field, now));
    let raised = limits::raised_today(&present, query(&request).get("raise"), now);
    let filled = raised.as_ref().map(|(form, field)| Entered::new(form).focused(field));
    settings_tab(&app, &viewer, &group, filled).await
}

/// Writes the settings, with the fields of a form that was sent if there is one.
async fn settings_tab(
    app: &App,
    viewer: &Viewer,
    group: &Group,
    sent: Option<Entered<'_>>,
) -> Result<Response, Failure> {
    let content = html! {
        @if group.spend.archived_at.is_some() { p.empty { "The group is archived, for good." } }
        @else if !viewer.is_owner() {
            p.empty { "Owners change the settings of a group." }
            @if viewer.keeps_keys() { div.buttons { (revoking(group)) } }
        }
        @else { (forms(app, viewer, group, sent).await?) }
    };
    Ok(tabbed(group).show(viewer, Tab::Settings, &content))
}

async fn forms(
    app: &App,
    viewer: &Viewer,
    group: &Group,
    refused: Option<Entered<'_>>,
) -> Result<Markup, Failure> {
    let now = app.management.now();
    let value = |field: GroupField| group.value(field, now);
    let present = settings_form::entered(value);
    let entered = refused.unwrap_or(Entered::new(&present));
    let offered = parents(app, viewer, Some(group)).await?;
    Ok(html! {
        section.card {
            h2 { "Settings" }
            // A browser that reloads the page shows the stored values rather than those it kept.
            form.stack method="post" action=(path(group)) autocomplete="off" {
                (hidden(viewer))
                (settings_form::edit_fields::<GroupField>(entered, &present, &offered))
                (settings_form::other_settings(value))
                div.buttons { button.primary { "Save" } }
            }
        }
        section.card {
            h2 { "Danger zone" }
            p.quiet { "Archived, the group refuses all its requests, for good. Its keys can also be revoked together." }
            div.buttons {
                a.button.danger href={ (path(group)) "/archive" } { "Archive" }
                (revoking(group))
            }
        }
    })
}

fn revoking(group: &Group) -> Markup {
    html! { a.button.danger href={ (path(group)) "/revoke-keys" } { "Revoke all its keys" } }
}

/// Lists the groups that a form offers as parents of this group.
async fn parents(app: &App, viewer: &Viewer, of: Option<&Group>) -> Result<Offered, Failure> {
    let mut offered = offered(app, viewer).await?;
    // If there are more groups than are offered, an id can be typed in.
    if offered.has_all_groups {
        offered.groups.retain(|group| {
            let is_parent = of.is_some_and(|of| of.spend.parent == Some(group.id));
            is_parent || (group.spend.parent.is_none() && of.is_none_or(|of| of.id != group.id))
        });
    }
    Ok(offered)
}

/// Shows the form for a new group.
pub(crate) async fn new(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    asked(&app, &viewer, Entered::new(&Fields::default())).await
}

async fn asked(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Result<Response, Failure> {
    let offered = parents(app, viewer, None).await?;
    let content = html! {
        @if viewer.is_owner() {
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                (settings_form::new_fields::<GroupField>(entered, &offered))
                div.buttons { button.primary { "Create group" } a.button href=(PATH) { "Cancel" } }
            }
        } @else { p.empty { "Owners create groups. Your role is viewer." } }
    };
    Ok(page(viewer, Section::Groups, "New group", &content))
}

pub(crate) async fn create(
    State(app): State<App>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    if let Some(row) = limits::added_row(&form) {
        return asked(&app, &viewer, Entered::new(&form).focused(row)).await;
    }
    let made = match settings_form::read::<GroupPatch>(&form) {
        Ok(settings) => {
            let made = Group::create(viewer.by(&app), settings, None).await;
            made.map_err(|error| (settings_form::fault(&form, &error), Some(error)))
        }
        Err(fault) => Err((Some(fault), None)),
    };
    match made {
        Ok(Made::New(group, _)) => Ok(notice::done(&viewer, &path(&group), "The group is created.")),
        Ok(Made::Existing(group) | Made::Replayed(group)) => Ok(notice::done(
            &viewer,
            &path(&group),
            "This group has the external id already; nothing was changed.",
        )),
        Err((Some(fault), _)) => {
            Ok(refused_form(asked(&app, &viewer, Entered::refused(&form, &fault)).await?))
        }
        Err((None, error)) => Err(error.map_or(Failure::NotFound, Failure::from)),
    }
}

pub(crate) async fn update(
    ObjectAct { app, viewer, form, object: group, .. }: ObjectAct<Group>,
) -> Result<Response, Failure> {
    if let Some(row) = limits::added_row(&form) {
        return settings_tab(&app, &viewer, &group, Some(Entered::new(&form).focused(row))).await;
    }
    let now = app.management.now();
    let present = settings_form::entered(|field: GroupField| group.value(field, now));
    let again = async |form: &Fields, fault: &Fault| {
        Ok(refused_form(settings_tab(&app, &viewer, &group, Some(Entered::refused(form, fault))).await?))
    };
    let Edit { patch, overtaken } = match settings_form::read_edit::<GroupPatch>(&form, &present) {
        Ok(edit) => edit,
        Err(fault) => return again(&form, &fault).await,
    };
    let groups = offered(&app, &viewer).await?.groups;
    if let Some((form, fault)) = settings_form::ask::<GroupField>(&form, &present, &overtaken, &groups) {
        return again(&form, &fault).await;
    }
    match Group::update(viewer.by(&app), group.id, patch).await {
        Ok(changed) => {
            let values = |field: GroupField| [group.value(field, now), changed.value(field, now)];
            Ok(notice::done(&viewer, &format!("{}/settings", path(&group)), &words::saved(values, &groups)))
        }
        Err(error) => match settings_form::fault(&form, &error) {
            Some(fault) => again(&form, &fault).await,
            None => Err(error.into()),
        },
    }
}

/// Makes a page that asks before something is done to a group. `effects` says what follows.
fn question(viewer: &Viewer, group: &Group, title: &str, deed: &str, effects: &[&str]) -> Response {
    let question = html! { (title) " " strong { bdi { (name_of(group)) } } "?" };
    page(
        viewer,
        Section::Groups,
        deed,
        &confirmation(viewer, &question, effects, deed, WayBack { address: &path(group), name: "group" }),
    )
}

/// Explains what archiving does, before the group is archived.
pub(crate) async fn confirm_archiving(
    ObjectPage { viewer, object: group, .. }: ObjectPage<Group>,
) -> Result<Response, Failure> {
    let effects = [
        "The next request of each key in it, and in the groups in it, is refused, on every server.",
        "Streams are cut within five seconds; whole answers are finished.",
        "This cannot be undone. What was used stays on record.",
    ];
    Ok(question(&viewer, &group, "Archive", "Archive group", &effects))
}

pub(crate) async fn archive(
    ObjectAct { app, viewer, object: group, .. }: ObjectAct<Group>,
) -> Result<Response, Failure> {
    Group::end(viewer.by(&app), group.id).await?;
    Ok(notice::done(&viewer, &path(&group), "The group is archived."))
}

/// Explains what revoking all keys of a group does, before it is done.
pub(crate) async fn confirm_revoking(
    ObjectPage { viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
) -> Result<Response, Failure> {
    let number =
        format!("{} in it, revoked ones included; those of groups in it stay.", keys_in(&group, None));
    let effects = [
        number.as_str(),
        "Their next requests are refused, on every server; streams are cut within five seconds.",
        "This cannot be undone. The group stays, and takes new keys.",
    ];
    Ok(question(&viewer, &group, "Revoke all keys of", "Revoke all keys", &effects))
}

/// Revokes all keys of a group.
pub(crate) async fn revoke_keys(
    ObjectAct { app, viewer, object: group, .. }: ObjectAct<Group, KeysAct>,
) -> Result<Response, Failure> {
    let revoked = viewer.by(&app).revoke_keys(group.id).await?;
    let line = if revoked == 1 {
        "1 API key revoked.".into()
    } else {
        format!("{} API keys revoked.", count(revoked))
    };
    Ok(notice::done(&viewer, &path(&group), &line))
}
