//! Search from any page: finds keys, groups, members, models, deposits, generations, requests and events of the account.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use shared::ids::{EventId, GenerationId, GroupId, KeyId, MemberId, RequestId};

use crate::{api_keys::search, events};
use domain::{
    access::{Effect, Subject},
    ledger::{Deposited, MOST_LEAD},
};
use key_service_management::reading::KeySearch;
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, query, with},
    layout::{FIND as PATH, Section, page},
    notice,
    paths::{ACTIVITY, GROUPS, KEYS},
    session::{Act, KeysViewer, Viewer},
    show::{name_of, or_unnamed, scrolled_table, time, usd},
    zone::Zone,
};
use key_service_store::store::{Deposit, StoreError};

/// Maximum number of matches of each kind.
const MATCHES: usize = 10;

/// Number of newest deposits that are searched.
const DEPOSITS: usize = 1_000;

/// Redirects a plaintext to its key and an id to its page, and searches names for any other text. The text goes into an
/// address only if several names contain it, because a text that matches nothing may be a secret.
pub(crate) async fn find(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    viewer.may(Effect::Read, Subject::Keys)?;
    let text = form.get("q").trim();
    if text.is_empty() {
        return Ok(nothing_entered(&viewer));
    }
    if let Some(found) = search::of_plaintext(&app, &viewer, text).await? {
        return Ok(found);
    }
    if let Some(address) = page_of(&app, &viewer, text).await? {
        return Ok(Redirect::to(&address).into_response());
    }
    let matches = Matches::of(&app, &viewer, text).await?;
    if matches.found.len() > 1 {
        let address = format!("{PATH}?{}", with(&Fields::default(), "q", text));
        return Ok(Redirect::to(&address).into_response());
    }
    Ok(matches.into_page(&viewer, text))
}

/// Returns the address of an id's page, if the text is an id.
async fn page_of(app: &App, viewer: &Viewer, text: &str) -> Result<Option<String>, StoreError> {
    if text.parse::<KeyId>().is_ok() {
        return Ok(Some(format!("{KEYS}/{text}")));
    }
    if text.parse::<GroupId>().is_ok() {
        return Ok(Some(format!("{GROUPS}/{text}")));
    }
    if text.parse::<MemberId>().is_ok() {
        return Ok(Some(format!("/dashboard/members/{text}")));
    }
    if let Some(generation) = generation_of(text) {
        return Ok(Some(format!("{ACTIVITY}?generation={generation}")));
    }
    if let Ok(request) = text.parse::<RequestId>() {
        return Ok(Some(address_of(request, &viewer.browser.zone())));
    }
    let Ok(id) = text.parse::<EventId>() else { return Ok(None) };
    // The address would contain the event's number, which a lead must not learn for events outside the group.
    if viewer.reach().group.is_some() {
        return Ok(None);
    }
    let number = app.management.event_number(viewer.signed_in.account, id).await?;
    Ok(number.map(|number| format!("{}?after=0-{}", events::PATH, number + 1)))
}

/// Returns the address of the list of requests, filtered to this request. The range begins with the day of its id,
/// allowing for a clock ahead of ours, and ends with the next day, because a request is billed when it ends.
fn address_of(request: RequestId, zone: &Zone) -> String {
    let (first, last) = (request.created_at().minus(MOST_LEAD), request.created_at());
    format!("{ACTIVITY}?request={request}&from={}&to={}", zone.day_of(first), zone.day_of(last).plus(1))
}

/// Parses a generation id, or finds it in an answer's id. Our own Responses and Messages answers put the generation's
/// digits after `resp_` and `msg_`. Answers passed on from a vendor keep the vendor's id, which is not found.
fn generation_of(text: &str) -> Option<GenerationId> {
    let digits =
        [GenerationId::PREFIX, "resp_", "msg_"].into_iter().find_map(|prefix| text.strip_prefix(prefix))?;
    format!("{}{digits}", GenerationId::PREFIX).parse().ok()
}

/// Shows what matches a text. If there is only one match, redirects to it.
pub(crate) async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let query = query(&request);
    let Some(text) = query.filled("q") else { return Ok(nothing_entered(&viewer)) };
    Ok(Matches::of(&app, &viewer, text).await?.into_page(&viewer, text))
}

fn nothing_entered(viewer: &Viewer) -> Response {
    notice::done(viewer, KEYS, "Enter a label, a name or an id.")
}

/// Kind, address and displayed name of a match.
type Match = (&'static str, String, Markup);

/// Finds models whose id or alias contains a text. Each match links to the model's requests.
fn models(app: &App, text: &str) -> Vec<Match> {
    let catalog = app.catalog.get();
    let text = text.to_lowercase();
    let has = |name: &String| name.to_lowercase().contains(&text);
    let matching = catalog.models.iter().filter(|model| has(&model.id) || model.aliases.iter().any(has));
    let address = |id: &str| format!("{ACTIVITY}?{}", with(&Fields::default(), "model", id));
    matching.take(MATCHES).map(|model| ("Model", address(&model.id), html! { (model.id) })).collect()
}

/// Finds deposits by their id, the id of their payment, or their note, such as an invoice's number.
async fn deposits(app: &App, viewer: &Viewer, text: &str) -> Result<Vec<Match>, StoreError> {
    let deposits = app.management.deposits(viewer.signed_in.account, DEPOSITS).await?;
    let lower = text.to_lowercase();
    let matching = deposits.iter().filter(|deposit| {
        let Deposited { note, payment, .. } = &deposit.deposited;
        let is_payment = payment.as_ref().is_some_and(|payment| payment.id.as_str() == text);
        is_payment || deposit.id.to_string() == text || note.to_lowercase().contains(&lower)
    });
    let shown = |deposit: &Deposit| {
        let Deposited { amount, note, .. } = &deposit.deposited;
        let address = format!("/dashboard/credit#{}", deposit.id);
        ("Deposit", address, html! { (usd(*amount)) " " (time(deposit.at())) " " bdi { (note) } })
    };
    Ok(matching.take(MATCHES).map(shown).collect())
}

/// Keys, groups, members, models and deposits that match a text.
struct Matches {
    found: Vec<Match>,
    has_more_keys: bool,
}

impl Matches {
    async fn of(app: &App, viewer: &Viewer, text: &str) -> Result<Self, Failure> {
        let reach = viewer.reach();
        let search = KeySearch { text: text.to_owned(), limit: MATCHES, ..KeySearch::default() };
        let keys = app.management.find_keys(reach, &search).await?;
        let groups = app.management.find_groups(reach, text, None, MATCHES).await?;
        let mut members = match reach.group {
            Some(_) => Vec::new(),
            None => app.management.members(reach.account).await?,
        };
        members.retain(|member| member.name.to_lowercase().contains(&text.to_lowercase()));
        members.truncate(MATCHES);
        let mut found: Vec<Match> = Vec::new();
        found.extend(keys.found.iter().map(|key| {
            (
                "API key",
                format!("{KEYS}/{}", key.id),
                html! { (or_unnamed(&key.label)) " " code { (key.hint) } },
            )
        }));
        found.extend(
            groups
                .found
                .iter()
                .map(|group| ("Group", format!("{GROUPS}/{}", group.id), html! { bdi { (name_of(group)) } })),
        );
        found.extend(members.iter().map(|member| {
            ("Member", format!("/dashboard/members/{}", member.id), html! { bdi { (member.name) } })
        }));
        found.extend(models(app, text));
        if viewer.may(Effect::Read, Subject::Account).is_ok() {
            found.extend(deposits(app, viewer, text).await?);
        }
        Ok(Self { found, has_more_keys: keys.next.is_some() })
    }

    fn into_page(self, viewer: &Viewer, text: &str) -> Response {
        let Self { found, has_more_keys } = self;
        if let ([(_, address, _)], false) = (found.as_slice(), has_more_keys) {
            return Redirect::to(address).into_response();
        }
        let content = html! {
            @if found.is_empty() {
                p.empty { "No key, group, member, model or deposit has " strong { bdi { (text) } } " in its name, and it is not an id in this account." }
            } @else {
                (scrolled_table("Found", &html! {
                    th scope="col" { "Name" } th scope="col" { "Kind" }
                }, &html! {
                    @for (kind, address, name) in &found {
                        tr { th scope="row" { a href=(address) { (name) } } td { (kind) } }
                    }
                }))
            }
            @if has_more_keys { p { a href={ (KEYS) "?" (with(&Fields::default(), "q", text)) } { "All matching API keys" } } }
        };
        page(viewer, Section::Unlisted, "Find", &content)
    }
}

#[cfg(test)]
mod tests {
    use shared::time::Timestamp;

    use super::*;

    #[test]
    fn the_id_of_an_answer_in_any_api_names_its_generation() {
        let digits = "0198f3c2a7b87d0e9f4b6c1d2e3f4a5b";
        for prefix in ["gen_", "resp_", "msg_"] {
            let named = generation_of(&format!("{prefix}{digits}")).map(|id| id.to_string());
            assert_eq!(named, Some(format!("gen_{digits}")), "{prefix}");
        }
        for other in [digits, "msg_01XFDUDYJgAACzvnptvVoYEL", "req_0198f3c2a7b87d0e9f4b6c1d2e3f4a5b", "gen_"]
        {
            assert_eq!(generation_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_request_is_listed_by_the_days_on_which_it_may_have_been_billed() {
        let address = |at: &str| {
            let request = RequestId::new(Timestamp::parse(at).unwrap(), [7; 10]);
            address_of(request, &Zone::utc()).replace(&request.to_string(), "req_")
        };
        let days =
            |first: &str, last: &str| format!("/dashboard/activity?request=req_&from={first}&to={last}");
        assert_eq!(address("2026-11-24T12:00:00Z"), days("2026-11-24", "2026-11-25"));
        assert_eq!(address("2026-11-24T00:00:59Z"), days("2026-11-23", "2026-11-25"));
    }
}
