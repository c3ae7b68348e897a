//! Lists the parts of a spend, the largest first.

use std::collections::BTreeMap;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};

use crate::{
    file::scope_of,
    names::PartNames,
    range::Range,
    spend::{FILE, LIST, SpendReport, SpendScope, SpendView, by_name, name, says_of_others, sum, total},
};
use domain::usage::{Sums, permille};
use key_service_management::{
    reach::AccountReach,
    spend::{ChartStep, SpendBy, SpendPart, SpendParts, SpendSearch},
    top::Depth,
};
use key_service_page::{
    app::App,
    chart::Measure,
    failure::Failure,
    form::{Fields, query, with},
    layout::{Section, page},
    pagination::{Pagination, ROWS_ON_PAGE, Shown},
    paths::{GROUPS, HOME, KEYS},
    session::KeysViewer,
    show::{count, scrolled_table},
};

/// Maximum number of parts in a page's table.
const TOP: usize = 10;

struct Row<'a> {
    part: &'a SpendPart,
    sums: Sums,
    /// The part's sums on the days with which the range is compared; `None` if they are unknown.
    before: Option<Sums>,
}

/// Lists all parts of a spend.
pub async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let (reach, query) = (viewer.reach(), query(&request));
    let scope = scope_of(&query, reach)?;
    let view = SpendView::of(&query, scope, &viewer.today(&app));
    let pagination = Pagination::of(&query)?;
    let first = pagination.after(|rows| rows.parse::<usize>().ok())?.unwrap_or_default();
    let report = view.read_to(&app, reach, Depth::LIST).await?;
    let search = SpendSearch {
        range: view.range.summed_before(),
        by: view.by,
        step: ChartStep::Day,
        depth: Depth::LIST,
    };
    let before = view.parts(&app, reach, search).await?;
    let before = SumsBefore::of_parts(&before);
    let ranked = report.ranked(view.measure);
    let rows: Vec<Row<'_>> = ranked
        .iter()
        .skip(first)
        .take(ROWS_ON_PAGE)
        .map(|(part, sums)| Row { part, sums: *sums, before: before.of(part) })
        .collect();
    let names = PartNames::of(&app, reach, rows.iter().map(|row| row.part)).await?;
    let next = Some(first + rows.len()).filter(|next| *next < ranked.len());
    let shown = Shown {
        rows: rows.len(),
        total: Some(ranked.len() as u64),
        next: next.map(|next| next.to_string()),
        is_filtered: false,
    };
    let whole = total(&report.parts);
    let (section, back) = match scope {
        SpendScope::Account => (Section::Overview, HOME.to_owned()),
        SpendScope::Group(id) => (Section::Groups, format!("{GROUPS}/{id}")),
        SpendScope::Key(id) => (Section::Keys, format!("{KEYS}/{id}")),
    };
    let (measure, by, range, names) = (view.measure, view.by, &view.range, &names);
    let table = PartsTable { measure, by, range, names, whole, others: None };
    let shown_as = query.only(&["range", "from", "to", "against", "by", "show"]);
    let content = html! {
        (view.range.choice(&app, LIST, &query))
        div.choices { (measures(&view, &query)) (parts(&view, &query)) }
        p { strong { (view.range.title()) } ": " (view.measure.glance(view.measure.of(whole))) " in total · "
            a href={ (back) "?" (shown_as.query()) } { "As a chart" } }
        @if rows.is_empty() { p.empty { "No requests were billed in this period." } }
        @else { (table.markup(&rows, title(view.by))) }
        @if let Some(says) = says_of_others(&report.parts) { p.quiet { (says) } }
        (view.zone_note())
        (pagination.links(LIST, &query, &shown))
        @if !rows.is_empty() { p.export { a href={ (FILE) "?" (with(&query, "after", "")) } { "Export this" } } }
    };
    Ok(page(&viewer, section, &format!("Spend by {}", title(view.by).to_lowercase()), &content))
}

/// Renders the table of the largest parts in a range. `report` has the data of the page's chart. If the chart is by
/// model, the table lists keys instead.
pub async fn top_parts(
    app: &App,
    reach: AccountReach,
    view: &SpendView,
    query: &Fields,
    report: &SpendReport,
) -> Result<Markup, Failure> {
    let by = if view.by == SpendBy::Model { SpendBy::Key } else { view.by };
    let search = |range| SpendSearch { range, by, step: ChartStep::Day, depth: Depth::PAGE };
    let read;
    let report = if view.by == by {
        report
    } else {
        let parts = view.parts(app, reach, search(view.range.summed())).await?;
        read = SpendReport { parts, before: Sums::default() };
        &read
    };
    let ranked = report.ranked(Measure::Spend);
    let (rest, separate): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(part, _)| part.is_rest());
    if separate.is_empty() {
        return Ok(html! {});
    }
    let (top, behind) = separate.split_at(separate.len().min(TOP));
    let before = before(app, reach, view, by, top).await?;
    let rows: Vec<Row<'_>> =
        top.iter().map(|(part, sums)| Row { part, sums: *sums, before: before.of(part) }).collect();
    let names = PartNames::of(app, reach, rows.iter().map(|row| row.part)).await?;
    let all = query.only(&["range", "from", "to", "against"]).with("by", by_name(by).into());
    let all = format!("{LIST}?{}", all.query());
    let others = behind.iter().chain(&rest).fold(Sums::default(), |sum, (_, sums)| sum.plus(*sums));
    let others = (others != Sums::default()).then(|| OtherParts {
        title: if rest.is_empty() {
            format!("{} others", count(behind.len() as u64))
        } else {
            "Others".into()
        },
        address: &all,
        sums: others,
    });
    let title = format!("Top {} in this period", plural(by));
    let table = PartsTable {
        measure: Measure::Spend,
        by,
        range: &view.range,
        names: &names,
        whole: total(&report.parts),
        others,
    };
    Ok(html! {
        section.top {
            h2 { (title) }
            (table.markup(&rows, &title))
            @if let Some(says) = says_of_others(&report.parts) { p.quiet { (says) } }
            @if !behind.is_empty() || !rest.is_empty() { p { a href=(all) { "All " (plural(by)) " with spend" } } }
        }
    })
}

/// Sums on the days with which a range is compared.
struct SumsBefore {
    sums: BTreeMap<SpendPart, Sums>,
    /// Whether `sums` has all parts with spend, so that a part without a sum had no spend.
    are_all: bool,
}

impl SumsBefore {
    fn of_parts(parts: &SpendParts) -> Self {
        let sums = parts.iter().map(|(part, times)| (part.clone(), sum(times))).collect();
        Self { sums, are_all: !parts.keys().any(SpendPart::is_rest) }
    }

    fn of(&self, part: &SpendPart) -> Option<Sums> {
        self.sums.get(part).copied().or(self.are_all.then(Sums::default))
    }
}

/// Reads the sums that the largest parts of a range had on the days of comparison. Keys are read one by one, so their
/// sums are known however many keys there are.
async fn before(
    app: &App,
    reach: AccountReach,
    view: &SpendView,
    by: SpendBy,
    top: &[(&SpendPart, Sums)],
) -> Result<SumsBefore, Failure> {
    let range = view.range.summed_before();
    if by != SpendBy::Key {
        let search = SpendSearch { range, by, step: ChartStep::Day, depth: Depth::PAGE };
        return Ok(SumsBefore::of_parts(&view.parts(app, reach, search).await?));
    }
    let key = |part: &SpendPart| if let SpendPart::Key(id) = part { Some(*id) } else { None };
    let ids: Vec<_> = top.iter().filter_map(|(part, _)| key(part)).collect();
    let sums = app.management.sums_of_keys(reach.account, &range, &ids).await?;
    let sums = sums.into_iter().map(|(id, sums)| (SpendPart::Key(id), sums)).collect();
    Ok(SumsBefore { sums, are_all: true })
}

const fn title(by: SpendBy) -> &'static str {
    match by {
        SpendBy::Model => "Model",
        SpendBy::Key => "Key",
        SpendBy::Group => "Group",
        SpendBy::TopGroup => "Top-level group",
        SpendBy::User => "User",
        SpendBy::Upstream => "Upstream",
    }
}

const fn plural(by: SpendBy) -> &'static str {
    match by {
        SpendBy::Model => "models",
        SpendBy::Key => "keys",
        SpendBy::Group => "groups",
        SpendBy::TopGroup => "top-level groups",
        SpendBy::User => "users",
        SpendBy::Upstream => "upstreams",
    }
}

fn measures(view: &SpendView, query: &Fields) -> Markup {
    html! {
        nav.choice aria-label="Measure" {
            @for measure in Measure::ALL {
                a href={ (LIST) "?" (with(&query.without(&["after"]), "show", name(measure))) }
                    aria-current=[(measure == view.measure).then_some("true")] { (measure.title()) }
            }
        }
    }
}

fn parts(view: &SpendView, query: &Fields) -> Markup {
    html! {
        @if SpendView::offered(view.scope).count() > 1 {
            nav.choice aria-label="Parts of the list" {
                @for (by, name, title) in SpendView::offered(view.scope) {
                    a href={ (LIST) "?" (with(&query.without(&["after"]), "by", name)) }
                        aria-current=[(by == view.by).then_some("true")] { (title) }
                }
            }
        }
    }
}

/// A table of parts with their shares of the whole, and how they differ from the days of comparison.
struct PartsTable<'a> {
    measure: Measure,
    by: SpendBy,
    range: &'a Range,
    names: &'a PartNames,
    whole: Sums,
    /// The sum of the parts that have no row.
    others: Option<OtherParts<'a>>,
}

/// The sum of the parts that a table does not list.
struct OtherParts<'a> {
    title: String,
    /// Address of the list of all parts.
    address: &'a str,
    sums: Sums,
}

impl PartsTable<'_> {
    fn markup(&self, rows: &[Row<'_>], name: &str) -> Markup {
        let head = html! {
            th scope="col" { (title(self.by)) } th.n.wide-only scope="col" { "Requests" }
            th.n.wide-only scope="col" { "Tokens" } th.n scope="col" { "Spend" }
            th.n.wide-only scope="col" { "Share" }
            th.n.wide-only scope="col" title={ "Compared with " (self.range.before_in_words()) } { "vs. before" }
        };
        let change = |sums: Sums, before: Option<Sums>| match before {
            Some(before) => Range::change(self.measure.of(sums), self.measure.of(before)),
            None => "–".into(),
        };
        let body = html! {
            @for Row { part, sums, before } in rows {
                (self.row(&self.names.linked(part), *sums, &change(*sums, *before)))
            }
            @if let Some(OtherParts { title, address, sums }) = &self.others {
                (self.row(&html! { a href=(address) { (title) } }, *sums, "–"))
            }
        };
        scrolled_table(name, &head, &body)
    }

    fn row(&self, name: &Markup, sums: Sums, change: &str) -> Markup {
        let share = match permille(self.measure.of(sums), self.measure.of(self.whole)) {
            Some(share) => format!("{}.{} %", share / 10, share.abs() % 10),
            None => "–".into(),
        };
        html! {
            tr {
                th scope="row" { (name) }
                td.n.wide-only { (count(sums.requests)) }
                td.n.wide-only { (count(sums.tokens)) }
                td.n { (Measure::Spend.aligned(sums.charged.nanos())) p.narrow-only { (share) " · " (change) } }
                td.n.wide-only { (share) }
                td.n.wide-only { (change) }
            }
        }
    }
}
