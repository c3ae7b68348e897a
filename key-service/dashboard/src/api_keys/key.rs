//! The page of an API key: limits, spend, requests and settings, and revoking the key.

use axum::{extract::Request, response::Response};
use maud::{Markup, html};
use shared::{time::Timestamp, wire::KeyField};

use crate::{
    activity,
    api_keys::{first_steps, keys::badges, place::place},
    events::{self, Subject},
    refused,
    tabs::{Tab, TabbedPage},
};
use domain::{
    group::Group,
    key::{ApiKey, KeyPatch, Status},
    ledger::Holder,
};
use key_service_management::governed::Governed as _;
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::{Fields, PageAddress, query},
    layout::{Section, WayBack, confirmation, hidden, page},
    notice::{self, Undo},
    object_page::{ObjectAct, ObjectPage},
    paths::{GROUPS, KEYS as PATH},
    session::{KeysAct, KeysViewer, Viewer},
    show::{copyable_line, count, name_of, or_unnamed, time, time_or, usd},
    zone::Zone,
};
use key_service_ranges::spend::{SpendScope, SpendView};
use key_service_settings::{
    budget::gauge,
    key_line::key_line,
    limits,
    settings_form::{self, Edit, offered},
    words::{self, Reader},
};

/// Shows a key at a glance: limits, spend, and the latest requests and events.
pub(crate) async fn show(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let (reach, now) = (viewer.reach(), app.management.now());
    let (today, path, query) = (viewer.today(&app), path(&key), query(&request));
    let view = SpendView::of(&query, SpendScope::Key(key.id), &today);
    let report = view.read(&app, reach).await?;
    let reached = app.management.reached_limits(reach, std::slice::from_ref(&key), &[]).await?;
    let groups = reached.groups_of(&key);
    let is_revoked = key.status(now) == Status::Revoked;
    let refused = app.management.refused_lately(reach.account, Some(key.id)).await?;
    let content = html! {
        p.lead { (badges(&key, reached.of_key(&key), now, false)) " " code { (key.hint) } " · created " (time(key.created_at))
            " · last used " (time_or(key.spend.last_used_at, "never"))
            @if let Some(at) = key.spend.expires_at { " · expires " (time(at)) }
            @if let Some(at) = key.spend.revoked_at { " · revoked " (time(at)) } }
        (key_line(&viewer, &key, &reached))
        (refused::notice(&refused, false))
        (bounds(&key, &groups, now, &today.zone))
        (models_note(&app, &key, &groups))
        (gauge(&viewer, Holder::Key(key.id, None), &key.spend.budget, &groups, &reached, is_revoked))
        (view.range.choice(&app, &path, &query))
        (view.tiles(&report, today.day, None))
        (view.card(&app, reach, PageAddress { path: &path, query: &query }, &report).await?)
        (activity::latest(&app, &viewer, Some(key.id), None).await?)
        (events::last_events(&app, &viewer, Subject::Key(key.id)).await?)
        (copyable_line("Id", &key.id.to_string()))
    };
    Ok(tabbed(&viewer, &key).show(&viewer, Tab::Overview, &content))
}

fn path(key: &ApiKey) -> String {
    format!("{PATH}/{}", key.id)
}

fn tabbed(viewer: &Viewer, key: &ApiKey) -> TabbedPage {
    let title = if key.label.is_empty() { "Key without a label".to_owned() } else { key.label.clone() };
    TabbedPage {
        section: Section::Keys,
        title,
        path: path(key),
        filter: "key",
        id: key.id.to_string(),
        acts: acts(viewer, key),
    }
}

/// Links to actions on the key, for members who may change it.
fn acts(viewer: &Viewer, key: &ApiKey) -> Markup {
    html! {
        @if viewer.keeps_keys() && key.spend.revoked_at.is_none() {
            a href={ (PATH) "/new?like=" (key.id.to_string()) } { "Duplicate" }
            a href={ (path(key)) "/rotate" } { "Rotate" }
            a.danger href={ (path(key)) "/revoke" } { "Revoke" }
            (switch(viewer, key))
        }
    }
}

/// Renders the switch that enables or disables the key at once.
fn switch(viewer: &Viewer, key: &ApiKey) -> Markup {
    let (is_on, next) = if key.spend.disabled { ("false", "true") } else { ("true", "false") };
    html! {
        form method="post" action={ (path(key)) "/enabled" } {
            (hidden(viewer))
            button.switch role="switch" name="enabled" value=(next) aria-checked=(is_on) { "Enabled" }
        }
    }
}

/// Enables or disables the key.
pub(crate) async fn set_enabled(
    ObjectAct { app, viewer, form, object: key, .. }: ObjectAct<ApiKey, KeysAct>,
) -> Result<Response, Failure> {
    let is_disabled = form.get("enabled") != "true";
    let change = KeyPatch { disabled: Some(is_disabled), ..KeyPatch::default() };
    ApiKey::update(viewer.by(&app), key.id, change).await?;
    let line = if is_disabled {
        "The key is disabled. Its requests are refused until you enable it again."
    } else {
        "The key is enabled."
    };
    Ok(notice::done(&viewer, &path(&key), line))
}

pub(crate) async fn requests(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    tabbed(&viewer, &key).requests(&app, &viewer, &query(&request)).await
}

/// Shows the settings of a key to members who may change them. `?raise=` fills in a raise for the rest of the day.
pub(crate) async fn settings(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let now = app.management.now();
    let present = settings_form::entered(|field: KeyField| key.value(field, now));
    let raised = limits::raised_today(&present, query(&request).get("raise"), now);
    let filled = raised.as_ref().map(|(form, field)| Entered::new(form).focused(field));
    settings_tab(&app, &viewer, &key, filled).await
}

/// Renders the settings. If a form was sent, its fields keep what was entered.
async fn settings_tab(
    app: &App,
    viewer: &Viewer,
    key: &ApiKey,
    sent: Option<Entered<'_>>,
) -> Result<Response, Failure> {
    let content = html! {
        @if key.spend.revoked_at.is_some() { p.empty { "The key is revoked, so its settings can no longer be changed." } }
        @else if !viewer.keeps_keys() { p.empty { "Only owners can change settings. Your role is viewer." } }
        @else { (forms(app, viewer, key, sent).await?) }
    };
    Ok(tabbed(viewer, key).show(viewer, Tab::Settings, &content))
}

/// Shows commands to paste that use the key.
pub(crate) async fn use_it(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
    request: Request,
) -> Result<Response, Failure> {
    let reached = app.management.reached_limits(viewer.reach(), std::slice::from_ref(&key), &[]).await?;
    let models = first_steps::models(&app.catalog.get(), &lists(&key, &reached.groups_of(&key)));
    let (path, query) = (format!("{}/use", path(&key)), query(&request));
    let address = PageAddress { path: &path, query: &query };
    let content = html! {
        @if key.spend.revoked_at.is_some() { p.problem { "The key is revoked. Its requests are refused." } }
        (first_steps::commands_of_known_key(&viewer.browser.base(), &models, address))
    };
    Ok(tabbed(&viewer, &key).show(&viewer, Tab::UseIt, &content))
}

/// Summarises in a sentence what the limits of the key and its groups allow together.
fn bounds(key: &ApiKey, groups: &[&Group], now: Timestamp, zone: &Zone) -> Markup {
    let sentence = words::bounds(&key.spend.budget, groups, now, zone);
    html! {
        @if let Some(group) = groups.first() {
            p { "In the group " a href={ (GROUPS) "/" (group.id.to_string()) } { bdi { (name_of(group)) } } "." }
        }
        @if !sentence.is_empty() { p { (sentence) } }
    }
}

/// Returns the lists of allowed models that apply to a key.
fn lists<'a>(key: &'a ApiKey, groups: &[&'a Group]) -> Vec<&'a Vec<String>> {
    let of_groups = groups.iter().map(|group| &group.spend.budget);
    std::iter::once(&key.spend.budget).chain(of_groups).filter_map(words::list_of).collect()
}

/// Warns about allowed models that the catalogue does not have.
fn models_note(app: &App, key: &ApiKey, groups: &[&Group]) -> Markup {
    let says = words::unknown_models(&lists(key, groups), &app.catalog.get().ids(), "this key");
    html! { @if let Some(says) = says { p.note { (says) } } }
}

async fn forms(
    app: &App,
    viewer: &Viewer,
    key: &ApiKey,
    sent: Option<Entered<'_>>,
) -> Result<Markup, Failure> {
    let (now, offered) = (app.management.now(), offered(app, viewer).await?);
    let value = |field: KeyField| key.value(field, now);
    let present = settings_form::entered(value);
    let zone = viewer.browser.zone();
    let entered = sent.unwrap_or(Entered::new(&present)).in_zone(&zone);
    let path = path(key);
    Ok(html! {
        section.card {
            h2 { "Settings" }
            // `autocomplete=off`: after a reload, browsers would otherwise show what was typed instead of the stored
            // values.
            form.stack method="post" action=(path) autocomplete="off" {
                (hidden(viewer))
                (settings_form::edit_fields::<KeyField>(entered, &present, &offered))
                (settings_form::other_settings(value))
                div.buttons { button.primary { "Save" } }
            }
        }
    })
}

pub(crate) async fn update(
    ObjectAct { app, viewer, form, object: key, .. }: ObjectAct<ApiKey, KeysAct>,
) -> Result<Response, Failure> {
    if let Some(row) = limits::added_row(&form) {
        return settings_tab(&app, &viewer, &key, Some(Entered::new(&form).focused(row))).await;
    }
    let now = app.management.now();
    let present = settings_form::entered(|field: KeyField| key.value(field, now));
    let Edit { mut patch, overtaken } = match settings_form::read_edit::<KeyPatch>(&form, &present) {
        Ok(edit) => edit,
        Err(fault) => return again(&app, &viewer, &key, &form, &fault).await,
    };
    let (groups, zone) = (offered(&app, &viewer).await?.groups, viewer.browser.zone());
    let reader = Reader { groups: &groups, zone: &zone };
    if let Some((form, fault)) = settings_form::ask::<KeyField>(&form, &present, &overtaken, reader) {
        return again(&app, &viewer, &key, &form, &fault).await;
    }
    if let Some(fault) = place(&app, &viewer, &mut patch, false).await? {
        return again(&app, &viewer, &key, &form, &fault).await;
    }
    match ApiKey::update(viewer.by(&app), key.id, patch).await {
        Ok(changed) => {
            let values = |field: KeyField| [key.value(field, now), changed.value(field, now)];
            let after = settings_form::entered(|field: KeyField| changed.value(field, now));
            let undo = settings_form::undo::<KeyField>(&present, &after);
            let undo = undo.map(|fields| Undo { path: path(&key), fields });
            let line = words::saved(values, reader);
            Ok(notice::done_undoably(&viewer, &format!("{}/settings", path(&key)), &line, undo))
        }
        Err(error) => match settings_form::fault(&form, &error) {
            Some(fault) => again(&app, &viewer, &key, &form, &fault).await,
            None => Err(error.into()),
        },
    }
}

/// Renders the page again with the fault in its form.
async fn again(
    app: &App,
    viewer: &Viewer,
    key: &ApiKey,
    form: &Fields,
    fault: &Fault,
) -> Result<Response, Failure> {
    Ok(refused_form(settings_tab(app, viewer, key, Some(Entered::refused(form, fault))).await?))
}

/// Explains what revoking does and asks for confirmation.
pub(crate) async fn confirm(
    ObjectPage { app, viewer, object: key, .. }: ObjectPage<ApiKey, KeysViewer>,
) -> Result<Response, Failure> {
    let in_flight = app.management.requests_in_flight(viewer.signed_in.account, key.id).await?;
    let back = format!("{PATH}/{}", key.id);
    let question = html! { "Revoke " strong { (or_unnamed(&key.label)) } " (" code { (key.hint) } ")?" };
    let content = html! {
        @if let Some(at) = key.spend.revoked_at {
            p.lead { strong { (or_unnamed(&key.label)) } " (" code { (key.hint) } ") was revoked " (time(at)) "." }
            p { a.button href=(back) { "Back to the key" } }
        } @else { (confirmation(&viewer, &question, &effects(&key, in_flight), "Revoke", WayBack { address: &back, name: "key" })) }
    };
    Ok(page(&viewer, Section::Keys, "Revoke an API key", &content))
}

fn effects(key: &ApiKey, in_flight: u64) -> [Markup; 3] {
    let requests = match in_flight {
        0 => None,
        1 => Some("1 request in flight".to_owned()),
        some => Some(format!("{} requests in flight", count(some))),
    };
    [
        html! { "Its next request is refused on every server." },
        html! {
            @match requests {
                None => "It has no requests in flight right now.",
                Some(requests) => {
                    (requests) ": streams are cut within five seconds, other answers are completed. "
                    (usd(key.spend.budget.held)) " is held; the unused part is released."
                },
            }
        },
        html! { "This cannot be undone. Its spend of " (usd(key.spend.budget.used)) " stays on record." },
    ]
}

pub(crate) async fn revoke(
    ObjectAct { app, viewer, object: key, .. }: ObjectAct<ApiKey, KeysAct>,
) -> Result<Response, Failure> {
    ApiKey::end(viewer.by(&app), key.id).await?;
    let line =
        if key.spend.revoked_at.is_some() { "The key was already revoked." } else { "The key is revoked." };
    Ok(notice::done(&viewer, &format!("{PATH}/{}", key.id), line))
}
