//! The installation itself: version, store, requests in flight, and operators.

use axum::{Extension, extract::State, response::Response};
use domain::member::Member;
use key_service_management::installation::StoreFacts;
use key_service_page::{
    app::App,
    failure::Failure,
    operator::Operator,
    show::{count, duration, time},
    table::{Row, Table},
};
use maud::{Markup, html};
use shared::error::STORE_FULL;

use crate::{
    layout::{Section, page},
    process_metrics::{ProcessMetrics, ProgramFacts},
};

/// Clock difference in milliseconds that is worth a warning, the same as for readiness.
const NOTICEABLE_SKEW: u64 = 1_000;
/// Sweeper lag in seconds above which the page says that holds expire late. This is the default length of a lease.
const NOTICEABLE_LAG: f64 = 30.0;
/// Used percentage from which a Redis with a memory limit accepts no new accounts, keys or credit.
const NEARLY_FULL: f64 = 80.0;

pub(crate) async fn show(
    State(app): State<App>,
    Extension(program): Extension<ProgramFacts>,
    operator: Operator,
) -> Result<Response, Failure> {
    let facts = app.management.store_facts().await?;
    let operators = app.management.operators().await?;
    let metrics = ProcessMetrics::of(&program.metrics);
    let content = html! {
        p.lead { "Version " strong { (program.version) } ". Accounts: " (count(facts.accounts)) ", models: " (count(app.catalog.get().models.len() as u64)) "." }
        h2 { "Store" }
        (store(&facts))
        h2 { "Requests in flight" }
        (in_flight(&metrics))
        h2 { "Operators" }
        (people(&operators))
    };
    Ok(page(&operator, Section::Installation, "Installation", &content))
}

fn store(facts: &StoreFacts) -> Markup {
    let percent = facts.used.map(|used| used * 100.0);
    html! {
        dl.tiles {
            div.tile { dt { "Kind" } dd { (facts.system) } }
            div.tile { dt { "Room used" } dd { @match percent {
                Some(percent) => { (format!("{percent:.0} %")) @if percent >= NEARLY_FULL { small { "enlarge the store" } } },
                None => "no limit",
            } } }
            div.tile { dt { "Clock" } dd { @match facts.skew {
                None => "its own",
                Some(skew) if skew.millis.unsigned_abs() > NOTICEABLE_SKEW => { (duration(skew.millis.unsigned_abs())) small { "off the store’s clock" } },
                Some(_) => "agrees",
            } } }
        }
        @if facts.is_nearly_full { p.problem { (STORE_FULL) " Requests continue." } }
        @for warning in &facts.warnings { p.note { (warning) } }
    }
}

/// Shows holds, the sweeper's lag, and captures that wait to be delivered.
fn in_flight(metrics: &ProcessMetrics) -> Markup {
    let whole = |name: &str| metrics.value(name).map(|value| value.max(0.0).round());
    let lag = metrics.value("keyservice_sweeper_lag_seconds").unwrap_or_default();
    html! {
        dl.tiles {
            @if let Some(accounts) = whole("keyservice_accounts_with_holds") { div.tile { dt { "Accounts" } dd { (accounts) small { "with requests now or recently" } } } }
            div.tile { dt { "Lag" } dd { (format!("{lag:.1} s")) small { @if lag > NOTICEABLE_LAG { "holds expire late" } @else { "in expiring holds" } } } }
            @match (whole("gateway_spool_captures"), whole("gateway_captures_in_memory_alone")) {
                (Some(spool), memory) => div.tile { dt { "Spool" } dd { (spool) small { "captures to deliver" }
                    @if let Some(memory) = memory.filter(|memory| *memory > 0.0) { small { (memory) " only in memory" } } } },
                (None, _) => div.tile { dt { "Spool" } dd { "–" small { "see gateway_spool_captures of each gateway" } } },
            }
        }
    }
}

fn people(operators: &[Member]) -> Markup {
    let columns = [("Name", "wraps"), ("Second factor", ""), ("Created", "wide-only")];
    let row = |operator: &Member| {
        Row::new([
            html! { bdi { (operator.name) } p.narrow-only { "created " (time(operator.created_at)) } },
            html! { @if operator.second_factor.is_some() { "on" } @else { span.badge.short { "not yet" } } },
            time(operator.created_at),
        ])
    };
    html! {
        (Table::new("Operators", columns).rows(operators.iter().map(row)))
        p.quiet { "Create and remove operators with commands on the server: " code { "operators create" } ", " code { "operators remove" } "." }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::process_metrics::RenderMetrics;

    #[test]
    fn a_spool_that_is_another_programs_is_named_and_a_lag_stands_out() {
        let shown = |text: &'static str| {
            let render: RenderMetrics = Arc::new(move || text.to_owned());
            in_flight(&ProcessMetrics::of(&render)).into_string()
        };
        let apart = shown("keyservice_sweeper_lag_seconds 45\n");
        assert!(
            apart.contains("see gateway_spool_captures") && apart.contains("holds expire late"),
            "{apart}"
        );
        let together = shown("gateway_spool_captures 3\ngateway_captures_in_memory_alone 1\n");
        assert!(together.contains("<dd>3<small>captures to deliver"), "{together}");
        assert!(together.contains("1 only in memory"), "{together}");
    }
}
