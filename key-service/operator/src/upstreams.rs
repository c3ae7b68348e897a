//! The servers of models: what is set aside, and how fast they answered lately.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, extract::State, response::Response};
use domain::upstream_calls::{ClassedTime, UpstreamCalls};
use key_service_page::{
    app::App,
    failure::Failure,
    operator::Operator,
    show::{copyable, count, duration, program, scrolled_table},
};
use maud::{Markup, html};
use shared_catalog::{Catalog, Upstream};

use crate::{
    layout::{Section, page},
    process_metrics::{ProcessMetrics, ProgramFacts},
};

/// A state of upstreams as the gateway's metric names it, as the page does, and whether all is well.
const STATES: [(&str, &str, bool); 3] = [
    ("serving", "serving", true),
    ("set_aside", "set aside after failures", false),
    ("drained", "drained by a command", false),
];

pub(crate) async fn show(
    State(app): State<App>,
    Extension(facts): Extension<ProgramFacts>,
    operator: Operator,
) -> Result<Response, Failure> {
    let catalog: Arc<Catalog> = app.catalog.get();
    let calls = app.management.upstream_calls().await?;
    let metrics = ProcessMetrics::of(&facts.metrics);
    let content = html! {
        p.lead { "The servers that the models of the catalogue are served by." }
        h2 { "State now" }
        (states(&metrics))
        h2 { "Bills of the last 24 hours" }
        p { "Of all accounts and all gateways, some seconds late. Failed calls are not billed, and not among them." }
        (table(&catalog, &calls))
    };
    Ok(page(&operator, Section::Upstreams, "Upstreams", &content))
}

/// Says how many upstreams of each model serve, where the gateway is in this process.
fn states(metrics: &ProcessMetrics) -> Markup {
    let mut models: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (labels, value) in metrics.series("gateway_upstreams") {
        let label =
            |name: &str| labels.iter().find(|(named, _)| named == name).map(|(_, value)| value.clone());
        if let (Some(model), Some(state)) = (label("model"), label("state")) {
            models.entry(model).or_default().insert(state, value);
        }
    }
    let errors: Vec<(String, f64)> = metrics
        .series("gateway_upstream_errors_total")
        .filter_map(|(labels, value)| {
            Some((labels.into_iter().next()?.1, value)).filter(|(_, value)| *value > 0.0)
        })
        .collect();
    html! {
        @if models.is_empty() {
            p { "Gateways know it, and run apart from this key-service. Each tells it on its server:" }
            (copyable("Command", "inference-gateway upstreams list"))
        } @else {
            (scrolled_table("State of upstreams", &html! {
                th scope="col" { "Model" } th scope="col" { "Upstreams" }
            }, &html! {
                @for (model, states) in &models { tr {
                    th.wraps scope="row" { bdi { (model) } }
                    td.wraps { @for (state, words, is_well) in STATES {
                        @let number = states.get(state).copied().unwrap_or_default();
                        @if number > 0.0 { span.badge.active[is_well].short[!is_well] { (number) " " (words) } " " }
                    } }
                } }
            }))
            p { @if errors.is_empty() { "No failure of an upstream since this program started." }
                @else { "Failures since this program started: "
                    @for (n, (kind, number)) in errors.iter().enumerate() { @if n > 0 { ", " } (number) " " (kind.replace('_', " ")) } "." }
            }
            p { "Each address with its requests under way and its last failure, and what takes it out for a while:" }
            (copyable("Command", &format!("{} upstreams list", program())))
        }
    }
}

/// Lists the upstreams of the catalogue, and then those of bills that it no longer has.
fn table(catalog: &Catalog, calls: &BTreeMap<(String, String), UpstreamCalls>) -> Markup {
    let mut gone = calls.clone();
    let head = html! {
        th scope="col" { "Upstream" } th.wide-only scope="col" { "Address" } th.n scope="col" { "Bills" }
        th.n scope="col" { "Half within" } th.n.wide-only scope="col" { "Nine in ten within" }
    };
    let rows = html! {
        @for model in &catalog.models { @for upstream in &model.upstreams {
            @let of = gone.remove(&(model.id.clone(), upstream.name.clone())).unwrap_or_default();
            (row(&model.id, &upstream.name, Some(&address(upstream)), of))
        } }
        @for ((model, name), of) in &gone { (row(model, name, None, *of)) }
    };
    html! {
        (scrolled_table("Bills of upstreams", &head, &rows))
        p.quiet { "Times from a request’s arrival to the first token of its stream, of half of the streams and of nine in ten." }
    }
}

fn row(model: &str, name: &str, address: Option<&str>, of: UpstreamCalls) -> Markup {
    let address = html! { @match address { Some(address) => code { (address) }, None => span.quiet { "no longer in the catalogue" } } };
    html! {
        tr {
            th.wraps scope="row" { bdi { (model) } " " span.quiet { bdi { (name) } }
                p.narrow-only { (address) }
                p.narrow-only { "nine in ten within " (time(of.first_token(90))) } }
            td.wide-only { (address) }
            td.n { (count(of.bills)) }
            td.n { (time(of.first_token(50))) }
            td.n.wide-only { (time(of.first_token(90))) }
        }
    }
}

fn time(time: Option<ClassedTime>) -> Markup {
    html! {
        @match time {
            None => span.quiet { "–" },
            Some(ClassedTime::Within(millis)) => { (duration(millis)) },
            Some(ClassedTime::Above(millis)) => span.badge.short { "more than " (duration(millis)) },
        }
    }
}

/// Returns host and port of an upstream.
pub(crate) fn address(upstream: &Upstream) -> String {
    let authority = upstream.url.as_ref().and_then(|url| url.authority());
    authority.map_or_else(|| "built in".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_metrics::RenderMetrics;

    fn metrics(text: &'static str) -> ProcessMetrics {
        let render: RenderMetrics = Arc::new(move || text.to_owned());
        ProcessMetrics::of(&render)
    }

    #[test]
    fn what_is_set_aside_stands_out_and_gateways_apart_are_named() {
        let shown = states(&metrics(
            "gateway_upstreams{model=\"m\",state=\"serving\"} 2\ngateway_upstreams{model=\"m\",state=\"set_aside\"} 1\n\
             gateway_upstreams{model=\"m\",state=\"drained\"} 0\ngateway_upstream_errors_total{kind=\"mid_stream\"} 3\n",
        ))
        .into_string();
        assert!(shown.contains("<span class=\"badge active\">2 serving</span>"), "{shown}");
        assert!(shown.contains("<span class=\"badge short\">1 set aside after failures</span>"), "{shown}");
        assert!(!shown.contains("drained by") && shown.contains("3 mid stream."), "{shown}");
        let apart = states(&metrics("keyservice_sessions 2\n")).into_string();
        assert!(apart.contains("inference-gateway upstreams list"), "{apart}");
    }
}
