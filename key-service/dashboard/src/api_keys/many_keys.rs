//! Bulk actions on API keys. A member selects keys in a list, or all keys that match the list's filters, and confirms.
//! The action then revokes, disables, enables or moves the keys, raises a limit, or changes their expiry.

use std::fmt::Display;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{ids::KeyId, wire::KeyField};

use crate::api_keys::{
    deed::{Change, Counts, Deed, RAISES, RESETS, change, numbered},
    place::place,
    search::search_of,
};
use domain::{
    digest::Digest,
    key::{ApiKey, KeyPatch},
};
use key_service_management::{Error, Refused, governed::Governed as _};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    layout::{Section, hidden, page},
    notice,
    pagination::ROWS_ON_PAGE,
    paths::KEYS as PATH,
    session::{Act, KeysAct, Viewer},
    show::{count, or_unnamed},
};
use key_service_settings::{
    limits,
    settings_form::{self, Offered, Unraised, offered},
};

/// Path of the page that asks for confirmation.
pub(crate) const CONFIRM: &str = "/dashboard/keys/many";
/// Path of the form that applies the action.
pub(crate) const APPLY: &str = "/dashboard/keys/many/apply";

/// Id of the form that the checkboxes in a table of keys belong to.
pub(crate) const FORM: &str = "many";

/// Maximum number of keys that an action on all matches changes. Each change is a commit and an event.
const MOST_KEYS: usize = 1_000;
/// Number of keys to read at a time, and maximum number of reads, to find all matches.
const READ_AT_ONCE: usize = 500;
const READS: usize = 40;
/// Maximum number of keys that the confirmation page lists for an action on all matches.
const NAMED: usize = 50;

/// The list that a table of keys is a page of.
pub(crate) struct WholeList {
    /// Filters of the list, as in its address.
    pub(crate) filters: Fields,
    /// Number of keys in the whole list, including revoked keys; `None` if it is unknown.
    pub(crate) total: Option<u64>,
}

/// Shows a table of keys with buttons for the selected rows. `whole` is the list if it has further pages.
pub(crate) fn form(viewer: &Viewer, table: &Markup, whole: Option<&WholeList>) -> Markup {
    html! {
        (table)
        @if viewer.keeps_keys() {
            form.buttons.many id=(FORM) method="post" action=(CONFIRM) {
                (hidden(viewer))
                span.quiet.chosen { "Selected keys:" }
                @if let Some(WholeList { filters, total }) = whole {
                    label.all {
                        input type="checkbox" name="all" value=(filters.query());
                        "All in this list"
                        @if total.is_none_or(|total| total > MOST_KEYS as u64) { ", up to " (count(MOST_KEYS as u64)) }
                    }
                }
                @for deed in Deed::ALL {
                    button.danger[deed == Deed::Revoke] name="deed" value=(deed.as_str()) { (deed.button()) " …" }
                }
            }
        }
    }
}

/// The keys that an action applies to.
struct Chosen {
    keys: Vec<ApiKey>,
    /// Filters of the list if all its keys were selected.
    filters: Option<String>,
    /// Whether the list's keys have changed since the member confirmed them.
    has_changed: bool,
}

impl Chosen {
    /// Finds the selected keys. The member must reach all of them.
    async fn of(app: &App, viewer: &Viewer, form: &Fields) -> Result<Self, Failure> {
        if form.has("all") {
            let filters = form.get("all").to_owned();
            let keys = matching(app, viewer, &Fields::of_query(Some(&filters))).await?;
            let has_changed = form.has("confirmed") && form.get("confirmed") != confirmed(&keys);
            return Ok(Self { keys, filters: Some(filters), has_changed });
        }
        let ids = form.all("key");
        if ids.len() > ROWS_ON_PAGE {
            return Err(Failure::BadRequest(format!("Select at most {ROWS_ON_PAGE} keys at a time.")));
        }
        let ids: Result<Vec<KeyId>, _> = ids.into_iter().map(str::parse).collect();
        let ids = ids.map_err(|_| Failure::NotFound)?;
        let found = app.management.keys_by_id(viewer.reach(), ids.clone()).await?;
        if found.len() < ids.len() {
            return Err(Failure::NotFound);
        }
        let keys = ids.iter().filter_map(|id| found.get(id)).cloned().collect();
        Ok(Self { keys, filters: None, has_changed: false })
    }

    /// Returns whether the member confirmed these keys. A selection is confirmed by sending it.
    fn is_confirmed(&self, form: &Fields) -> bool {
        self.filters.is_none() || (form.has("confirmed") && !self.has_changed)
    }
}

/// Identifies the keys that a member confirms.
fn confirmed(keys: &[ApiKey]) -> String {
    let mut ids: Vec<String> = keys.iter().map(|key| key.id.to_string()).collect();
    // The ids are sorted, because the order of the list may have changed with the keys' spend.
    ids.sort_unstable();
    hex::encode(Digest::of(ids.concat().as_bytes()).as_bytes())
}

/// Finds all keys of a list that are not revoked.
async fn matching(app: &App, viewer: &Viewer, filters: &Fields) -> Result<Vec<ApiKey>, Failure> {
    let mut search = search_of(filters, READ_AT_ONCE)?;
    let mut keys = Vec::new();
    for _ in 0..READS {
        let found = app.management.find_keys(viewer.reach(), &search).await?;
        keys.extend(found.found.into_iter().filter(|key| key.spend.revoked_at.is_none()));
        match found.next {
            _ if keys.len() > MOST_KEYS => break,
            None => return Ok(keys),
            next => search.after = next,
        }
    }
    Err(Failure::BadRequest(format!(
        "More than {} keys match, or too many had to be searched. Narrow the filters.",
        count(MOST_KEYS as u64)
    )))
}

/// Lists the selected keys and asks for confirmation.
pub(crate) async fn confirm(
    State(app): State<App>,
    KeysAct(Act { viewer, form }): KeysAct,
) -> Result<Response, Failure> {
    let (deed, chosen) = (Deed::parse(&form)?, Chosen::of(&app, &viewer, &form).await?);
    if chosen.keys.is_empty() {
        return Ok(notice::done(&viewer, PATH, "Select keys in the list first."));
    }
    asked(&app, &viewer, deed, &chosen, Entered::new(&Fields::default())).await
}

async fn asked(
    app: &App,
    viewer: &Viewer,
    deed: Deed,
    chosen: &Chosen,
    entered: Entered<'_>,
) -> Result<Response, Failure> {
    let zone = viewer.browser.zone();
    let (entered, offered) = (entered.in_zone(&zone), offered(app, viewer).await?);
    let keys = &chosen.keys;
    let number = numbered(keys.len());
    let question = match deed {
        Deed::Revoke => format!("Revoke {number}?"),
        Deed::Disable => format!("Disable {number}?"),
        Deed::Enable => format!("Enable {number}?"),
        Deed::Move => format!("Move {number}?"),
        Deed::Extend => format!("Change the expiry of {number}?"),
        Deed::Raise => format!("Raise a limit of {number}?"),
    };
    let named = if chosen.filters.is_some() { keys.len().min(NAMED) } else { keys.len() };
    let content = html! {
        @if chosen.has_changed {
            p.problem role="alert" { "Other keys match now. Nothing was changed. Check the list and confirm again." }
        }
        ul.columns { @for key in &keys[..named] { li { (or_unnamed(&key.label)) " " code { (key.hint) } } } }
        @if named < keys.len() { p.quiet { "and " (count((keys.len() - named) as u64)) " more" } }
        @if deed == Deed::Revoke {
            p { "Their next requests are refused on every server, and their streams are cut within five seconds. This cannot be undone." }
        }
        @if deed == Deed::Disable { p { "Their next requests are refused until you enable them again." } }
        form.stack method="post" action=(APPLY) {
            (hidden(viewer))
            input type="hidden" name="deed" value=(deed.as_str());
            @match &chosen.filters {
                Some(filters) => {
                    input type="hidden" name="all" value=(filters);
                    input type="hidden" name="confirmed" value=(confirmed(keys));
                },
                None => @for key in keys { input type="hidden" name="key" value=(key.id.to_string()); },
            }
            (fields(deed, entered, &offered))
            div.buttons {
                button.danger[deed == Deed::Revoke].primary[deed != Deed::Revoke] { (deed.button()) @if deed == Deed::Raise { " of" } " " (number) }
                a.button href=(PATH) { "Cancel" }
            }
        }
    };
    Ok(page(viewer, Section::Keys, &question, &content))
}

/// Renders the fields of an action.
fn fields(deed: Deed, entered: Entered<'_>, offered: &Offered) -> Markup {
    match deed {
        Deed::Revoke | Deed::Disable | Deed::Enable => html! {},
        Deed::Move => settings_form::group(
            "group_id",
            "Group",
            "Its limits apply to the keys from then on.",
            entered,
            offered,
        ),
        Deed::Extend => entered.instant(
            "expires_at",
            "Expires",
            "Leave empty to never expire.",
            &settings_form::later(offered.now),
        ),
        Deed::Raise => html! {
            (choice(entered, "resets", "Limit", "Keys without this limit stay as they are.", &RESETS))
            (choice(entered, "percent", "Raise to", "Counts from each key's normal limit. A higher raise stays.", &RAISES))
            (entered.instant("until", "Until", "Then the normal limit applies again.", &limits::ends(offered.now)))
        },
    }
}

/// Renders a choice among fixed values.
fn choice<'a>(
    entered: Entered<'a>,
    name: &'a str,
    title: &str,
    hint: &str,
    options: &[(impl Display, &str)],
) -> Markup {
    entered.field(name, title, hint, |entry| {
        html! {
            select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid] {
                @for (value, shown) in options {
                    @let value = value.to_string();
                    option value=(value) selected[value == entry.value] { (shown) }
                }
            }
        }
    })
}

/// Applies the action to each key.
pub(crate) async fn apply(
    State(app): State<App>,
    KeysAct(Act { viewer, form }): KeysAct,
) -> Result<Response, Failure> {
    let (deed, chosen) = (Deed::parse(&form)?, Chosen::of(&app, &viewer, &form).await?);
    if chosen.has_changed && chosen.keys.is_empty() {
        return Ok(notice::done(&viewer, PATH, "No keys match any more."));
    }
    if !chosen.is_confirmed(&form) {
        return asked(&app, &viewer, deed, &chosen, Entered::new(&form)).await;
    }
    let refused = async |fault: &Fault| {
        Ok(refused_form(asked(&app, &viewer, deed, &chosen, Entered::refused(&form, fault)).await?))
    };
    let mut change = match change(deed, &form) {
        Ok(change) => change,
        Err(fault) => return refused(&fault).await,
    };
    if let Change::Set(patch) = &mut change
        && let Some(fault) = place(&app, &viewer, patch, false).await?
    {
        return refused(&fault).await;
    }
    let mut counts = Counts::default();
    for id in chosen.keys.iter().map(|key| key.id) {
        // Others may have changed the key while this loop changed earlier keys.
        let Some(key) = app.management.keys_by_id(viewer.reach(), vec![id]).await?.remove(&id) else {
            counts.gone += 1;
            continue;
        };
        let changed = match &change {
            Change::Revoke => ApiKey::end(viewer.by(&app), key.id).await,
            Change::Set(patch) => ApiKey::update(viewer.by(&app), key.id, KeyPatch::clone(patch)).await,
            Change::Raise(terms) => {
                let now = app.management.now();
                let present = settings_form::entered(|field: KeyField| key.value(field, now));
                match settings_form::raise(&present, terms) {
                    Ok(patch) => ApiKey::update(viewer.by(&app), key.id, patch).await,
                    Err(Unraised::Refused(fault)) => return refused(&fault).await,
                    Err(Unraised::NoLimit) => {
                        counts.without_limit += 1;
                        continue;
                    }
                    Err(Unraised::AsHigh) => {
                        counts.as_high += 1;
                        continue;
                    }
                }
            }
        };
        match changed {
            Ok(_) if key.spend.revoked_at.is_none() => counts.done += 1,
            // Someone revoked the key in the meantime.
            Ok(_) | Err(Error::Refused(Refused::KeyRevoked)) => counts.revoked += 1,
            Err(error) => match settings_form::fault(&form, &error) {
                Some(fault) => return refused(&fault).await,
                None => return Err(error.into()),
            },
        }
    }
    Ok(notice::done(&viewer, PATH, &counts.says(deed)))
}
