//! Renders the spend of a range: tiles with its sums, and a chart of its parts.

use std::collections::{BTreeMap, HashMap};

use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
};

use crate::{line::line, names::PartNames, range::Range};
use domain::{
    key::ApiKey,
    usage::{Day, Hour, Sums, ranked},
};
use key_service_management::{
    reach::AccountReach,
    spend::{ChartStep, SpendBy, SpendPart, SpendParts, SpendSearch},
    top::Depth,
};
use key_service_page::{
    app::App,
    chart::{Chart, Measure, Series},
    failure::Failure,
    form::{Fields, PageAddress, with},
    paths::ACTIVITY,
    show::count,
    zone::{Today, Zone},
};

/// Path of the file with a view's sums.
pub const FILE: &str = "/dashboard/spend.csv";
/// Path of the list with all parts of a view.
pub const LIST: &str = "/dashboard/spend";
/// Number of parts that have separate colours. Further parts are added up, because more colours would be hard to tell
/// apart.
const PARTS: usize = 7;

/// How a spend can be divided into parts. Each division has a name in addresses and a name on pages. The first division
/// is the default.
const PARTS_BY: [(SpendBy, &str, &str); 6] = [
    (SpendBy::Model, "", "By model"),
    (SpendBy::Key, "key", "By key"),
    (SpendBy::Group, "group", "By group"),
    (SpendBy::TopGroup, "top-group", "By top-level group"),
    (SpendBy::User, "user", "By user"),
    (SpendBy::Upstream, "upstream", "By upstream"),
];

/// Whose spend a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendScope {
    Account,
    Key(KeyId),
    /// The spend of keys while they were in this group or in one of its child groups.
    Group(GroupId),
}

/// Which spend an address asks to see, and how it is to be divided.
pub struct SpendView {
    pub scope: SpendScope,
    pub range: Range,
    pub measure: Measure,
    pub(crate) by: SpendBy,
}

pub struct SpendReport {
    pub(crate) parts: SpendParts,
    /// Sum over the days of comparison.
    pub(crate) before: Sums,
}

impl SpendView {
    /// Reads the view from an address. The spend of a key is divided only by model, and the spend of a group only by
    /// model or key.
    pub fn of(query: &Fields, scope: SpendScope, today: &Today) -> Self {
        let measure = Measure::ALL.into_iter().find(|measure| name(*measure) == query.get("show"));
        let by = Self::offered(scope).find(|(_, known, _)| *known == query.get("by"));
        Self {
            scope,
            range: Range::of(query, today),
            measure: measure.unwrap_or(Measure::Spend),
            by: by.map_or(SpendBy::Model, |(by, _, _)| by),
        }
    }

    pub(crate) fn offered(scope: SpendScope) -> impl Iterator<Item = (SpendBy, &'static str, &'static str)> {
        let most = match scope {
            SpendScope::Account => PARTS_BY.len(),
            SpendScope::Group(_) => 2,
            SpendScope::Key(_) => 1,
        };
        PARTS_BY.into_iter().take(most)
    }

    /// Returns what a bar of the chart covers: an hour if the range is a single day, otherwise a day. Sums by user
    /// exist only by day.
    pub(crate) fn step(&self) -> ChartStep {
        let is_of_a_day = self.range.days.start() == self.range.days.end();
        if is_of_a_day && self.by != SpendBy::User { ChartStep::Hour } else { ChartStep::Day }
    }

    /// Returns the name of the time zone whose days are counted. Users are counted by days in UTC.
    pub(crate) fn counted_in(&self) -> String {
        if self.by == SpendBy::User { Zone::utc().title() } else { self.range.zone.title() }
    }

    /// Says where the sums do not follow the reader's zone exactly.
    pub(crate) fn zone_note(&self) -> Markup {
        let begins = self.range.zone.begins(*self.range.days.start());
        html! {
            @if self.by == SpendBy::User && !self.range.zone.is_utc() {
                p.quiet { "Users are counted by whole days in UTC." }
            } @else if !self.range.zone.has_full_hours(begins) {
                p.quiet { "Sums are kept by full hours in UTC, so each day here begins with the first full hour." }
            }
        }
    }

    /// Reads the range's sums, and the sum over the days of comparison.
    pub async fn read(&self, app: &App, reach: AccountReach) -> Result<SpendReport, Failure> {
        self.read_to(app, reach, Depth::PAGE).await
    }

    pub(crate) async fn read_to(
        &self,
        app: &App,
        reach: AccountReach,
        depth: Depth,
    ) -> Result<SpendReport, Failure> {
        let search = |by, range| SpendSearch { range, by, step: self.step(), depth };
        let parts = self.parts(app, reach, search(self.by, self.range.summed())).await?;
        // The sum is read by model, because this division has the fewest parts, and all divisions have the same sum.
        let before = self.parts(app, reach, search(SpendBy::Model, self.range.summed_before())).await?;
        Ok(SpendReport { parts, before: total(&before) })
    }

    pub(crate) async fn parts(
        &self,
        app: &App,
        reach: AccountReach,
        search: SpendSearch,
    ) -> Result<SpendParts, Failure> {
        let management = &app.management;
        Ok(match self.scope {
            SpendScope::Account => management.spend_parts(reach.account, search).await?,
            SpendScope::Key(key) => management.spend_of_key(reach, key, search).await?,
            SpendScope::Group(group) => management.spend_of_group(reach, group, search).await?,
        })
    }

    /// Reads how much each of these keys was charged in the range while it was in the page's group.
    pub async fn charged_to(
        &self,
        app: &App,
        reach: AccountReach,
        keys: &[ApiKey],
    ) -> Result<HashMap<KeyId, NanoUsd>, Failure> {
        let SpendScope::Group(group) = self.scope else { return Ok(HashMap::new()) };
        let keys: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
        Ok(app.management.charged_in_group(reach, group, &self.range.summed(), &keys).await?)
    }

    /// Renders the range's tiles. `more` has tiles about the account, which replace the tile with the daily average.
    pub fn tiles(&self, report: &SpendReport, today: Day, more: Option<&Markup>) -> Markup {
        let (measure, range) = (self.measure, &self.range);
        let now = measure.of(total(&report.parts));
        let of_day = |day: Day| {
            let times = Hour::in_day(day, 0)..Hour::in_day(day.plus(1), 0);
            let sums = report.parts.values().flat_map(|part| part.range(times.clone()));
            sums.map(|(_, sums)| measure.of(*sums)).sum::<i64>()
        };
        let of_today = of_day(today);
        let has_today = range.days.contains(&today) && range.days.start() != range.days.end();
        html! {
            dl.tiles {
                @if has_today && more.is_none() { div.tile { dt { "Today" } dd { (measure.glance(of_today)) } } }
                div.tile { dt { (range.title()) } dd { (measure.glance(now)) (line(&range.days, of_day))
                    @if has_today && more.is_some() { small { (measure.glance(of_today)) " today" } }
                    small { (range.compared(now, measure.of(report.before))) } } }
                @if let Some(more) = more { (more) }
                @else if range.days.start() != range.days.end() {
                    div.tile { dt { "Daily average" } dd { (measure.glance(range.daily(now))) } }
                }
            }
        }
    }

    /// Renders the range's chart for the page at `path`, with links to the list of its parts and to its file.
    pub async fn card(
        &self,
        app: &App,
        reach: AccountReach,
        PageAddress { path, query }: PageAddress<'_>,
        report: &SpendReport,
    ) -> Result<Markup, Failure> {
        let all = address_of(self, LIST, query);
        let series = self.series(app, reach, report, &all).await?;
        let requests = match self.scope {
            SpendScope::Account => ACTIVITY.to_owned(),
            SpendScope::Key(id) => format!("{ACTIVITY}?key={id}"),
            SpendScope::Group(id) => format!("{ACTIVITY}?group={id}"),
        };
        let chart = Chart {
            measure: self.measure,
            days: self.range.days.clone(),
            step: self.step(),
            zone: &self.counted_in(),
            series: &series,
            requests: &requests,
        };
        let link = |field: &str, value: &str, is_chosen: bool, title: &str| {
            let query = with(query, field, value);
            let to = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
            html! { a href=(to) aria-current=[is_chosen.then_some("true")] { (title) } }
        };
        Ok(html! {
            section.card {
                div.split {
                    h2 { (self.measure.title()) @match self.step() { ChartStep::Day => " by day", ChartStep::Hour => " by hour" } }
                    div.choices {
                        nav.choice aria-label="Measure" {
                            @for measure in Measure::ALL {
                                (link("show", name(measure), measure == self.measure, measure.title()))
                            }
                        }
                        @if Self::offered(self.scope).count() > 1 {
                            nav.choice aria-label="Parts of the chart" {
                                @for (by, name, title) in Self::offered(self.scope) { (link("by", name, by == self.by, title)) }
                            }
                        }
                    }
                }
                (chart.markup())
                (self.zone_note())
                @if let Some(says) = says_of_others(&report.parts) {
                    p.quiet { (says) @if self.by != SpendBy::User { " " a href=(all) { "Compare more of them" } } }
                }
                @if !report.parts.is_empty() {
                    p.export {
                        @if self.by != SpendBy::Model { a href=(all) { "List all" } " · " }
                        a href=(address_of(self, FILE, &query.without(&["show"]))) { "Export this" }
                    }
                }
            }
        })
    }

    /// Returns the series of the chart, the largest first. Parts without a separate colour are added up to one series.
    async fn series(
        &self,
        app: &App,
        reach: AccountReach,
        report: &SpendReport,
        all: &str,
    ) -> Result<Vec<Series>, Failure> {
        let mut parts: Vec<&SpendPart> =
            report.ranked(self.measure).into_iter().map(|(part, _)| part).collect();
        let others = if parts.len() > PARTS + 1 { parts.split_off(PARTS) } else { Vec::new() };
        let names = PartNames::of(app, reach, parts.iter().copied()).await?;
        let models = app.catalog.get().ids();
        let times_of = |part: &SpendPart| report.parts.get(part).cloned().unwrap_or_default();
        let series = |part: &SpendPart| Series {
            name: if part.is_rest() {
                html! { a href=(all) { (names.text(part)) } }
            } else {
                names.shown(part)
            },
            place: place(part, &models),
            is_rest: part.is_rest(),
            times: times_of(part),
        };
        let mut series: Vec<Series> = parts.into_iter().map(series).collect();
        if !others.is_empty() {
            let mut times: BTreeMap<Hour, Sums> = BTreeMap::new();
            for (time, sums) in others.iter().filter_map(|part| report.parts.get(*part)).flatten() {
                let sum = times.entry(*time).or_default();
                *sum = sum.plus(*sums);
            }
            series.push(Series {
                name: html! { a href=(all) { (count(others.len() as u64)) " others" } },
                place: None,
                is_rest: true,
                times,
            });
        }
        Ok(series)
    }
}

impl SpendReport {
    /// Returns the sum of the range.
    pub fn total(&self) -> Sums {
        total(&self.parts)
    }

    /// Returns the sum of the days of comparison.
    pub const fn total_before(&self) -> Sums {
        self.before
    }

    /// Returns the parts with their sums, the largest first. A part that stands for all others comes last.
    pub fn ranked(&self, measure: Measure) -> Vec<(&SpendPart, Sums)> {
        let sums = self.parts.iter().map(|(part, times)| (part, sum(times)));
        let (rest, mut parts): (Vec<_>, Vec<_>) =
            ranked(sums, |sums| measure.of(sums)).into_iter().partition(|(part, _)| part.is_rest());
        parts.extend(rest);
        parts
    }
}

/// Explains the part that stands for all others, if there is such a part.
pub(crate) fn says_of_others(parts: &SpendParts) -> Option<&'static str> {
    let has = |part: SpendPart| parts.contains_key(&part);
    if has(SpendPart::OtherKeys) {
        Some(
            "This period has too many keys to compare them all. This page shows the keys with the highest spend in a \
             sample of the requests and in total; another key may have spent more.",
        )
    } else if has(SpendPart::OtherGroups) {
        Some(
            "There are too many groups to compare them all. This page shows the groups with the highest spend in total \
             and in a sample of the requests; another group may have spent more. “Other groups” includes keys \
             without a group.",
        )
    } else if has(SpendPart::OtherUsers) {
        Some(
            "About 200 users of each day are counted separately. Users that appear later in a day are summed up as \
             “Other users”.",
        )
    } else if has(SpendPart::OtherBills) {
        Some(
            "Only the latest requests of this period are counted by upstream. The rest are summed up as “Earlier \
             requests”.",
        )
    } else {
        None
    }
}

/// Returns the address of the file or the list that has the content of a view.
fn address_of(view: &SpendView, path: &str, query: &Fields) -> String {
    let query = match view.scope {
        SpendScope::Account => query.clone(),
        SpendScope::Key(id) => query.clone().with("key", id.to_string()),
        SpendScope::Group(id) => query.clone().with("group", id.to_string()),
    };
    match with(&query, "after", "") {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Returns the number that decides a part's colour. The number does not change, so the colour does not depend on how
/// much other parts spend.
fn place(part: &SpendPart, models: &[String]) -> Option<usize> {
    match part {
        SpendPart::Model(name) => models.iter().position(|model| model == name),
        SpendPart::Key(id) => id.as_bytes().last().map(|byte| usize::from(*byte)),
        SpendPart::Group(id) => id.and_then(|id| id.as_bytes().last().map(|byte| usize::from(*byte))),
        SpendPart::User(user) => user.as_ref().and_then(|user| user.bytes().last()).map(usize::from),
        SpendPart::Upstream(name) => name.as_ref().and_then(|name| name.bytes().last()).map(usize::from),
        SpendPart::OtherKeys | SpendPart::OtherGroups | SpendPart::OtherUsers | SpendPart::OtherBills => None,
    }
}

/// Returns the name of a division in addresses; empty for the default.
pub(crate) fn by_name(by: SpendBy) -> &'static str {
    PARTS_BY.into_iter().find(|(known, _, _)| *known == by).map_or("", |(_, name, _)| name)
}

/// Returns the name of a measure in addresses; empty for the default.
pub(crate) const fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Spend => "",
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
    }
}

pub(crate) fn sum(times: &BTreeMap<Hour, Sums>) -> Sums {
    times.values().fold(Sums::default(), |all, sums| all.plus(*sums))
}

pub(crate) fn total(parts: &SpendParts) -> Sums {
    parts.values().fold(Sums::default(), |all, days| all.plus(sum(days)))
}
