//! Creating, changing and archiving groups, and revoking all keys of a group.

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
    notice::{self, Undo},
    object_page::{ObjectAct, ObjectPage},
    paths::GROUPS as PATH,
    session::{Act, KeysAct, KeysViewer, OwnerAct, Viewer},
    show::{count, name_of},
};
use key_service_settings::{
    limits,
    settings_form::{self, Edit, Offered, offered},
    words::{self, Reader},
};

/// Shows the settings of a group to owners. A lead can only revoke all its keys here.
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

/// Renders the settings. If a form was sent, its fields keep what was entered.
async fn settings_tab(
    app: &App,
    viewer: &Viewer,
    group: &Group,
    sent: Option<Entered<'_>>,
) -> Result<Response, Failure> {
    let content = html! {
        @if group.spend.archived_at.is_some() { p.empty { "The group is archived, which cannot be undone." } }
        @else if !viewer.is_owner() {
            p.empty { "Only owners can change the settings of a group." }
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
    let zone = viewer.browser.zone();
    let entered = refused.unwrap_or(Entered::new(&present)).in_zone(&zone);
    let offered = parents(app, viewer, Some(group)).await?;
    Ok(html! {
        section.card {
            h2 { "Settings" }
            // `autocomplete=off`: after a reload, browsers would otherwise show what was typed instead of the stored
            // values.
            form.stack method="post" action=(path(group)) autocomplete="off" {
                (hidden(viewer))
                (settings_form::edit_fields::<GroupField>(entered, &present, &offered))
                (settings_form::other_settings(value))
                div.buttons { button.primary { "Save" } }
            }
        }
        section.card {
            h2 { "Danger zone" }
            p.quiet { "Once archived, the group refuses all requests for good. You can also revoke all its keys at once." }
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

/// Returns the groups that a form offers as parents of this group.
async fn parents(app: &App, viewer: &Viewer, of: Option<&Group>) -> Result<Offered, Failure> {
    let mut offered = offered(app, viewer).await?;
    // With more groups than a form offers, an id is typed in instead.
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
    let zone = viewer.browser.zone();
    let entered = entered.in_zone(&zone);
    let offered = parents(app, viewer, None).await?;
    let content = html! {
        @if viewer.is_owner() {
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                (settings_form::new_fields::<GroupField>(entered, &offered))
                div.buttons { button.primary { "Create group" } a.button href=(PATH) { "Cancel" } }
            }
        } @else { p.empty { "Only owners can create groups. Your role is viewer." } }
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
            made.map(|issued| issued.made).map_err(|error| (settings_form::fault(&form, &error), Some(error)))
        }
        Err(fault) => Err((Some(fault), None)),
    };
    match made {
        Ok(Made::New(group)) => Ok(notice::done(&viewer, &path(&group), "Group created.")),
        Ok(Made::Existing(group) | Made::Replayed(group)) => Ok(notice::done(
            &viewer,
            &path(&group),
            "This group already has that external id. Nothing was changed.",
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
    let (groups, zone) = (offered(&app, &viewer).await?.groups, viewer.browser.zone());
    let reader = Reader { groups: &groups, zone: &zone };
    if let Some((form, fault)) = settings_form::ask::<GroupField>(&form, &present, &overtaken, reader) {
        return again(&form, &fault).await;
    }
    match Group::update(viewer.by(&app), group.id, patch).await {
        Ok(changed) => {
            let values = |field: GroupField| [group.value(field, now), changed.value(field, now)];
            let after = settings_form::entered(|field: GroupField| changed.value(field, now));
            let undo = settings_form::undo::<GroupField>(&present, &after);
            let undo = undo.map(|fields| Undo { path: path(&group), fields });
            let line = words::saved(values, reader);
            Ok(notice::done_undoably(&viewer, &format!("{}/settings", path(&group)), &line, undo))
        }
        Err(error) => match settings_form::fault(&form, &error) {
            Some(fault) => again(&form, &fault).await,
            None => Err(error.into()),
        },
    }
}

/// Renders a page that asks for confirmation. `effects` describes what will happen.
fn question(viewer: &Viewer, group: &Group, title: &str, deed: &str, effects: &[&str]) -> Response {
    let question = html! { (title) " " strong { bdi { (name_of(group)) } } "?" };
    page(
        viewer,
        Section::Groups,
        deed,
        &confirmation(viewer, &question, effects, deed, WayBack { address: &path(group), name: "group" }),
    )
}

/// Explains what archiving does and asks for confirmation.
pub(crate) async fn confirm_archiving(
    ObjectPage { viewer, object: group, .. }: ObjectPage<Group>,
) -> Result<Response, Failure> {
    let effects = [
        "The next request of every key in the group and its subgroups is refused on every server.",
        "Streams are cut within five seconds, other answers are completed.",
        "This cannot be undone. What was spent stays on record.",
    ];
    Ok(question(&viewer, &group, "Archive", "Archive group", &effects))
}

pub(crate) async fn archive(
    ObjectAct { app, viewer, object: group, .. }: ObjectAct<Group>,
) -> Result<Response, Failure> {
    Group::end(viewer.by(&app), group.id).await?;
    Ok(notice::done(&viewer, &path(&group), "Group archived."))
}

/// Explains what revoking all keys of a group does and asks for confirmation.
pub(crate) async fn confirm_revoking(
    ObjectPage { viewer, object: group, .. }: ObjectPage<Group, KeysViewer>,
) -> Result<Response, Failure> {
    let number = format!(
        "{} in the group, including revoked ones. Subgroups are not affected.",
        keys_in(&group, None)
    );
    let effects = [
        number.as_str(),
        "Their next requests are refused on every server, and streams are cut within five seconds.",
        "This cannot be undone. The group itself stays and accepts new keys.",
    ];
    Ok(question(&viewer, &group, "Revoke all keys of", "Revoke all keys", &effects))
}

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
