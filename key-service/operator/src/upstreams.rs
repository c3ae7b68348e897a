//! Upstreams: whether they serve, and how fast they have been recently.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Extension, extract::State, response::Response};
use domain::upstream_calls::{ClassedTime, UpstreamCalls};
use key_service_page::{
    app::App,
    failure::Failure,
    operator::Operator,
    show::{copyable, count, duration, program},
    table::{Row, Table},
};
use maud::{Markup, html};
use shared_catalog::{Catalog, Upstream};

use crate::{
    layout::{Section, page},
    process_metrics::{ProcessMetrics, ProgramFacts},
};

/// States of an upstream: the label in the gateway's metric, the words on the page, and whether the state is good.
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
        p.lead { "The servers behind the models in the catalogue." }
        h2 { "State now" }
        (states(&metrics))
        h2 { "Bills of the last 24 hours" }
        p { "Across all accounts and gateways, with a delay of some seconds. Failed calls are not billed, so they are not included." }
        (table(&catalog, &calls))
    };
    Ok(page(&operator, Section::Upstreams, "Upstreams", &content))
}

/// Shows how many upstreams of each model serve, if the gateway runs in this process.
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
    let state = |(model, states): (&String, &BTreeMap<String, f64>)| {
        let numbers = html! {
            @for (state, words, is_well) in STATES {
                @let number = states.get(state).copied().unwrap_or_default();
                @if number > 0.0 { span.badge.active[is_well].short[!is_well] { (number) " " (words) } " " }
            }
        };
        Row::new([html! { bdi { (model) } }, numbers])
    };
    html! {
        @if models.is_empty() {
            p { "Gateways know the state, and they run in other processes. Run this on a gateway's server:" }
            (copyable("Command", "inference-gateway upstreams list"))
        } @else {
            (Table::new("State of upstreams", [("Model", "wraps"), ("Upstreams", "wraps")]).rows(models.iter().map(state)))
            p { @if errors.is_empty() { "No upstream has failed since this program started." }
                @else { "Upstream failures since this program started: "
                    @for (n, (kind, number)) in errors.iter().enumerate() { @if n > 0 { ", " } (number) " " (kind.replace('_', " ")) } "." }
            }
            (oddities(metrics))
            p { "This lists each address with its requests in flight and its last failure:" }
            (copyable("Command", &format!("{} upstreams list", program())))
        }
    }
}

/// Shows which upstreams sent answers in forms that their APIs do not have, if the gateway runs in this process.
fn oddities(metrics: &ProcessMetrics) -> Markup {
    let mut upstreams: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for (labels, value) in metrics.series("gateway_upstream_oddities_total") {
        let label =
            |name: &str| labels.iter().find(|(named, _)| named == name).map(|(_, value)| value.clone());
        if let (Some(upstream), Some(kind), true) = (label("upstream"), label("kind"), value > 0.0) {
            upstreams.entry(upstream).or_default().push((kind, value));
        }
    }
    let row = |(upstream, kinds): (&String, &Vec<(String, f64)>)| {
        let numbers = html! {
            @for (n, (kind, number)) in kinds.iter().enumerate() { @if n > 0 { ", " } (number) " " code { (kind) } }
        };
        Row::new([html! { bdi { (upstream) } }, numbers])
    };
    let columns = [("Upstream", "wraps"), ("Answers by kind, since this program started", "wraps")];
    html! {
        @if !upstreams.is_empty() {
            p { "These upstreams sent answers in forms that their APIs do not have. Clients got what could be read:" }
            (Table::new("Odd answers", columns).rows(upstreams.iter().map(row)))
        }
    }
}

/// Lists the upstreams of the catalogue, then upstreams that have bills but are no longer in the catalogue.
fn table(catalog: &Catalog, calls: &BTreeMap<(String, String), UpstreamCalls>) -> Markup {
    let mut gone = calls.clone();
    let columns = [
        ("Upstream", "wraps"),
        ("Address", "wide-only"),
        ("Bills", "n"),
        ("First token", "n"),
        ("p90", "n wide-only"),
    ];
    let listed = catalog.models.iter().flat_map(|model| model.upstreams.iter().map(move |of| (model, of)));
    let mut rows: Vec<Row> = Vec::new();
    for (model, upstream) in listed {
        let of = gone.remove(&(model.id.clone(), upstream.name.clone())).unwrap_or_default();
        rows.push(row(&model.id, &upstream.name, Some(&address(upstream)), of));
    }
    rows.extend(gone.iter().map(|((model, name), of)| row(model, name, None, *of)));
    html! {
        (Table::new("Bills of upstreams", columns).rows(rows))
        p.quiet { "First token: time from a request’s arrival to the first token of its stream, as the median and the 90th percentile (p90)." }
    }
}

fn row(model: &str, name: &str, address: Option<&str>, of: UpstreamCalls) -> Row {
    let address = html! { @match address { Some(address) => code { (address) }, None => span.quiet { "no longer in the catalogue" } } };
    let [median, p90] = [50, 90].map(|percentile| time(of.first_token(percentile)));
    let name = html! {
        bdi { (model) } " " span.quiet { bdi { (name) } }
        p.narrow-only { (address) }
        p.narrow-only { "p90 " (p90) }
    };
    Row::new([name, address, html! { (count(of.bills)) }, median, p90])
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

/// Returns the host and port of an upstream.
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

    #[test]
    fn odd_answers_are_shown_by_upstream_and_kind_if_there_are_any() {
        let served = "gateway_upstreams{model=\"m\",state=\"serving\"} 1\n";
        let quiet = states(&metrics(served)).into_string();
        assert!(!quiet.contains("forms that their APIs do not have"), "{quiet}");
        let shown = states(&metrics(
            "gateway_upstreams{model=\"m\",state=\"serving\"} 1\n\
             gateway_upstream_oddities_total{upstream=\"<b>\",kind=\"content_list\"} 2\n\
             gateway_upstream_oddities_total{upstream=\"<b>\",kind=\"part\"} 7\n\
             gateway_upstream_oddities_total{upstream=\"none\",kind=\"part\"} 0\n",
        ))
        .into_string();
        assert!(shown.contains("<bdi>&lt;b&gt;</bdi>"), "{shown}");
        assert!(shown.contains("2 <code>content_list</code>, 7 <code>part</code>"), "{shown}");
        assert!(!shown.contains("none"), "{shown}");
    }
}
