//! The spend of a range: tiles with its sums, and a chart by model, key or group.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use maud::{Markup, html};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use crate::range::Range;
use domain::{
    group::Group,
    key::ApiKey,
    usage::{Day, Sums},
};
use key_service_management::spend::{SpendBy, SpendPart, SpendParts, of_models};
use key_service_page::{
    app::App,
    chart::{Chart, Measure, Series},
    failure::Failure,
    form::{Fields, PageAddress, with},
    paths::ACTIVITY,
    show::{name_of, or_unnamed},
};

/// Path of the file with the sums of a view.
pub const FILE: &str = "/dashboard/spend.csv";
/// Parts that have their own colours; further parts are added up.
const PARTS: usize = 5;

/// Names of the parts that a spend is shown by, in addresses and on pages. The first is the default.
const PARTS_BY: [(SpendBy, &str, &str); 3] = [
    (SpendBy::Model, "", "By model"),
    (SpendBy::Key, "key", "By key"),
    (SpendBy::Group, "group", "By group"),
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
    /// Sums by key, if the page is a group's.
    keys: SpendParts,
    /// The sum of the days that the range is compared with.
    before: Sums,
}

/// Names of the keys and groups that are parts of a spend.
pub(crate) struct PartNames {
    keys: HashMap<KeyId, ApiKey>,
    groups: HashMap<GroupId, Group>,
}

impl SpendView {
    /// Reads what an address asks for. A key has parts by model alone, and a group none by group.
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
            SpendScope::Account => 3,
            SpendScope::Group(_) => 2,
            SpendScope::Key(_) => 1,
        };
        PARTS_BY.into_iter().take(most)
    }

    /// Reads the sums of the range, and of the days that it is compared with: together, unless they are a year apart.
    pub async fn read(&self, app: &App, account: AccountId) -> Result<SpendReport, Failure> {
        let (days, before) = (&self.range.days, self.range.before());
        if self.range.is_against_year {
            let [parts, keys] = self.parts(app, account, days.clone()).await?;
            let [of_year_before, _] = self.parts(app, account, before).await?;
            return Ok(SpendReport { parts, keys, before: total(&of_year_before) });
        }
        let [mut parts, mut keys] = self.parts(app, account, *before.start()..=*days.end()).await?;
        let before = total(&cut(parts.clone(), &before));
        (parts, keys) = (cut(parts, days), cut(keys, days));
        Ok(SpendReport { parts, keys, before })
    }

    /// Reads the parts of the view, and those by key if it is of a group.
    async fn parts(
        &self,
        app: &App,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<[SpendParts; 2], Failure> {
        let management = &app.management;
        let parts = match self.scope {
            SpendScope::Account => management.spend_parts(account, self.by, days).await?,
            SpendScope::Key(key) => of_models(management.spend_of(account, key, days).await?),
            SpendScope::Group(group) => {
                let [models, keys] = management.spend_of_group(account, group, days).await?;
                return Ok([if self.by == SpendBy::Key { keys.clone() } else { models }, keys]);
            }
        };
        Ok([parts, SpendParts::new()])
    }

    /// Makes the tiles of the range: `credit` comes first.
    pub fn tiles(&self, report: &SpendReport, today: Day, credit: Option<&Markup>) -> Markup {
        let (measure, range) = (self.measure, &self.range);
        let now = measure.of(total(&report.parts));
        let of_today = report.parts.values().filter_map(|days| days.get(&today));
        let of_today = measure.of(of_today.fold(Sums::default(), |all, sums| all.plus(*sums)));
        let has_today = range.days.contains(&today) && range.days.start() != range.days.end();
        html! {
            dl.tiles {
                @if let Some(credit) = credit { (credit) }
                @if has_today { div.tile { dt { "Today" } dd { (measure.glance(of_today)) } } }
                div.tile { dt { (range.title()) } dd { (measure.glance(now))
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
        account: AccountId,
        PageAddress { path, query }: PageAddress<'_>,
        report: &SpendReport,
    ) -> Result<Markup, Failure> {
        let series = self.series(app, account, report).await?;
        let requests = match self.scope {
            SpendScope::Account => ACTIVITY.to_owned(),
            SpendScope::Key(id) => format!("{ACTIVITY}?key={id}"),
            SpendScope::Group(id) => format!("{ACTIVITY}?group={id}"),
        };
        let chart = Chart {
            measure: self.measure,
            days: self.range.days.clone(),
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
                    h2 { (self.measure.title()) " by day" }
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
                @if !report.parts.is_empty() { p.export { a href=(file_address(self, query)) { "Export this" } } }
            }
        })
    }

    /// Makes the parts of a chart, the largest first. Parts without a colour of their own become one.
    async fn series(
        &self,
        app: &App,
        account: AccountId,
        SpendReport { parts, .. }: &SpendReport,
    ) -> Result<Vec<Series>, Failure> {
        let size = |(_, days): &(&SpendPart, &BTreeMap<Day, Sums>)| Reverse(self.measure.of(sum(days)));
        let mut parts: Vec<(&SpendPart, &BTreeMap<Day, Sums>)> = parts.iter().collect();
        parts.sort_by_key(size);
        let others = if parts.len() > PARTS + 1 { parts.split_off(PARTS) } else { Vec::new() };
        let names = PartNames::of(app, account, parts.iter().map(|(part, _)| *part)).await?;
        let models = app.catalog.get().ids();
        let series = |(part, days): (&SpendPart, &BTreeMap<Day, Sums>)| Series {
            name: names.shown(part),
            place: place(part, &models),
            is_rest: *part == SpendPart::OtherKeys,
            days: days.clone(),
        };
        let mut series: Vec<Series> = parts.into_iter().map(series).collect();
        if !others.is_empty() {
            let mut days: BTreeMap<Day, Sums> = BTreeMap::new();
            for (day, sums) in others.iter().flat_map(|(_, days)| *days) {
                let all = days.entry(*day).or_default();
                *all = all.plus(*sums);
            }
            series.push(Series {
                name: html! { (others.len()) " others" },
                place: None,
                is_rest: true,
                days,
            });
        }
        Ok(series)
    }
}

impl SpendReport {
    /// Returns the charges of a key of the group in the range.
    pub fn charged_to(&self, key: KeyId) -> NanoUsd {
        self.keys.get(&SpendPart::Key(key)).map(sum).unwrap_or_default().charged
    }
}

impl PartNames {
    pub(crate) async fn of(
        app: &App,
        account: AccountId,
        parts: impl Iterator<Item = &SpendPart>,
    ) -> Result<Self, Failure> {
        let (mut keys, mut groups) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                SpendPart::Key(id) => keys.push(*id),
                SpendPart::Group(Some(id)) => groups.push(*id),
                SpendPart::Model(_) | SpendPart::Group(None) | SpendPart::OtherKeys => {}
            }
        }
        let keys = app.management.keys_by_id(account, keys).await?;
        Ok(Self { keys, groups: app.management.groups_by_id(account, groups).await? })
    }

    /// The name of a part; empty for a key without a label.
    pub(crate) fn text(&self, part: &SpendPart) -> String {
        match part {
            SpendPart::Model(model) => model.clone(),
            SpendPart::Key(id) => self.keys.get(id).map_or_else(String::new, |key| key.label.clone()),
            SpendPart::Group(Some(id)) => self.groups.get(id).map_or_else(|| id.to_string(), name_of),
            SpendPart::Group(None) => "No group".into(),
            SpendPart::OtherKeys => "Other keys".into(),
        }
    }

    fn shown(&self, part: &SpendPart) -> Markup {
        let text = self.text(part);
        match part {
            SpendPart::Key(_) | SpendPart::Group(Some(_)) => or_unnamed(&text),
            SpendPart::Model(_) | SpendPart::Group(None) | SpendPart::OtherKeys => html! { (text) },
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
        SpendPart::OtherKeys => None,
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

fn sum(days: &BTreeMap<Day, Sums>) -> Sums {
    days.values().fold(Sums::default(), |all, sums| all.plus(*sums))
}

/// Returns the parts on these days.
fn cut(parts: SpendParts, days: &RangeInclusive<Day>) -> SpendParts {
    let on_days = parts.into_iter().map(|(part, mut sums)| {
        sums.retain(|day, _| days.contains(day));
        (part, sums)
    });
    on_days.filter(|(_, sums)| !sums.is_empty()).collect()
}

fn total(parts: &SpendParts) -> Sums {
    parts.values().fold(Sums::default(), |all, days| all.plus(sum(days)))
}
