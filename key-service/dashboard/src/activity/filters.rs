//! Filters of the list of requests: reading them from an address, and the form that sets them.

use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId, RequestId},
    time::Timestamp,
};

use crate::refused;
use domain::{
    group::Group,
    key::ApiKey,
    refused::RefusedSearch,
    usage::{Day, HOURS},
};
use key_service_management::{
    reading::{EntrySearch, Outcome},
    refusals::RefusedFilter,
    requests::RequestSearch,
    spend::DAYS,
};
use key_service_page::{
    app::App,
    failure::Failure,
    form::Fields,
    paths::ACTIVITY,
    show::name_of,
    zone::{Today, Zone},
};
use key_service_ranges::range::Range;

/// All filters. Without any filter, the page shows the last [`DAYS`] days.
const FILTERS: [&str; 11] =
    ["key", "group", "model", "from", "to", "hour", "outcome", "reason", "user", "request", "upstream"];
/// Rarely used filters, folded under *More filters*.
const MORE: [&str; 5] = ["reason", "user", "request", "upstream", "generation"];
/// Value of the outcome filter that selects refused requests. Its other values are those of [`Outcome`].
const REFUSED: &str = "refused";

pub(super) fn are_any(query: &Fields) -> bool {
    FILTERS.iter().any(|name| query.filled(name).is_some())
}

/// Reads the filters of a query, whose days are in the reader's zone.
pub(super) fn search(query: &Fields, zone: &Zone) -> Result<RequestSearch, Failure> {
    let (key, group): (Option<KeyId>, Option<GroupId>) = (query.id("key")?, query.id("group")?);
    let request: Option<RequestId> = query.id("request")?;
    let (from, to) = (query.filled("from").and_then(Day::parse), query.filled("to").and_then(Day::parse));
    let (begins, ends) = match (from, hour(query)) {
        (Some(day), Some(hour)) => (Some(begins(zone, day, hour)), Some(begins(zone, day, hour + 1))),
        (from, _) => (from.map(|day| zone.begins(day)), to.map(|day| zone.begins(day.plus(1)))),
    };
    let text = |name| query.filled(name).map(str::to_owned);
    let (model, user, upstream, reason) = (text("model"), text("user"), text("upstream"), text("reason"));
    let outcome = Outcome::parse(query.get("outcome"));
    // A refused request has no upstream and no bill.
    let has_refused = outcome.is_none() && upstream.is_none();
    let has_billed = query.get("outcome") != REFUSED && reason.is_none();
    let refused = has_refused.then(|| {
        let (model, user) = (model.clone(), user.clone());
        let search = RefusedSearch { key, reason, model, user, request, begins, ends };
        RefusedFilter { search, group, within: None }
    });
    let billed = has_billed.then_some(EntrySearch {
        key,
        group,
        within: None,
        model,
        begins,
        ends,
        outcome,
        ending: None,
        user,
        request,
        upstream,
    });
    Ok(RequestSearch { billed, refused })
}

/// Returns the first instant of an hour of a day. On a day on which summer time begins or ends, this is not simply that
/// number of hours after the day's first instant. Hour 24 is the next day.
fn begins(zone: &Zone, day: Day, hour: u8) -> Timestamp {
    let clock = (hour < HOURS).then(|| zone.instant(&format!("{day}T{hour:02}:00"))).flatten();
    clock.unwrap_or_else(|| zone.begins(day.plus((hour / HOURS).into())))
}

/// Reads the hour filter, which selects one hour of the first day.
pub(super) fn hour(query: &Fields) -> Option<u8> {
    query.get("hour").parse().ok().filter(|hour| *hour < HOURS)
}

/// Returns the query with its days filled in. A named range sets the first and the last day. Otherwise a missing first
/// day is added: the day of the oldest entry if the field is present but empty, or else the first of [`DAYS`] days.
pub(super) fn with_days(
    query: &Fields,
    range: &Range,
    Today { day: today, zone }: &Today,
    oldest: Option<Timestamp>,
) -> Fields {
    if range.is_named(query) {
        return with_range(query, range);
    }
    let first = match query.filled("from").and_then(Day::parse) {
        Some(_) => return query.clone(),
        None if query.has("from") => oldest.map_or(*today, |oldest| zone.day_of(oldest)),
        None => query.filled("to").and_then(Day::parse).unwrap_or(*today).plus(1 - DAYS),
    };
    query.clone().with("from", first.to_string())
}

/// Replaces a named range in the query with its days.
pub(super) fn with_range(query: &Fields, range: &Range) -> Fields {
    if !range.is_named(query) {
        return query.clone();
    }
    let days = [("from", range.days.start()), ("to", range.days.end())];
    let days = Fields::of(days.map(|(name, day)| (name, day.to_string())));
    query.without(&["range", "days"]).replaced_by(days)
}

/// The key and the group that a query names.
#[derive(Clone, Copy, Default)]
pub(super) struct Named<'a> {
    pub(super) key: Option<&'a ApiKey>,
    pub(super) group: Option<&'a Group>,
}

/// Renders the form with the filters of a query.
pub(super) fn form(app: &App, zone: &Zone, query: &Fields, Named { key, group }: Named<'_>) -> Markup {
    let text = |name: &'static str, title: &'static str, example: &'static str| {
        html! { label { (title) input type="search" name=(name) value=(query.get(name)) placeholder=(example); } }
    };
    let chosen = |name: &'static str, title: &'static str, options: Vec<(&str, &str)>| {
        html! {
            label { (title) select name=(name) {
                option value="" { "All" }
                @for (value, shown) in options {
                    option value=(value) selected[query.get(name) == value] { (shown) }
                }
            } }
        }
    };
    let catalog = app.catalog.get();
    let models = catalog.models.iter().map(|model| (model.id.as_str(), model.id.as_str())).collect();
    let outcomes = Outcome::ALL.map(|outcome| (outcome.as_str(), outcome_title(outcome)));
    let outcomes = outcomes.into_iter().chain([(REFUSED, "Refused")]);
    let has_more = MORE.iter().any(|name| query.filled(name).is_some());
    html! {
        form.filters method="get" action=(ACTIVITY) role="search" {
            @match key {
                // The key's id would mean nothing to the reader, so the field shows the key's label.
                Some(key) => label { "Key" select name="key" {
                    option value=(key.id) selected { (label_of(key)) } option value="" { "All" }
                } },
                None => (text("key", "Key", "Label or id")),
            }
            @if let Some(group) = group {
                label { "Group" select name="group" {
                    option value=(group.id) selected { (name_of(group)) } option value="" { "All" }
                } }
            }
            (chosen("model", "Model", models))
            (chosen("outcome", "Outcome", outcomes.collect()))
            (day(zone, query, "from", "From"))
            (day(zone, query, "to", "To"))
            @if let Some(hour) = hour(query) {
                label { "Hour of the first day" select name="hour" {
                    option value=(hour) selected { (format!("{hour:02}:00")) } option value="" { "All" }
                } }
            }
            button { "Apply" }
            details open[has_more] {
                summary { "More filters" }
                div.filters {
                    (chosen("reason", "Reason for refusal", refused::REASONS.to_vec()))
                    (text("user", "User", "As sent by the caller"))
                    (text("request", "Request", "req_…"))
                    (text("upstream", "Upstream", "name"))
                    (text("generation", "Generation", "gen_…"))
                }
            }
        }
    }
}

const fn outcome_title(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Captured => "Billed",
        Outcome::Estimated => "Estimated",
        Outcome::Expired => "Recovered",
        Outcome::Shortfall => "Partly unpaid",
    }
}

fn label_of(key: &ApiKey) -> &str {
    if key.label.trim().is_empty() { &key.hint } else { &key.label }
}

fn day(zone: &Zone, query: &Fields, name: &'static str, title: &'static str) -> Markup {
    html! {
        label { (title) " (" (zone.title()) ")" input type="date" name=(name) value=(query.get(name)); }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Fields {
        Fields::of_query(Some(text))
    }

    fn billed(text: &str) -> EntrySearch {
        search(&query(text), &Zone::utc()).unwrap().billed.unwrap()
    }

    #[test]
    fn days_are_those_of_the_readers_zone() {
        let times = |zone: &str, text: &str| {
            let zone = Zone::named(zone).unwrap();
            let search = search(&query(text), &zone).unwrap().billed.unwrap();
            [search.begins, search.ends].map(|at| at.map_or_else(String::new, |at| at.to_string()))
        };
        let day = "from=2026-11-24&to=2026-11-24";
        assert_eq!(times("UTC", day), ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"]);
        assert_eq!(times("Europe/Zurich", day), ["2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z"]);
        assert_eq!(times("Pacific/Kiritimati", day), ["2026-11-23T10:00:00Z", "2026-11-24T10:00:00Z"]);
        let hour = "from=2026-11-24&to=2026-11-24&hour=14";
        assert_eq!(times("UTC", hour), ["2026-11-24T14:00:00Z", "2026-11-24T15:00:00Z"]);
        assert_eq!(times("Europe/Zurich", hour), ["2026-11-24T13:00:00Z", "2026-11-24T14:00:00Z"]);
        assert_eq!(times("UTC", "from=2026-11-24&hour=24")[0], "2026-11-24T00:00:00Z");
        // Summer time begins on this day.
        let summer = "from=2026-03-29&to=2026-03-29";
        assert_eq!(times("Europe/Zurich", summer), ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        let zurich = |text: &str| times("Europe/Zurich", text);
        assert_eq!(zurich("from=2026-03-29&hour=14"), ["2026-03-29T12:00:00Z", "2026-03-29T13:00:00Z"]);
        assert_eq!(zurich("from=2026-03-29&hour=23"), ["2026-03-29T21:00:00Z", "2026-03-29T22:00:00Z"]);
        // When summer time ends, the clock shows this hour twice.
        assert_eq!(zurich("from=2026-10-25&hour=2"), ["2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"]);
    }

    #[test]
    fn a_list_without_a_first_day_begins_with_the_last_days_and_says_so_in_its_field() {
        let today = Today { day: Day::parse("2026-11-24").unwrap(), zone: Zone::utc() };
        let first = |text: &str| {
            let query = query(text);
            with_days(&query, &Range::of(&query, &today), &today, None).get("from").to_owned()
        };
        assert_eq!(first(""), "2026-10-26");
        assert_eq!(first("model=x&to=2020-01-30"), "2020-01-01");
        assert_eq!(first("from=2020-01-01"), "2020-01-01");
        assert_eq!(first("from="), "2026-11-24", "nothing was billed yet");
        assert_eq!(first("range=month&from=2020-01-01"), "2026-11-01", "a range with a name wins");
    }

    #[test]
    fn a_group_is_searched_for() {
        let id = GroupId::new(Timestamp::from_millis(0), [7; 10]);
        assert_eq!(billed(&format!("group={id}")).group, Some(id));
        assert!(
            search(&query("group=agents"), &Zone::utc()).is_err(),
            "an invalid group is refused, not ignored"
        );
    }

    #[test]
    fn a_request_is_searched_for_among_bills_and_refused_calls() {
        let id = RequestId::new(Timestamp::from_millis(0), [7; 10]);
        let RequestSearch { billed, refused } =
            search(&query(&format!("request={id}")), &Zone::utc()).unwrap();
        assert_eq!((billed.unwrap().request, refused.unwrap().search.request), (Some(id), Some(id)));
        assert!(
            search(&query("request=gen_1"), &Zone::utc()).is_err(),
            "an invalid id is refused, not ignored"
        );
    }

    #[test]
    fn filters_leave_out_the_requests_that_cannot_match() {
        let kinds = |text: &str| {
            let RequestSearch { billed, refused } = search(&query(text), &Zone::utc()).unwrap();
            (billed.is_some(), refused.is_some())
        };
        assert_eq!((kinds(""), kinds("user=u-1&model=m")), ((true, true), (true, true)));
        for only_billed in ["outcome=captured", "outcome=shortfall", "upstream=eu-2"] {
            assert_eq!(kinds(only_billed), (true, false), "{only_billed}");
        }
        for only_refused in ["outcome=refused", "reason=key_expired"] {
            assert_eq!(kinds(only_refused), (false, true), "{only_refused}");
        }
        let refused =
            search(&query("reason=key_expired&user=u-1"), &Zone::utc()).unwrap().refused.unwrap().search;
        assert_eq!((refused.reason.as_deref(), refused.user.as_deref()), (Some("key_expired"), Some("u-1")));
    }
}
