//! Filters of the list of requests: reading them from an address, and the form that sets them.

use std::time::Duration;

use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId, RequestId},
    time::Timestamp,
};

use crate::refused;
use domain::{
    group::Group,
    refused::RefusedSearch,
    usage::{Day, HOURS},
};
use key_service_management::{
    reading::{EntrySearch, Outcome},
    refusals::RefusedFilter,
    requests::RequestSearch,
    spend::DAYS,
};
use key_service_page::{app::App, failure::Failure, form::Fields, paths::ACTIVITY, show::name_of};
use key_service_ranges::range::Range;

/// All filters. Without any, the page shows the last [`DAYS`].
const FILTERS: [&str; 11] =
    ["key", "group", "model", "from", "to", "hour", "outcome", "reason", "user", "request", "upstream"];
/// Rarely used filters, folded under *More filters*.
const MORE: [&str; 5] = ["reason", "user", "request", "upstream", "generation"];
/// Selects refused requests, in addition to the values of [`Outcome`].
const REFUSED: &str = "refused";
/// Largest offset of a time zone from UTC, in minutes.
const MAX_OFFSET: i64 = 14 * 60;

pub(super) fn are_any(query: &Fields) -> bool {
    FILTERS.iter().any(|name| query.filled(name).is_some())
}

/// Reads the filters of a query. Its days are in the time zones given by their offsets from UTC.
pub(super) fn search(query: &Fields) -> Result<RequestSearch, Failure> {
    let (key, group): (Option<KeyId>, Option<GroupId>) = (query.id("key")?, query.id("group")?);
    let request: Option<RequestId> = query.id("request")?;
    let midnight = |day: Day, offset| Timestamp::from_millis(day.millis().0 - offset * 60_000);
    let (from, to) = (query.filled("from").and_then(Day::parse), query.filled("to").and_then(Day::parse));
    let begins = from.map(|day| midnight(day, offset(query, "from_offset")));
    let ends = to.map(|day| midnight(day.plus(1), offset(query, "to_offset")));
    let (begins, ends) = match (begins, hour(query)) {
        (Some(begins), Some(hour)) => {
            let begins = begins.plus(Duration::from_hours(hour.into()));
            (Some(begins), Some(begins.plus(Duration::from_hours(1))))
        }
        (begins, _) => (begins, ends),
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

/// Reads the hour filter, which selects one hour of the first day.
pub(super) fn hour(query: &Fields) -> Option<u8> {
    query.get("hour").parse().ok().filter(|hour| *hour < HOURS)
}

/// Reads an offset from UTC in minutes; positive is east.
pub(super) fn offset(query: &Fields, name: &str) -> i64 {
    let minutes = query.get(name).parse().ok().filter(|minutes| (-MAX_OFFSET..=MAX_OFFSET).contains(minutes));
    minutes.unwrap_or(0)
}

/// Returns the query with its days filled in. A named range sets both. Otherwise a first day is added: the day of the
/// oldest entry if the field is there but empty, else the first of the last [`DAYS`].
pub(super) fn with_days(query: &Fields, range: &Range, today: Day, oldest: Option<Timestamp>) -> Fields {
    if range.is_named(query) {
        return with_range(query, range);
    }
    let first = match query.filled("from").and_then(Day::parse) {
        Some(_) => return query.clone(),
        None if query.has("from") => oldest.map_or(today, Day::of),
        None => query.filled("to").and_then(Day::parse).unwrap_or(today).plus(1 - DAYS),
    };
    query.clone().with("from", first.to_string())
}

/// Replaces a named range in the query with its days in UTC.
pub(super) fn with_range(query: &Fields, range: &Range) -> Fields {
    if !range.is_named(query) {
        return query.clone();
    }
    let days = [("from", range.days.start()), ("to", range.days.end())];
    let days = Fields::of(days.map(|(name, day)| (name, day.to_string())));
    query.without(&["range", "days", "from_offset", "to_offset"]).replaced_by(days)
}

/// Renders the form with the filters of a query. `group` is the group that the query names.
pub(super) fn form(app: &App, query: &Fields, group: Option<&Group>, is_default: bool) -> Markup {
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
        // The script uses the reader's time zone for the days, unless the address has offsets.
        form.filters method="get" action=(ACTIVITY) role="search" data-days=(if is_default { "reader" } else { "address" }) {
            (text("key", "Key", "Label or id"))
            @if let Some(group) = group {
                label { "Group" select name="group" {
                    option value=(group.id) selected { (name_of(group)) } option value="" { "All" }
                } }
            }
            (chosen("model", "Model", models))
            (chosen("outcome", "Outcome", outcomes.collect()))
            (day(query, "from", "From", "from_offset"))
            (day(query, "to", "To", "to_offset"))
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

fn day(query: &Fields, name: &'static str, title: &'static str, offset_name: &'static str) -> Markup {
    html! {
        label { span { (title) " (" span data-zone { (zone(offset(query, offset_name))) } ")" }
            input type="date" name=(name) value=(query.get(name)); }
        input type="hidden" name=(offset_name) value=(query.get(offset_name));
    }
}

/// Names a time zone by its minutes east of UTC, such as `GMT+5:30`.
fn zone(minutes: i64) -> String {
    let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
    let sign = if minutes < 0 { '-' } else { '+' };
    match (minutes, rest) {
        (0, _) => "UTC".into(),
        (_, 0) => format!("GMT{sign}{hours}"),
        (_, rest) => format!("GMT{sign}{hours}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Fields {
        Fields::of_query(Some(text))
    }

    fn billed(text: &str) -> EntrySearch {
        search(&query(text)).unwrap().billed.unwrap()
    }

    #[test]
    fn days_are_those_of_the_readers_zone() {
        let times = |text: &str| {
            let search = billed(text);
            [search.begins, search.ends].map(|at| at.map_or_else(String::new, |at| at.to_string()))
        };
        assert_eq!(times("from=2026-11-24&to=2026-11-24"), ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"]);
        let zurich = "from=2026-11-24&from_offset=60&to=2026-11-24&to_offset=60";
        assert_eq!(times(zurich), ["2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z"]);
        let kiritimati = "from=2026-11-24&from_offset=840&to=2026-11-24&to_offset=840";
        assert_eq!(times(kiritimati), ["2026-11-23T10:00:00Z", "2026-11-24T10:00:00Z"]);
        let hour = "from=2026-11-24&to=2026-11-24&hour=14";
        assert_eq!(times(hour), ["2026-11-24T14:00:00Z", "2026-11-24T15:00:00Z"]);
        assert_eq!(times("from=2026-11-24&hour=24")[0], "2026-11-24T00:00:00Z");
        // Summer time begins and ends within these days.
        let summer = "from=2026-03-29&from_offset=60&to=2026-03-29&to_offset=120";
        assert_eq!(times(summer), ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        for wrong in ["from_offset=841", "from_offset=x", "from_offset=99999999999999999999"] {
            assert_eq!(times(&format!("from=2026-11-24&{wrong}"))[0], "2026-11-24T00:00:00Z", "{wrong}");
        }
        for (minutes, name) in [(0, "UTC"), (60, "GMT+1"), (-210, "GMT-3:30"), (840, "GMT+14")] {
            assert_eq!(zone(minutes), name);
        }
    }

    #[test]
    fn a_list_without_a_first_day_begins_with_the_last_days_and_says_so_in_its_field() {
        let today = Day::parse("2026-11-24").unwrap();
        let first = |text: &str| {
            let query = query(text);
            with_days(&query, &Range::of(&query, today), today, None).get("from").to_owned()
        };
        assert_eq!(first(""), "2026-10-26");
        assert_eq!(first("model=x&to=2020-01-30"), "2020-01-01");
        assert_eq!(first("from=2020-01-01"), "2020-01-01");
        assert_eq!(first("from="), "2026-11-24", "nothing was billed yet");
        assert_eq!(
            first("range=month&from=2020-01-01&from_offset=60"),
            "2026-11-01",
            "a range with a name wins"
        );
    }

    #[test]
    fn a_group_is_searched_for() {
        let id = GroupId::new(Timestamp::from_millis(0), [7; 10]);
        assert_eq!(billed(&format!("group={id}")).group, Some(id));
        assert!(search(&query("group=agents")).is_err(), "an invalid group is refused, not ignored");
    }

    #[test]
    fn a_request_is_searched_for_among_bills_and_refused_calls() {
        let id = RequestId::new(Timestamp::from_millis(0), [7; 10]);
        let RequestSearch { billed, refused } = search(&query(&format!("request={id}"))).unwrap();
        assert_eq!((billed.unwrap().request, refused.unwrap().search.request), (Some(id), Some(id)));
        assert!(search(&query("request=gen_1")).is_err(), "an invalid id is refused, not ignored");
    }

    #[test]
    fn filters_leave_out_the_requests_that_cannot_match() {
        let kinds = |text: &str| {
            let RequestSearch { billed, refused } = search(&query(text)).unwrap();
            (billed.is_some(), refused.is_some())
        };
        assert_eq!((kinds(""), kinds("user=u-1&model=m")), ((true, true), (true, true)));
        for only_billed in ["outcome=captured", "outcome=shortfall", "upstream=eu-2"] {
            assert_eq!(kinds(only_billed), (true, false), "{only_billed}");
        }
        for only_refused in ["outcome=refused", "reason=key_expired"] {
            assert_eq!(kinds(only_refused), (false, true), "{only_refused}");
        }
        let refused = search(&query("reason=key_expired&user=u-1")).unwrap().refused.unwrap().search;
        assert_eq!((refused.reason.as_deref(), refused.user.as_deref()), (Some("key_expired"), Some("u-1")));
    }
}
