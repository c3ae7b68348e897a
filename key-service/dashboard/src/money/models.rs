//! The page of models on offer, with their prices.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::money::NanoUsd;
use shared_catalog::{Model, Price, Rates, Tier};

use key_service_page::{
    app::App,
    form::{Fields, with},
    layout::{Section, page},
    paths::ACTIVITY,
    session::KeysViewer,
    show::{copyable_line, count, short_count, usd},
};

/// Shows the catalogue, as far as callers need it.
pub(crate) async fn show(State(app): State<App>, KeysViewer(viewer): KeysViewer) -> Response {
    let catalog = app.catalog.get();
    let content = html! {
        p.lead { "What " code { "model" } " may say in a request, and what it costs: prices are in USD for a million tokens." }
        @for model in &catalog.models { (card(model)) }
    };
    page(&viewer, Section::Models, "Models", &content)
}

fn card(model: &Model) -> Markup {
    html! {
        section.card {
            div.split {
                h2 { (model.id) }
                a href={ (ACTIVITY) "?" (with(&Fields::default(), "model", &model.id)) } { "Requests" }
            }
            (copyable_line("Id", &model.id))
            p.quiet {
                @if !model.aliases.is_empty() { "Also called " (model.aliases.join(", ")) ". " }
                (serves(model)) " Up to " span title=(count(model.context_window)) { (short_count(model.context_window)) } " tokens of prompt and output"
                @if model.serves.chat { ", of which " (count(model.max_output_tokens)) " of output" } "."
            }
            div.scroll.free tabindex="0" role="region" aria-label={ "Prices of " (model.id) } {
                table {
                    thead { tr { th scope="col" { "A million tokens of" } th.n scope="col" { "Price" }
                        @for Tier { above, .. } in &model.price.tiers { th.n scope="col" { "Prompts above " (short_count(*above)) } } } }
                    tbody { @for (name, rate) in rates(&model.price) {
                        tr { th scope="row" { (name) } td.n { (usd(rate(&model.price.base))) }
                            @for Tier { rates, .. } in &model.price.tiers { td.n { (usd(rate(rates))) } } }
                    } }
                }
            }
        }
    }
}

/// Says what a model answers, in a sentence.
const fn serves(model: &Model) -> &'static str {
    match (model.serves.chat, model.serves.embeddings) {
        (true, true) => "Chats, and makes embeddings.",
        (true, false) => "Chats.",
        (false, true) => "Makes embeddings.",
        (false, false) => "Serves nothing.",
    }
}

type RateOf = fn(&Rates) -> NanoUsd;

/// Rates of tokens that every model has, with their names.
const BASIC: [(&str, RateOf); 3] = [
    ("prompt", |rates| rates.input),
    ("prompt from a cache", |rates| rates.cached_input),
    ("output", |rates| rates.output),
];

/// Rates that are shown if they differ from those of prompt and output.
const FURTHER: [(&str, RateOf); 5] = [
    ("prompt written to the cache", |rates| rates.cache_write),
    ("prompt written to the cache for an hour", |rates| rates.cache_write_long),
    ("reasoning", |rates| rates.reasoning),
    ("audio in the prompt", |rates| rates.audio_input),
    ("audio in the output", |rates| rates.audio_output),
];

/// Lists the rates of a price: the basic ones, and those that differ from prompt and output.
fn rates(price: &Price) -> impl Iterator<Item = (&'static str, RateOf)> {
    let of_tiers = price.tiers.iter().map(|tier| tier.rates);
    let all: Vec<Rates> = std::iter::once(price.base).chain(of_tiers).collect();
    let differs =
        move |rate: RateOf| all.iter().any(|rates| ![rates.input, rates.output].contains(&rate(rates)));
    BASIC.into_iter().chain(FURTHER.into_iter().filter(move |(_, rate)| differs(*rate)))
}
