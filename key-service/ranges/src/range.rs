//! A range of days, as an address gives it. Renders links to other ranges and to the comparison with earlier days.

use std::ops::RangeInclusive;

use maud::{Markup, html};
use shared::money::NanoUsd;

use domain::usage::Day;
use key_service_management::{local_days::LocalDays, spend::DAYS, statement::Month, usage::MAX_DAYS};
use key_service_page::{
    app::App,
    form::{Fields, with},
    zone::{Today, Zone},
};

/// Number of days between a day and its day of comparison in the previous year.
const YEAR: i64 = 365;

/// How a range was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Today,
    /// This many days, today included.
    Last(i64),
    ThisMonth,
    LastMonth,
    /// From one date to another.
    Dates,
}

/// Named ranges, each with its name in addresses and its name on pages.
const SPANS: [(Span, &str, &str); 6] = [
    (Span::Today, "today", "Today"),
    (Span::Last(7), "7", "7 days"),
    (Span::Last(DAYS), "30", "30 days"),
    (Span::Last(90), "90", "90 days"),
    (Span::ThisMonth, "month", "This month"),
    (Span::LastMonth, "last-month", "Last month"),
];

/// Fields of an address that give its range. `days` is an older name of `range`, and `hour` is an hour of a single day.
const FIELDS: [&str; 5] = ["range", "days", "from", "to", "hour"];

/// A range of at most [`MAX_DAYS`] days, and what to compare it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub days: RangeInclusive<Day>,
    pub zone: Zone,
    span: Span,
    pub(crate) is_against_year: bool,
}

impl Range {
    /// Reads the range from an address. Without a range, it is the last [`DAYS`] days.
    pub fn of(query: &Fields, today: &Today) -> Self {
        let (today, zone) = (today.day, today.zone.clone());
        let name = query.filled("range").or_else(|| query.filled("days"));
        let named = SPANS.into_iter().find(|(_, known, _)| Some(*known) == name).map(|(span, _, _)| span);
        let [from, to] = ["from", "to"].map(|field| query.filled(field).and_then(Day::parse));
        let has_dates = from.is_some() || to.is_some();
        let span = named.unwrap_or(if has_dates { Span::Dates } else { Span::Last(DAYS) });
        let days = match span {
            Span::Today => today..=today,
            Span::Last(days) => today.plus(1 - days)..=today,
            Span::ThisMonth => Month::of(today).first..=today,
            Span::LastMonth => {
                let Month { first, last } = Month::of(today).before();
                first..=last
            }
            Span::Dates => {
                let last = to.unwrap_or(today).min(today);
                let first = from.unwrap_or_else(|| last.plus(1 - DAYS)).min(last);
                first.max(last.plus(1 - MAX_DAYS))..=last
            }
        };
        Self { days, zone, span, is_against_year: query.get("against") == "year" }
    }

    /// Returns whether the address has the name of a range instead of dates.
    pub fn is_named(&self, query: &Fields) -> bool {
        self.span != Span::Dates && ["range", "days"].iter().any(|field| query.filled(field).is_some())
    }

    fn length(&self) -> i64 {
        self.days.end().number() - self.days.start().number() + 1
    }

    /// Returns the range's days, for sums.
    pub fn summed(&self) -> LocalDays {
        self.zone.days(self.days.clone())
    }

    /// Returns the days to compare this range with, for sums.
    pub(crate) fn summed_before(&self) -> LocalDays {
        self.zone.days(self.before())
    }

    /// Returns the days to compare this range with.
    pub fn before(&self) -> RangeInclusive<Day> {
        if self.is_against_year { self.year_before() } else { self.previous() }
    }

    fn previous(&self) -> RangeInclusive<Day> {
        let (first, length) = (*self.days.start(), self.length());
        match self.span {
            Span::Today | Span::Last(_) | Span::Dates => first.plus(-length)..=first.plus(-1),
            Span::ThisMonth => {
                let Month { first, last } = Month::of(first).before();
                first..=last.min(first.plus(length - 1))
            }
            Span::LastMonth => {
                let Month { first, last } = Month::of(first).before();
                first..=last
            }
        }
    }

    fn year_before(&self) -> RangeInclusive<Day> {
        self.days.start().plus(-YEAR)..=self.days.end().plus(-YEAR)
    }

    /// Describes the default days of comparison.
    fn previous_in_words(&self) -> String {
        match (self.span, self.length()) {
            (Span::Today, _) => "yesterday".into(),
            (Span::ThisMonth, _) => "the same days of the month before".into(),
            (Span::LastMonth, _) => "the month before".into(),
            (Span::Last(_) | Span::Dates, 1) => "the day before".into(),
            (Span::Last(_) | Span::Dates, days) => format!("the previous {days} days"),
        }
    }

    /// Returns the name of the range, for the title of a sum.
    pub fn title(&self) -> String {
        match self.span {
            Span::Today => "Today".into(),
            Span::Last(days) => format!("Last {days} days"),
            Span::ThisMonth => "This month".into(),
            Span::LastMonth => "Last month".into(),
            Span::Dates if self.length() == 1 => self.days.start().to_string(),
            Span::Dates => format!("{} to {}", self.days.start(), self.days.end()),
        }
    }

    /// Describes in a short form how an amount differs from the amount before.
    pub(crate) fn change(now: i64, before: i64) -> String {
        if before <= 0 {
            return if now > 0 { "new".into() } else { "–".into() };
        }
        match (i128::from(now) - i128::from(before)) * 100 / i128::from(before) {
            0 => "±0 %".into(),
            percent @ 1.. => format!("↑ {percent} %"),
            percent => format!("↓ {} %", -percent),
        }
    }

    /// Describes the days of comparison.
    pub(crate) fn before_in_words(&self) -> String {
        if self.is_against_year { "a year before".into() } else { self.previous_in_words() }
    }

    /// Describes how an amount differs from the amount on the days of comparison.
    pub fn compared(&self, now: i64, before: i64) -> String {
        let days = self.before_in_words();
        if before <= 0 {
            let within = if days.starts_with("the ") { "in " } else { "" };
            return format!("Nothing {within}{days}");
        }
        let percent = (i128::from(now) - i128::from(before)) * 100 / i128::from(before);
        match percent {
            0 => format!("No change vs. {days}"),
            1.. => format!("↑ {percent} % vs. {days}"),
            _ => format!("↓ {} % vs. {days}", -percent),
        }
    }

    /// Describes how charges differ from the charges on the days of comparison.
    pub fn compared_charges(&self, now: NanoUsd, before: NanoUsd) -> String {
        self.compared(now.nanos(), before.nanos())
    }

    /// Returns the header that saves a file under a name with the range's days.
    pub fn attachment(&self, name: &str, extension: &str) -> String {
        let (first, last) = (self.days.start(), self.days.end());
        format!("attachment; filename=\"{name}-{first}-to-{last}.{extension}\"")
    }

    /// Returns the average amount per day.
    pub fn daily(&self, amount: i64) -> i64 {
        amount / self.length()
    }

    /// Renders the controls for choosing a range on the page at `path`: links to other ranges, inputs for dates, and
    /// the comparison. The links keep the other fields of the address.
    pub fn choice(&self, app: &App, path: &str, query: &Fields) -> Markup {
        let dates = &self.days;
        html! {
            div.range {
                (self.links(path, query))
                details.dates {
                    summary { "Other dates" }
                    form.row method="get" action=(path) {
                        @for (name, value) in others(query).pairs() { input type="hidden" name=(name) value=(value); }
                        label { "From" input type="date" name="from" required value=(dates.start().to_string()); }
                        label { "To" input type="date" name="to" required value=(dates.end().to_string()); }
                        button { "Show" }
                    }
                }
                (self.against(app, path, query))
            }
        }
    }

    /// Like [`Self::choice`], but without inputs for dates, for a page that has them among its filters.
    pub fn choice_beside_dates(&self, app: &App, path: &str, query: &Fields) -> Markup {
        html! { div.range { (self.links(path, query)) (self.against(app, path, query)) } }
    }

    /// Renders the links to the named ranges.
    pub fn links(&self, path: &str, query: &Fields) -> Markup {
        html! {
            nav.choice aria-label="Range" data-live {
                @for (span, name, title) in SPANS {
                    a href=(address(path, &others(query).with("range", name.to_owned()))) aria-current=[(span == self.span).then_some("true")] { (title) }
                }
                @if self.span == Span::Dates { a href=(address(path, query)) aria-current="true" { (self.title()) } }
            }
        }
    }

    /// Renders the links to the possible comparisons. The previous year is offered only if its sums are still kept.
    fn against(&self, app: &App, path: &str, query: &Fields) -> Markup {
        let has_year = app.management.has_counters_of(Month::of(*self.year_before().start()));
        let link = |value: &str, is_chosen: bool, title: &str| {
            let to = address(path, &query.clone().with("against", value.to_owned()));
            html! { a href=(to) aria-current=[is_chosen.then_some("true")] { (title) } }
        };
        html! {
            @if has_year || self.is_against_year {
                div.against {
                    span.quiet { "compared with" }
                    nav.choice aria-label="Compared with" {
                        (link("", !self.is_against_year, &self.previous_in_words()))
                        (link("year", self.is_against_year, "a year before"))
                    }
                }
            }
        }
    }
}

/// Returns the fields of an address without those for the range and for the place in a list.
fn others(query: &Fields) -> Fields {
    query.without(&FIELDS).without(&["after"])
}

/// Writes an address without empty fields.
fn address(path: &str, query: &Fields) -> String {
    let query = with(query, "after", "");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(query: &str, today: &str) -> Range {
        let today = Today { day: Day::parse(today).unwrap(), zone: Zone::utc() };
        Range::of(&Fields::of_query(Some(query)), &today)
    }

    fn dates(days: &RangeInclusive<Day>) -> String {
        format!("{} {}", days.start(), days.end())
    }

    #[test]
    fn a_range_has_its_days_and_those_that_it_is_compared_with() {
        for (query, days, before, words) in [
            ("", "2026-10-27 2026-11-25", "2026-09-27 2026-10-26", "the previous 30 days"),
            ("days=90", "2026-08-28 2026-11-25", "2026-05-30 2026-08-27", "the previous 90 days"),
            ("range=today", "2026-11-25 2026-11-25", "2026-11-24 2026-11-24", "yesterday"),
            (
                "range=month",
                "2026-11-01 2026-11-25",
                "2026-10-01 2026-10-25",
                "the same days of the month before",
            ),
            ("range=last-month", "2026-10-01 2026-10-31", "2026-09-01 2026-09-30", "the month before"),
            (
                "from=2026-11-02&to=2026-11-03",
                "2026-11-02 2026-11-03",
                "2026-10-31 2026-11-01",
                "the previous 2 days",
            ),
            (
                "from=2026-11-02&to=2026-11-02",
                "2026-11-02 2026-11-02",
                "2026-11-01 2026-11-01",
                "the day before",
            ),
            (
                "range=7&from=2026-11-02",
                "2026-11-19 2026-11-25",
                "2026-11-12 2026-11-18",
                "the previous 7 days",
            ),
            ("range=7&against=year", "2026-11-19 2026-11-25", "2025-11-19 2025-11-25", "the previous 7 days"),
        ] {
            let range = range(query, "2026-11-25");
            assert_eq!((dates(&range.days), dates(&range.before())), (days.into(), before.into()), "{query}");
            assert_eq!(range.previous_in_words(), words, "{query}");
        }
        let march = range("range=month", "2027-03-31");
        assert_eq!(dates(&march.before()), "2027-02-01 2027-02-28", "no more days than the month has");
    }

    #[test]
    fn dates_that_cannot_be_are_cut() {
        for (query, days) in [
            ("from=2026-11-30", "2026-11-25 2026-11-25"),
            ("from=2026-11-20&to=2026-11-10", "2026-11-10 2026-11-10"),
            ("from=1970-01-01", "2025-10-22 2026-11-25"),
            ("from=x&to=&range=y", "2026-10-27 2026-11-25"),
        ] {
            assert_eq!(dates(&range(query, "2026-11-25").days), days, "{query}");
        }
    }

    #[test]
    fn a_word_says_how_an_amount_changed() {
        let changes = [(138, 100), (50, 100), (1_001, 1_000), (5, 0), (0, 0), (0, 7)];
        let words = changes.map(|(now, before)| Range::change(now, before));
        assert_eq!(words, ["↑ 38 %", "↓ 50 %", "±0 %", "new", "–", "↓ 100 %"]);
    }

    #[test]
    fn a_sentence_compares_an_amount_with_the_days_before() {
        let days = range("range=7", "2026-11-25");
        assert_eq!(days.compared(138, 100), "↑ 38 % vs. the previous 7 days");
        assert_eq!(days.compared(50, 100), "↓ 50 % vs. the previous 7 days");
        assert_eq!(days.compared(1_001, 1_000), "No change vs. the previous 7 days");
        assert_eq!(days.compared(5, 0), "Nothing in the previous 7 days");
        assert_eq!(range("range=today", "2026-11-25").compared(5, 0), "Nothing yesterday");
        assert_eq!(range("against=year", "2026-11-25").compared(2, 1), "↑ 100 % vs. a year before");
    }
}
