//! Lists the parts of a spend, the largest first.

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};

use crate::{
    file::scope_of,
    names::PartNames,
    range::Range,
    spend::{FILE, LIST, SpendReport, SpendScope, SpendView, name, says_of_others, sum, total},
};
use domain::usage::{Sums, permille};
use key_service_management::{
    reach::AccountReach,
    spend::{ChartStep, SpendBy, SpendPart, SpendSearch},
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

/// Maximum number of keys in a page's table.
const TOP_KEYS: usize = 10;

struct Row<'a> {
    part: &'a SpendPart,
    sums: Sums,
    /// Sums on the days of comparison; `None` if they are not known.
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
    let view = SpendView::of(&query, scope, app.management.today());
    let pagination = Pagination::of(&query)?;
    let first = pagination.after(|rows| rows.parse::<usize>().ok())?.unwrap_or_default();
    let report = view.read_to(&app, reach, Depth::LIST).await?;
    let search =
        SpendSearch { days: view.range.before(), by: view.by, step: ChartStep::Day, depth: Depth::LIST };
    let before = view.parts(&app, reach, search).await?;
    let are_all_before = !before.keys().any(SpendPart::is_rest);
    let before_of = |part: &SpendPart| match before.get(part).map(sum) {
        None if are_all_before => Some(Sums::default()),
        found => found,
    };
    let ranked = report.ranked(view.measure);
    let rows: Vec<Row<'_>> = ranked
        .iter()
        .skip(first)
        .take(ROWS_ON_PAGE)
        .map(|(part, sums)| Row { part, sums: *sums, before: before_of(part) })
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
    let shown_as = query.only(&["range", "from", "to", "against", "by", "show"]);
    let content = html! {
        (view.range.choice(&app, LIST, &query))
        div.choices { (measures(&view, &query)) (parts(&view, &query)) }
        p { strong { (view.range.title()) } ": " (view.measure.glance(view.measure.of(whole))) " in total · "
            a href={ (back) "?" (shown_as.query()) } { "As a chart" } }
        @if rows.is_empty() { p.empty { "No requests were billed in this period." } }
        @else { (table(&view, &names, &rows, whole, title(view.by))) }
        @if let Some(says) = says_of_others(&report.parts) { p.quiet { (says) } }
        (pagination.links(LIST, &query, &shown))
        @if !rows.is_empty() { p.export { a href={ (FILE) "?" (with(&query, "after", "")) } { "Export this" } } }
    };
    Ok(page(&viewer, section, &format!("Spend by {}", title(view.by).to_lowercase()), &content))
}

/// Makes the table of the account's keys with the highest spend in a range. `report` has the data of the page's chart.
pub async fn top_keys(
    app: &App,
    reach: AccountReach,
    view: &SpendView,
    query: &Fields,
    report: &SpendReport,
) -> Result<Markup, Failure> {
    let read;
    let by_key = if view.by == SpendBy::Key {
        report
    } else {
        let search = SpendSearch {
            days: view.range.days.clone(),
            by: SpendBy::Key,
            step: ChartStep::Day,
            depth: Depth::PAGE,
        };
        read = SpendReport { parts: view.parts(app, reach, search).await?, before: Sums::default() };
        &read
    };
    let ranked = by_key.ranked(Measure::Spend);
    let top: Vec<_> = ranked.iter().take(TOP_KEYS).filter(|(part, _)| !part.is_rest()).collect();
    if top.is_empty() {
        return Ok(html! {});
    }
    let key = |part: &SpendPart| if let SpendPart::Key(id) = part { Some(*id) } else { None };
    let ids: Vec<_> = top.iter().filter_map(|(part, _)| key(part)).collect();
    let before = app.management.sums_of_keys(reach.account, view.range.before(), &ids).await?;
    let before = |part| key(part).map(|id| before.get(&id).copied().unwrap_or_default());
    let rows: Vec<Row<'_>> =
        top.iter().map(|(part, sums)| Row { part, sums: *sums, before: before(part) }).collect();
    let names = PartNames::of(app, reach, rows.iter().map(|row| row.part)).await?;
    let of_spend =
        SpendView { measure: Measure::Spend, by: SpendBy::Key, range: view.range.clone(), ..*view };
    let whole = total(&by_key.parts);
    let all = query.only(&["range", "from", "to", "against"]).with("by", "key".into());
    Ok(html! {
        h2 { "Top keys by spend" }
        (table(&of_spend, &names, &rows, whole, "Top keys by spend"))
        @if let Some(says) = says_of_others(&by_key.parts) { p.quiet { (says) } }
        @if ranked.len() > rows.len() { p { a href={ (LIST) "?" (all.query()) } { "All keys with spend" } } }
    })
}

const fn title(by: SpendBy) -> &'static str {
    match by {
        SpendBy::Model => "Model",
        SpendBy::Key => "Key",
        SpendBy::Group => "Group",
        SpendBy::User => "User",
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

/// Writes the rows with their shares of the whole, and the change since the days of comparison.
fn table(view: &SpendView, names: &PartNames, rows: &[Row<'_>], whole: Sums, name: &str) -> Markup {
    let (measure, range) = (view.measure, &view.range);
    let head = html! {
        th scope="col" { (title(view.by)) } th.n.wide-only scope="col" { "Requests" }
        th.n.wide-only scope="col" { "Tokens" } th.n scope="col" { "Spend" }
        th.n.wide-only scope="col" { "Share" }
        th.n.wide-only scope="col" title={ "Compared with " (range.before_in_words()) } { "vs. before" }
    };
    let share = |sums: Sums| match permille(measure.of(sums), measure.of(whole)) {
        Some(share) => format!("{}.{} %", share / 10, share.abs() % 10),
        None => "–".into(),
    };
    let body = html! {
        @for Row { part, sums, before } in rows {
            tr {
                th scope="row" { (names.linked(part)) }
                td.n.wide-only { (count(sums.requests)) }
                td.n.wide-only { (count(sums.tokens)) }
                td.n { (Measure::Spend.aligned(sums.charged.nanos())) p.narrow-only { (share(*sums)) } }
                td.n.wide-only { (share(*sums)) }
                td.n.wide-only { @match before {
                    Some(before) => (Range::change(measure.of(*sums), measure.of(*before))),
                    None => "–",
                } }
            }
        }
    };
    scrolled_table(name, &head, &body)
}
