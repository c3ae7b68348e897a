//! Writes the sums of a range as a file for spreadsheets.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::header;

use crate::{
    names::PartNames,
    spend::{SpendScope, SpendView},
};
use domain::usage::{Hour, Sums};
use key_service_management::{
    reach::AccountReach,
    spend::{ChartStep, SpendPart},
    top::Depth,
};
use key_service_page::{
    app::App,
    csv::cell,
    failure::Failure,
    form::{Fields, query},
    session::KeysViewer,
};

/// Columns. Scripts rely on their names: add columns, but never rename one.
const HEAD: &str = "day,part,id,name,requests,tokens,charged,hour,zone\r\n";

/// Finds out whose spend an address requests. Without a key or a group, it is the group's spend for the lead of a
/// group, and the account's spend for other members.
pub(crate) fn scope_of(query: &Fields, reach: AccountReach) -> Result<SpendScope, Failure> {
    Ok(match (query.id("key")?, query.id("group")?.or(reach.group)) {
        (Some(key), _) => SpendScope::Key(key),
        (None, Some(group)) => SpendScope::Group(group),
        (None, None) => SpendScope::Account,
    })
}

/// Answers with one line for each part and each day or, if the range is a single day, for each part and each hour. All
/// measures and all parts are included.
pub async fn csv(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    let (reach, query) = (viewer.reach(), query(&request));
    let scope = scope_of(&query, reach)?;
    let view = SpendView::of(&query, scope, &viewer.today(&app));
    let zone = view.counted_in();
    let report = view.read_to(&app, reach, Depth::LIST).await?;
    let names = PartNames::of(&app, reach, report.parts.keys()).await?;
    let mut lines = Vec::new();
    for (part, times) in &report.parts {
        let (kind, id) = match part {
            SpendPart::Model(model) => ("model", cell(model)),
            SpendPart::Key(id) => ("key", id.to_string()),
            SpendPart::Group(id) => ("group", id.map_or_else(String::new, |id| id.to_string())),
            SpendPart::User(user) => ("user", cell(user.as_deref().unwrap_or_default())),
            SpendPart::OtherKeys => ("key", String::new()),
            SpendPart::OtherGroups => ("group", String::new()),
            SpendPart::OtherUsers => ("user", String::new()),
            SpendPart::Upstream(upstream) => ("upstream", cell(upstream.as_deref().unwrap_or_default())),
            SpendPart::OtherBills => ("upstream", String::new()),
        };
        let name = cell(&names.text(part));
        let line = |(time, sums): (&Hour, &Sums)| {
            let (day, Sums { requests, tokens, charged }) = (time.day(), sums);
            let hour = match view.step() {
                ChartStep::Day => String::new(),
                ChartStep::Hour => time.of_day().to_string(),
            };
            (*time, format!("{day},{kind},{id},{name},{requests},{tokens},{charged},{hour},{zone}\r\n"))
        };
        lines.extend(times.iter().map(line));
    }
    lines.sort_by_key(|(time, _)| *time);
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    let disposition = view.range.attachment("spend", "csv");
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, disposition.as_str()),
    ];
    Ok((headers, format!("{HEAD}{text}")).into_response())
}
