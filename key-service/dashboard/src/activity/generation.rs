//! The page of a generation: the bill that a customer asks about.

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    ids::{GenerationId, GroupId},
    money::NanoUsd,
};

use super::{PATH, parts};
use domain::ledger::{Ending, Settlement};
use key_service_page::{
    app::App,
    failure::Failure,
    layout::{Section, page},
    session::Viewer,
    show::{copyable, count, or_unnamed, time_to_second, usd},
};

/// Shows a generation.
pub(crate) async fn show(
    State(app): State<App>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let id: GenerationId = id.parse().map_err(|_| Failure::NotFound)?;
    let bill = app.management.bill(account, id).await?.ok_or(Failure::NotFound)?;
    let settlement = &bill.settlement;
    let key = settlement.payer.key;
    let keys = app.management.keys_by_id(account, vec![key]).await?;
    let ids: Vec<GroupId> = settlement.payer.groups.into_iter().flatten().collect();
    let groups = app.management.groups_by_id(account, ids.clone()).await?;
    let groups = ids.iter().filter_map(|id| groups.get(id)).map(|group| group.name.as_str());
    let content = html! {
        (copyable("Id of the generation", &id.to_string()))
        div.scroll.free.facts tabindex="0" role="region" aria-label="Generation" {
            table { tbody {
                (row("Time", &time_to_second(settlement.at)))
                (row("Key", &html! { a href={ "/dashboard/keys/" (key.to_string()) } {
                    (or_unnamed(keys.get(&key).map_or("", |key| &key.label))) } }))
                @for name in groups { (row("Group", &or_unnamed(name))) }
                (row("Model", &html! { (settlement.payer.model) }))
                (money_and_tokens(settlement, viewer.is_owner()))
                (row("Outcome", &html! { (outcome(settlement)) }))
            } }
        }
        p { a href={ (PATH) "?key=" (key.to_string()) } { "All activity of the key" } }
    };
    Ok(page(&viewer, Section::Activity, "Generation", &content))
}

fn row(name: &str, value: &Markup) -> Markup {
    html! { tr { th scope="row" { (name) } td { (value) } } }
}

fn money_and_tokens(settlement: &Settlement, is_owner: bool) -> Markup {
    let Settlement { usage, cost, charged, upstream_cost, .. } = settlement;
    let upstream_cost = upstream_cost.filter(|_| is_owner);
    html! {
        (row("Prompt", &html! { (count(usage.prompt)) " tokens"
            @if usage.cached > 0 { ", " (count(usage.cached)) " of them cached" } }))
        (row("Output", &html! { (count(usage.completion)) " tokens" }))
        @for (n, name) in parts(*usage) { (row("Of these", &html! { (count(n)) " " (name) })) }
        (row("Charged", &html! { strong { (usd(*charged)) } }))
        @if cost > charged {
            (row("Cost", &html! { (usd(*cost)) }))
            (row("Shortfall", &html! { span.badge.short { (usd(settlement.shortfall())) } " the limit or the credit was used up" }))
        }
        @if let Some(upstream_cost) = upstream_cost {
            (row("Upstream cost", &html! { (usd(upstream_cost)) }))
            (row("Margin", &html! { (usd(NanoUsd::from_nanos(charged.nanos().saturating_sub(upstream_cost.nanos())))) }))
        }
    }
}

/// The way in which a bill came about, in words.
fn outcome(settlement: &Settlement) -> &'static str {
    match (settlement.ending, settlement.estimated) {
        (Ending::Captured, false) => "Billed exactly as the upstream counted",
        (Ending::Captured, true) => "Billed by an estimate: the upstream did not say all of the usage",
        (Ending::Expired, _) => "Billed by the last report: the gateway was lost before the end",
    }
}
