//! The pages of API keys: list, creation, details, and revocation.

use axum::{
    extract::{Path, Request, State},
    response::{IntoResponse, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use shared::ids::KeyId;

use super::{
    Desk,
    browser::form_token,
    failure::Failure,
    form::{Fields, query, with},
    keys_form,
    layout::{Section, hidden, page},
    session::{Act, OwnerAct, Viewer},
    show::{count, new_key, or_unnamed, status, time, time_or, usd},
};
use crate::management::{
    Issued,
    reading::{Found, KeyCursor, KeyOrder, KeySearch},
};
use domain::key::{ApiKey, Status};

/// Path of the list.
pub(super) const PATH: &str = "/dashboard/keys";

/// Orders of the list, with their names in the address and on the page. None is by label: no store has such an index.
const ORDERS: [(KeyOrder, &str, &str); 4] = [
    (KeyOrder::Newest, "", "Newest first"),
    (KeyOrder::Oldest, "asc", "Oldest first"),
    (KeyOrder::MostSpent, "spent", "Most spent first"),
    (KeyOrder::LastUsed, "used", "Last used first"),
];

/// Keys on a page.
const KEYS_ON_PAGE: usize = 50;

/// Lists the keys.
pub(super) async fn list(
    State(desk): State<Desk>,
    viewer: Viewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let after = match query.filled("after") {
        Some(place) => Some(KeyCursor::parse(place).ok_or(Failure::NotFound)?),
        None => None,
    };
    let order = ORDERS.iter().find(|(_, name, _)| *name == query.get("order"));
    let search = KeySearch {
        after,
        order: order.map_or(KeyOrder::Newest, |(order, _, _)| *order),
        status: Status::parse(query.get("status")),
        text: query.filled("q").unwrap_or_default().to_owned(),
        limit: KEYS_ON_PAGE,
    };
    let found = desk.management.find_keys(viewer.signed_in.account, &search).await?;
    let content = html! {
        div.split {
            p.lead { "An API key makes model calls, up to its limit." }
            @if viewer.is_owner() { a.button.primary href={ (PATH) "/new" } { "New API key" } }
        }
        @let is_filtered = search.status.is_some() || !search.text.is_empty();
        @if found.found.is_empty() && !is_filtered && after.is_none() {
            p.empty { "There is no API key yet." }
        } @else {
            (filters(&query))
            (table(&desk, &found.found))
            (further(&query, &found))
        }
    };
    Ok(page(&viewer, Section::Keys, "API keys", &content))
}

fn filters(query: &Fields) -> Markup {
    let option = |name: &'static str, value: &'static str, shown: &'static str| {
        html! { option value=(value) selected[query.get(name) == value] { (shown) } }
    };
    html! {
        form.filters method="get" action=(PATH) role="search" {
            label { "Search" input type="search" name="q" value=(query.get("q")) placeholder="Label or key"; }
            label { "Status" select name="status" {
                (option("status", "", "All")) (option("status", "active", "Active"))
                (option("status", "expired", "Expired")) (option("status", "revoked", "Revoked"))
            } }
            label { "Order" select name="order" {
                @for (_, name, shown) in ORDERS { (option("order", name, shown)) }
            } }
            button { "Show" }
        }
    }
}

fn table(desk: &Desk, keys: &[ApiKey]) -> Markup {
    let now = desk.management.now();
    html! {
        @if keys.is_empty() { p.empty { "No key here matches." } } @else {
            div.scroll tabindex="0" role="region" aria-label="API keys" {
                table {
                    thead { tr {
                        th scope="col" { "Label" } th.wide-only scope="col" { "Status" } th.n scope="col" { "Used" }
                        th.n.wide-only scope="col" { "Limit" } th.wide-only scope="col" { "Key" }
                        th.wide-only scope="col" { "Last used" } th.wide-only scope="col" { "Created" }
                    } }
                    tbody {
                        @for key in keys {
                            tr.gone[key.status(now) == Status::Revoked] {
                                th scope="row" {
                                    a href={ (PATH) "/" (key.id.to_string()) } { (or_unnamed(&key.label)) }
                                    p.narrow-only {
                                        @if key.status(now) != Status::Active { (status(key.status(now))) " " }
                                        code { (key.hint) }
                                    }
                                }
                                td.wide-only { (status(key.status(now))) }
                                td.n { (usd(key.spend.budget.used))
                                    p.narrow-only { @match key.spend.budget.limit { Some(limit) => { "of " (usd(limit)) }, None => "no limit" } } }
                                td.n.wide-only { @match key.spend.budget.limit { Some(limit) => (usd(limit)), None => span.quiet { "none" } } }
                                td.wide-only { code { (key.hint) } }
                                td.wide-only { (time_or(key.spend.last_used_at, "never")) }
                                td.wide-only { (time(key.created_at)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn further(query: &Fields, found: &Found<ApiKey, KeyCursor>) -> Markup {
    html! {
        nav.pages aria-label="Pages" {
            @if query.filled("after").is_some() { a.button href={ (PATH) "?" (with(query, "after", "")) } { "First page" } }
            @if let Some(next) = found.next {
                a.button href={ (PATH) "?" (with(query, "after", &next.to_string())) } {
                    @if found.found.len() < KEYS_ON_PAGE { "Search further" } @else { "Next page" }
                }
            }
        }
    }
}

/// Shows the form for a new key.
pub(super) async fn new(State(desk): State<Desk>, viewer: Viewer) -> Response {
    asked(&desk, &viewer, &Fields::default(), None)
}

fn asked(desk: &Desk, viewer: &Viewer, entered: &Fields, wrong: Option<&str>) -> Response {
    let content = html! {
        @if viewer.is_owner() {
            form.stack method="post" action=(PATH) {
                (hidden(viewer))
                // A form sent twice creates a single key.
                input type="hidden" name="attempt" value=(form_token(&desk.management.visit()));
                (keys_form::fields(entered, wrong))
                div.buttons { button.primary { "Create key" } a.button href=(PATH) { "Cancel" } }
            }
        } @else { p.empty { "Owners create keys. Your role is viewer." } }
    };
    page(viewer, Section::Keys, "New API key", &content)
}

/// Creates a key, and shows the plaintext only this once.
pub(super) async fn create(
    State(desk): State<Desk>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let settings = match keys_form::read(&form) {
        Ok(settings) => settings,
        Err(wrong) => {
            let again = asked(&desk, &viewer, &form, Some(&wrong));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response());
        }
    };
    let attempt = Some(format!("dashboard-{}", form.attempt()?));
    let account = viewer.signed_in.account;
    match desk.management.create(account, settings, attempt, viewer.signed_in.actor()).await? {
        Issued::Replayed(key) => Ok(Redirect::to(&format!("{PATH}/{}", key.id)).into_response()),
        Issued::New { key, plaintext } => {
            let catalog = desk.catalog.get();
            let model = catalog.models.first().map_or("", |model| model.id.as_str());
            let content = html! {
                p.lead { "Copy the key of " strong { (or_unnamed(&key.label)) } " now. It is shown this once; only a hash of it is kept." }
                (new_key(&plaintext))
                (super::first_steps::commands(&viewer.browser.base(), &plaintext, model))
                p { a.button data-done href={ (PATH) "/" (key.id.to_string()) } { "I have copied it" } }
            };
            Ok(page(&viewer, Section::Keys, "API key created", &content))
        }
    }
}

/// Finds the key of a path in the account.
pub(super) async fn named(desk: &Desk, viewer: &Viewer, id: &str) -> Result<ApiKey, Failure> {
    let id: KeyId = id.parse().map_err(|_| Failure::NotFound)?;
    Ok(desk.management.get(viewer.signed_in.account, id).await?)
}

/// Explains the effect of revoking, before the key is revoked.
pub(super) async fn confirm(
    State(desk): State<Desk>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let key = named(&desk, &viewer, &id).await?;
    let in_flight = desk.management.requests_in_flight(viewer.signed_in.account, key.id).await?;
    let less_used = || {
        html! { ", less what they have used. Streams are cut within five seconds; whole answers are finished and billed." }
    };
    let content = html! {
        p.lead { "Revoke " strong { (or_unnamed(&key.label)) } " (" code { (key.hint) } ")?" }
        ul {
            li { "Its next request is refused, on every server." }
            @match in_flight {
                0 => li { "No request of it is in flight right now." },
                1 => li { "1 request in flight will be cut; " (usd(key.spend.budget.held)) " held comes back" (less_used()) },
                some => li { (count(some)) " requests in flight will be cut; " (usd(key.spend.budget.held)) " held comes back" (less_used()) },
            }
            li { "This cannot be undone. " (usd(key.spend.budget.used)) " of use stays in the books." }
        }
        @if viewer.is_owner() && key.spend.revoked_at.is_none() {
            form.buttons method="post" {
                (hidden(&viewer))
                button.danger { "Revoke" }
                a.button href={ (PATH) "/" (key.id.to_string()) } { "Keep it" }
            }
        }
    };
    Ok(page(&viewer, Section::Keys, "Revoke an API key", &content))
}

/// Revokes a key.
pub(super) async fn revoke(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, .. }): OwnerAct,
) -> Result<Response, Failure> {
    let key = named(&desk, &viewer, &id).await?;
    desk.management.revoke(viewer.signed_in.account, key.id, viewer.signed_in.actor()).await?;
    Ok(Redirect::to(&format!("{PATH}/{}", key.id)).into_response())
}

/// Changes a key.
pub(super) async fn update(
    State(desk): State<Desk>,
    Path(id): Path<String>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let key = named(&desk, &viewer, &id).await?;
    let patch = match keys_form::read(&form) {
        Ok(patch) => patch,
        Err(wrong) => {
            let again = super::key::whole(&desk, &viewer, &key, Some((&form, &wrong))).await?;
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response());
        }
    };
    desk.management.update(viewer.signed_in.account, key.id, patch, viewer.signed_in.actor()).await?;
    Ok(Redirect::to(&format!("{PATH}/{}", key.id)).into_response())
}
