//! The catalogue, read-only: prices, upstream costs, margins, and the result of its check.

use axum::{extract::State, response::Response};
use key_service_page::{
    app::App,
    operator::Operator,
    show::{copyable, count, program, scrolled_figures, short_count, usd},
};
use maud::{Markup, html};
use shared::money::NanoUsd;
use shared_catalog::{Catalog, Hint, Model, RatePair, Rates, Upstream, hints};

use crate::{
    layout::{Section, page},
    upstreams::address,
};

/// Number of rates that are always shown. These are the first rates: prompt, cached prompt and output.
const BASIC: usize = 3;

pub(crate) async fn show(State(app): State<App>, operator: Operator) -> Response {
    let catalog = app.catalog.get();
    let content = html! {
        p.lead { "Prices and costs are in USD per million tokens. To change them, edit the catalogue's file on the server; it is reloaded on "
            code { "SIGHUP" } "." }
        (checked(&catalog))
        @for model in &catalog.models { (card(model)) }
        p.quiet { "Checksum of this catalogue: " code { (format!("{:08x}", catalog.checksum)) } }
    };
    page(&operator, Section::Catalogue, "Catalogue", &content)
}

/// Shows the findings of the check.
fn checked(catalog: &Catalog) -> Markup {
    let found: Vec<(&Model, &Upstream, Hint)> = hints(catalog).collect();
    html! {
        section.card aria-labelledby="check" {
            h2 #check { "Check" }
            @if found.is_empty() { p { "No problems, and no price is below a known cost." } }
            @else {
                p { "The catalogue is valid, but it may lose money:" }
                ul { @for (model, upstream, hint) in &found { li { bdi { (model.id) } " at " code { (upstream.model) } ": " (hint.to_string()) } } }
            }
            p { "Run this to query the servers too, and to compare with a public price list:" }
            (copyable("Command", &format!("{} catalogue check --ask --against prices.json", program())))
        }
    }
}

fn card(model: &Model) -> Markup {
    html! {
        section.card {
            h2 { (model.id) }
            p.quiet {
                @if !model.aliases.is_empty() { "Also called " (model.aliases.join(", ")) ". " }
                "Up to " span title=(count(model.context_window)) { (short_count(model.context_window)) } " tokens."
            }
            @for upstream in &model.upstreams {
                p { strong { (upstream.name) } ": " code { (address(upstream)) } " as " code { (upstream.model) } ", weight " (upstream.weight) }
                (prices(model, upstream))
            }
        }
    }
}

/// Compares the model's rates with an upstream's costs.
fn prices(model: &Model, upstream: &Upstream) -> Markup {
    let cost = upstream.cost.as_ref();
    // Without a known cost, only the price is shown.
    let pairs: Vec<RatePair> = shown(model.price.beside(cost.unwrap_or(&model.price)));
    let head = html! { th scope="col" { "Rate" } th.n scope="col" { "Price" } th.n scope="col" { "Cost" } th.n scope="col" { "Margin" } };
    let rows = html! {
        @for pair in &pairs { tr {
            th.wraps scope="row" { (name(pair)) }
            td.n { (usd(pair.first)) }
            @if cost.is_some() { td.n { (usd(pair.second)) } td.n { (margin(pair.first, pair.second)) } }
            @else { td.n { span.quiet { "–" } } td.n { span.quiet { "–" } } }
        } }
    };
    html! {
        (scrolled_figures(&format!("Prices of {} at {}", model.id, address(upstream)), &head, &rows))
        @if cost.is_none() { p.quiet { "The catalogue does not say what it costs. Set " code { "[model.upstream.cost]" } "." } }
    }
}

/// Returns each tier's basic rates, and each other rate that is not zero and differs from all rates of its tier that
/// are already shown.
fn shown(pairs: impl Iterator<Item = RatePair>) -> Vec<RatePair> {
    let mut shown: Vec<RatePair> = Vec::new();
    for pair in pairs {
        let is_same = |other: &RatePair| {
            (other.above, other.first, other.second) == (pair.above, pair.first, pair.second)
        };
        let is_nothing = pair.first == NanoUsd::ZERO && pair.second == NanoUsd::ZERO;
        if pair.field < BASIC || !(is_nothing || shown.iter().any(is_same)) {
            shown.push(pair);
        }
    }
    shown
}

fn name(pair: &RatePair) -> Markup {
    html! {
        (Rates::FIELDS[pair.field].replace('_', " "))
        @if let Some(above) = pair.above { p.under { "prompts above " (short_count(above)) } }
    }
}

/// Shows the share of a price that is left after its cost. Losses are highlighted.
fn margin(price: NanoUsd, cost: NanoUsd) -> Markup {
    let left = i128::from(price.nanos()) - i128::from(cost.nanos());
    let percent = (price > NanoUsd::ZERO).then(|| left * 100 / i128::from(price.nanos()));
    html! {
        @match percent {
            _ if left < 0 => span.badge.short { "loss" },
            Some(percent) => { (percent) " %" },
            None => span.quiet { "free" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_stands_out_and_rates_that_say_nothing_new_are_left_out() {
        let usd = NanoUsd::from_usd;
        assert!(margin(usd(4), usd(3)).into_string().contains("25 %"));
        assert!(margin(usd(3), usd(4)).into_string().contains("loss"));
        assert!(margin(usd(0), usd(1)).into_string().contains("loss"));
        assert!(margin(usd(0), usd(0)).into_string().contains("free"));
        let pair =
            |field, first, second| RatePair { field, above: None, first: usd(first), second: usd(second) };
        let all = [pair(0, 1, 1), pair(1, 1, 1), pair(2, 4, 3), pair(3, 1, 1), pair(4, 1, 2), pair(9, 0, 0)];
        let fields: Vec<usize> = shown(all.into_iter()).into_iter().map(|pair| pair.field).collect();
        assert_eq!(fields, [0, 1, 2, 4]);
    }
}
