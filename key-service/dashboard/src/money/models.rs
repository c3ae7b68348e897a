//! The models that can be called, with prices and recent latency.

use std::collections::HashMap;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{ids::GroupId, money::NanoUsd};
use shared_catalog::{Model, Price, Rates, Tier};

use domain::{
    group::Group,
    key::{ApiKey, Status},
    upstream_calls::{ClassedTime, UpstreamCalls},
};
use key_service_management::{reach::AccountReach, reading::KeySearch};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, with},
    layout::{Section, page},
    paths::ACTIVITY,
    session::KeysViewer,
    show::{copyable_line, count, duration, scrolled_figures, short_count, usd},
};
use key_service_settings::words::list_of;
use key_service_store::store::Found;

/// Number of newest active keys that are examined to show how many may call a model. It bounds the work in a large
/// account.
const COUNTED_KEYS: usize = 100;

/// Shows what callers need to know about each model.
pub(crate) async fn show(
    State(app): State<App>,
    KeysViewer(viewer): KeysViewer,
) -> Result<Response, Failure> {
    let catalog = app.catalog.get();
    let lately = app.management.models_lately().await?;
    let keys = CountedKeys::of(&app, viewer.reach()).await?;
    let content = html! {
        p.lead { "Models you can call, by their " code { "model" } " id. Prices are in USD per million tokens." }
        @for model in &catalog.models { (card(model, lately.get(&model.id), &keys)) }
    };
    Ok(page(&viewer, Section::Models, "Models", &content))
}

fn card(model: &Model, lately: Option<&UpstreamCalls>, keys: &CountedKeys) -> Markup {
    html! {
        section.card {
            div.split {
                h2 { (model.id) }
                a href={ (ACTIVITY) "?" (with(&Fields::default(), "model", &model.id)) } { "Requests" }
            }
            (copyable_line("Id", &model.id))
            p.quiet {
                (serves(model)) " · " span title=(count(model.context_window)) { (short_count(model.context_window)) } " tokens of context"
                @if model.serves.chat { " · up to " (count(model.max_output_tokens)) " tokens of output" }
                @if !model.aliases.is_empty() { " · also called " (model.aliases.join(", ")) }
            }
            p { (answers(lately)) @if let Some(allowed) = keys.allowed(&model.id) { " " (allowed) } }
            (scrolled_figures(&format!("Prices of {}", model.id), &html! {
                th scope="col" { "Tokens" } th.n scope="col" { "Per million" }
                @for Tier { above, .. } in &model.price.tiers { th.n scope="col" { "Prompts above " (short_count(*above)) } }
            }, &html! {
                @for (name, rate) in rates(&model.price) {
                    tr { th scope="row" { (name) } td.n { (usd(rate(&model.price.base))) }
                        @for Tier { rates, .. } in &model.price.tiers { td.n { (usd(rate(rates))) } } }
                }
            }))
        }
    }
}

/// The newest active keys and the groups that limit them.
struct CountedKeys {
    keys: Vec<ApiKey>,
    /// Groups of the keys and their parents.
    groups: HashMap<GroupId, Group>,
    /// Whether older keys were left out.
    has_more: bool,
}

impl CountedKeys {
    async fn of(app: &App, reach: AccountReach) -> Result<Self, Failure> {
        let search = KeySearch { status: Some(Status::Active), limit: COUNTED_KEYS, ..KeySearch::default() };
        let Found { found: keys, next } = app.management.find_keys(reach, &search).await?;
        // The parent group's limits also apply, even if the member cannot see that group.
        let all = AccountReach::whole(reach.account);
        let of_keys = keys.iter().filter_map(|key| key.spend.group).collect();
        let mut groups = app.management.groups_by_id(all, of_keys).await?;
        let above = groups.values().filter_map(|group| group.spend.parent).collect();
        let above = app.management.groups_by_id(all, above).await?;
        groups.extend(above);
        Ok(Self { keys, groups, has_more: next.is_some() })
    }

    /// Reports how many keys may call a model, by their own lists and their groups' lists; `None` if there are no keys.
    fn allowed(&self, model: &str) -> Option<String> {
        let may = self.keys.iter().filter(|key| self.may_call(key, model)).count();
        match (self.keys.len(), self.has_more) {
            (0, _) => None,
            (1, false) => Some(format!("Allowed for {may} of 1 active key.")),
            (all, false) => Some(format!("Allowed for {may} of {all} active keys.")),
            (newest, true) => Some(format!("Allowed for {may} of the newest {newest} active keys.")),
        }
    }

    fn may_call(&self, key: &ApiKey, model: &str) -> bool {
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        let above = group.and_then(|group| self.groups.get(&group.spend.parent?));
        let groups = [group, above].into_iter().flatten().map(|group| &group.spend.budget);
        let mut lists = std::iter::once(&key.spend.budget).chain(groups).filter_map(list_of);
        lists.all(|list| list.iter().any(|allowed| allowed == model))
    }
}

/// Reports whether a model answers, and how fast. `lately` counts its bills in this hour and the previous one.
fn answers(lately: Option<&UpstreamCalls>) -> String {
    let Some(calls) = lately else {
        return "No answers in the last two hours: it is down, or nobody called it.".into();
    };
    let half = match calls.first_token(50) {
        None => String::new(),
        Some(ClassedTime::Within(millis)) => {
            format!(", with a median time to first token of at most {}", duration(millis))
        }
        Some(ClassedTime::Above(millis)) => {
            format!(", with a median time to first token above {}", duration(millis))
        }
    };
    format!("Answered in the last two hours{half}.")
}

/// Names the kinds of calls that a model serves.
const fn serves(model: &Model) -> &'static str {
    match (model.serves.chat, model.serves.embeddings) {
        (true, true) => "Chat and embeddings",
        (true, false) => "Chat",
        (false, true) => "Embeddings",
        (false, false) => "Serves nothing",
    }
}

type RateOf = fn(&Rates) -> NanoUsd;

/// Rates that are always shown.
const BASIC: [(&str, RateOf); 3] = [
    ("prompt", |rates| rates.input),
    ("prompt from a cache", |rates| rates.cached_input),
    ("output", |rates| rates.output),
];

/// Rates that are shown only if they differ from prompt and output.
const FURTHER: [(&str, RateOf); 5] = [
    ("prompt written to the cache", |rates| rates.cache_write),
    ("prompt written to the cache for an hour", |rates| rates.cache_write_long),
    ("reasoning", |rates| rates.reasoning),
    ("audio in the prompt", |rates| rates.audio_input),
    ("audio in the output", |rates| rates.audio_output),
];

/// Lists the rates to show: the basic ones, and those that differ from prompt and output in any tier.
fn rates(price: &Price) -> impl Iterator<Item = (&'static str, RateOf)> {
    let of_tiers = price.tiers.iter().map(|tier| tier.rates);
    let all: Vec<Rates> = std::iter::once(price.base).chain(of_tiers).collect();
    let differs =
        move |rate: RateOf| all.iter().any(|rates| ![rates.input, rates.output].contains(&rate(rates)));
    BASIC.into_iter().chain(FURTHER.into_iter().filter(move |(_, rate)| differs(*rate)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::generation::Course;

    #[test]
    fn a_model_answers_if_it_was_billed_lately_and_the_time_of_half_of_its_streams_is_told() {
        assert!(answers(None).contains("No answers in the last two hours"));
        let said = |times: &[Option<u64>]| {
            let mut calls = UpstreamCalls::default();
            for first_token_ms in times {
                calls.count(&Course { first_token_ms: *first_token_ms, ..Course::default() });
            }
            answers(Some(&calls))
        };
        assert_eq!(said(&[None]), "Answered in the last two hours.");
        assert!(
            said(&[Some(120), None]).ends_with("first token of at most 200 ms."),
            "{}",
            said(&[Some(120)])
        );
        assert!(said(&[Some(90_000)]).ends_with("first token above 60.0 s."));
    }
}
