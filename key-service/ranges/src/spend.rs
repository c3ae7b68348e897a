//! The spend of a range: tiles with its sums, and a chart by model, key or group.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    money::NanoUsd,
};

use crate::{line::line, range::Range};
use domain::{
    group::Group,
    key::ApiKey,
    usage::{Day, Hour, Sums},
};
use key_service_management::{
    reach::AccountReach,
    spend::{ChartStep, SpendBy, SpendPart, SpendParts},
};
use key_service_page::{
    app::App,
    chart::{Chart, Measure, Series},
    failure::Failure,
    form::{Fields, PageAddress, with},
    paths::ACTIVITY,
    show::{count, name_of, or_unnamed},
};

/// Path of the file with the sums of a view.
pub const FILE: &str = "/dashboard/spend.csv";
/// Parts that have their own colours; further parts are added up.
const PARTS: usize = 5;

/// Names of the parts that a spend is shown by, in addresses and on pages. The first is the default.
const PARTS_BY: [(SpendBy, &str, &str); 4] = [
    (SpendBy::Model, "", "By model"),
    (SpendBy::Key, "key", "By key"),
    (SpendBy::Group, "group", "By group"),
    (SpendBy::User, "user", "By user"),
];

/// Whose spend a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendScope {
    Account,
    Key(KeyId),
    /// Keys while they are in this group, or in a child group of it.
    Group(GroupId),
}

/// What of a spend an address asks for.
pub struct SpendView {
    pub scope: SpendScope,
    pub range: Range,
    pub measure: Measure,
    by: SpendBy,
}

/// Sums of a view.
pub struct SpendReport {
    pub(crate) parts: SpendParts,
    /// The sum of the days that the range is compared with.
    before: Sums,
}

/// Names of the keys and groups that are parts of a spend.
pub(crate) struct PartNames {
    keys: HashMap<KeyId, ApiKey>,
    groups: HashMap<GroupId, Group>,
}

impl SpendView {
    /// Reads what an address asks for. A key has parts by model alone, and a group none by group or by user.
    pub fn of(query: &Fields, scope: SpendScope, today: Day) -> Self {
        let measure = Measure::ALL.into_iter().find(|measure| name(*measure) == query.get("show"));
        let by = Self::offered(scope).find(|(_, known, _)| *known == query.get("by"));
        Self {
            scope,
            range: Range::of(query, today),
            measure: measure.unwrap_or(Measure::Spend),
            by: by.map_or(SpendBy::Model, |(by, _, _)| by),
        }
    }

    fn offered(scope: SpendScope) -> impl Iterator<Item = (SpendBy, &'static str, &'static str)> {
        let most = match scope {
            SpendScope::Account => 4,
            SpendScope::Group(_) => 2,
            SpendScope::Key(_) => 1,
        };
        PARTS_BY.into_iter().take(most)
    }

    /// What a bar of the chart stands for: an hour of a single day. Users have no sums by hour.
    pub(crate) fn step(&self) -> ChartStep {
        let is_of_a_day = self.range.days.start() == self.range.days.end();
        if is_of_a_day && self.by != SpendBy::User { ChartStep::Hour } else { ChartStep::Day }
    }

    /// Reads the sums of the range, and the sum of the days that it is compared with.
    pub async fn read(&self, app: &App, reach: AccountReach) -> Result<SpendReport, Failure> {
        let parts = self.parts(app, reach, self.by, self.range.days.clone()).await?;
        // Models are the fewest parts, and have the same sum.
        let before = self.parts(app, reach, SpendBy::Model, self.range.before()).await?;
        Ok(SpendReport { parts, before: total(&before) })
    }

    async fn parts(
        &self,
        app: &App,
        reach: AccountReach,
        by: SpendBy,
        days: RangeInclusive<Day>,
    ) -> Result<SpendParts, Failure> {
        let (management, step) = (&app.management, self.step());
        Ok(match self.scope {
            SpendScope::Account => management.spend_parts(reach.account, by, days, step).await?,
            SpendScope::Key(key) => management.spend_of_key(reach, key, days, step).await?,
            SpendScope::Group(group) => management.spend_of_group(reach, group, by, days, step).await?,
        })
    }

    /// Reads what each of these keys was charged in the range while it was in the group of the page.
    pub async fn charged_to(
        &self,
        app: &App,
        reach: AccountReach,
        keys: &[ApiKey],
    ) -> Result<HashMap<KeyId, NanoUsd>, Failure> {
        let SpendScope::Group(group) = self.scope else { return Ok(HashMap::new()) };
        let keys: Vec<KeyId> = keys.iter().map(|key| key.id).collect();
        Ok(app.management.charged_in_group(reach, group, self.range.days.clone(), &keys).await?)
    }

    /// Makes the tiles of the range: `credit` comes first.
    pub fn tiles(&self, report: &SpendReport, today: Day, credit: Option<&Markup>) -> Markup {
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
                @if let Some(credit) = credit { (credit) }
                @if has_today { div.tile { dt { "Today" } dd { (measure.glance(of_today)) } } }
                div.tile { dt { (range.title()) } dd { (measure.glance(now)) (line(&range.days, of_day))
                    small { (range.compared(now, measure.of(report.before))) } } }
                @if has_today || range.days.start() != range.days.end() {
                    div.tile { dt { "Daily average" } dd { (measure.glance(range.daily(now))) } }
                }
            }
        }
    }

    /// Makes the chart of the range on the page at `path`, with links to its parts and to its file.
    pub async fn card(
        &self,
        app: &App,
        reach: AccountReach,
        PageAddress { path, query }: PageAddress<'_>,
        report: &SpendReport,
    ) -> Result<Markup, Failure> {
        let series = self.series(app, reach, report).await?;
        let requests = match self.scope {
            SpendScope::Account => ACTIVITY.to_owned(),
            SpendScope::Key(id) => format!("{ACTIVITY}?key={id}"),
            SpendScope::Group(id) => format!("{ACTIVITY}?group={id}"),
        };
        let chart = Chart {
            measure: self.measure,
            days: self.range.days.clone(),
            step: self.step(),
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
                @if let Some(says) = self.says_of_others(report) { p.quiet { (says) } }
                @if !report.parts.is_empty() { p.export { a href=(file_address(self, query)) { "Export this" } } }
            }
        })
    }

    /// Says what the part of others has, if it is shown.
    fn says_of_others(&self, report: &SpendReport) -> Option<&'static str> {
        let has = |part: SpendPart| report.parts.contains_key(&part);
        match self.by {
            SpendBy::Key if has(SpendPart::OtherKeys) => Some(
                "The keys that have spent most of all time are shown one by one; the others are in the sums as other keys.",
            ),
            SpendBy::Group if has(SpendPart::OtherGroups) => Some(
                "The groups that have spent most of all time are shown one by one; the others, and keys in no group, are in the sums as other groups.",
            ),
            SpendBy::User if has(SpendPart::OtherUsers) => Some(
                "The first users of each day are counted one by one, some 200; further ones are in the sums as other users.",
            ),
            SpendBy::Model | SpendBy::Key | SpendBy::Group | SpendBy::User => None,
        }
    }

    /// Makes the parts of a chart, the largest first. Parts without a colour of their own become one.
    async fn series(
        &self,
        app: &App,
        reach: AccountReach,
        SpendReport { parts, .. }: &SpendReport,
    ) -> Result<Vec<Series>, Failure> {
        let size = |(_, times): &(&SpendPart, &BTreeMap<Hour, Sums>)| Reverse(self.measure.of(sum(times)));
        let mut parts: Vec<(&SpendPart, &BTreeMap<Hour, Sums>)> = parts.iter().collect();
        parts.sort_by_key(size);
        let others = if parts.len() > PARTS + 1 { parts.split_off(PARTS) } else { Vec::new() };
        let names = PartNames::of(app, reach, parts.iter().map(|(part, _)| *part)).await?;
        let models = app.catalog.get().ids();
        let series = |(part, times): (&SpendPart, &BTreeMap<Hour, Sums>)| Series {
            name: names.shown(part),
            place: place(part, &models),
            is_rest: is_rest(part),
            times: times.clone(),
        };
        let mut series: Vec<Series> = parts.into_iter().map(series).collect();
        if !others.is_empty() {
            let mut times: BTreeMap<Hour, Sums> = BTreeMap::new();
            for (time, sums) in others.iter().flat_map(|(_, times)| *times) {
                let all = times.entry(*time).or_default();
                *all = all.plus(*sums);
            }
            series.push(Series {
                name: html! { (count(others.len() as u64)) " others" },
                place: None,
                is_rest: true,
                times,
            });
        }
        Ok(series)
    }
}

impl PartNames {
    pub(crate) async fn of(
        app: &App,
        reach: AccountReach,
        parts: impl Iterator<Item = &SpendPart>,
    ) -> Result<Self, Failure> {
        let (mut keys, mut groups) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                SpendPart::Key(id) => keys.push(*id),
                SpendPart::Group(Some(id)) => groups.push(*id),
                SpendPart::Model(_)
                | SpendPart::User(_)
                | SpendPart::Group(None)
                | SpendPart::OtherKeys
                | SpendPart::OtherGroups
                | SpendPart::OtherUsers => {}
            }
        }
        let keys = app.management.keys_by_id(reach, keys).await?;
        Ok(Self { keys, groups: app.management.groups_by_id(reach, groups).await? })
    }

    /// The name of a part; empty for a key without a label.
    pub(crate) fn text(&self, part: &SpendPart) -> String {
        match part {
            SpendPart::Model(model) => model.clone(),
            SpendPart::Key(id) => self.keys.get(id).map_or_else(String::new, |key| key.label.clone()),
            SpendPart::Group(Some(id)) => self.groups.get(id).map_or_else(|| id.to_string(), name_of),
            SpendPart::Group(None) => "No group".into(),
            SpendPart::User(user) => user.clone().unwrap_or_else(|| "No user".into()),
            SpendPart::OtherKeys => "Other keys".into(),
            SpendPart::OtherGroups => "Other groups".into(),
            SpendPart::OtherUsers => "Other users".into(),
        }
    }

    fn shown(&self, part: &SpendPart) -> Markup {
        let text = self.text(part);
        match part {
            SpendPart::Key(_) | SpendPart::Group(Some(_)) => or_unnamed(&text),
            SpendPart::User(Some(_)) => html! { bdi { (text) } },
            SpendPart::Model(_)
            | SpendPart::User(None)
            | SpendPart::Group(None)
            | SpendPart::OtherKeys
            | SpendPart::OtherGroups
            | SpendPart::OtherUsers => html! { (text) },
        }
    }
}

/// Returns the address of the file with what a view shows.
fn file_address(view: &SpendView, query: &Fields) -> String {
    let query = match view.scope {
        SpendScope::Account => query.clone(),
        SpendScope::Key(id) => query.clone().with("key", id.to_string()),
        SpendScope::Group(id) => query.clone().with("group", id.to_string()),
    };
    match with(&query, "show", "") {
        query if query.is_empty() => FILE.to_owned(),
        query => format!("{FILE}?{query}"),
    }
}

/// Returns the number that decides the colour of a part. A key and a group have one of their own, which stays the same
/// while others spend more or less.
fn place(part: &SpendPart, models: &[String]) -> Option<usize> {
    match part {
        SpendPart::Model(name) => models.iter().position(|model| model == name),
        SpendPart::Key(id) => id.as_bytes().last().map(|byte| usize::from(*byte)),
        SpendPart::Group(id) => id.and_then(|id| id.as_bytes().last().map(|byte| usize::from(*byte))),
        SpendPart::User(user) => user.as_ref().and_then(|user| user.bytes().last()).map(usize::from),
        SpendPart::OtherKeys | SpendPart::OtherGroups | SpendPart::OtherUsers => None,
    }
}

const fn is_rest(part: &SpendPart) -> bool {
    match part {
        SpendPart::OtherKeys | SpendPart::OtherGroups | SpendPart::OtherUsers => true,
        SpendPart::Model(_) | SpendPart::Key(_) | SpendPart::Group(_) | SpendPart::User(_) => false,
    }
}

/// Returns the name of a measure in the address, which is empty for the default.
const fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Spend => "",
        Measure::Requests => "requests",
        Measure::Tokens => "tokens",
    }
}

fn sum(times: &BTreeMap<Hour, Sums>) -> Sums {
    times.values().fold(Sums::default(), |all, sums| all.plus(*sums))
}

fn total(parts: &SpendParts) -> Sums {
    parts.values().fold(Sums::default(), |all, days| all.plus(sum(days)))
}
