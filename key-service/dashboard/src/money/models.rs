//! The models that can be called, with prices and recent latency.

use std::collections::HashMap;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{ids::GroupId, money::NanoUsd};
use shared_catalog::{Model, Rates, Tier};

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
    show::{count, duration, short_count, usd},
    table::{Column, Table},
};
use key_service_settings::words::list_of;
use key_service_store::store::Found;

/// Number of newest active keys that are examined to show how many may call a model. This limits the work in a large
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
    let rates = rates(&catalog.models);
    let content = html! {
        p.lead { "Models you can call, by their " code { "model" } " id. Prices are in USD per million tokens." }
        (table(&rates, keys.keys.is_empty()).body(&html! {
            @for model in &catalog.models { (rows(model, &rates, lately.get(&model.id), &keys)) }
        }))
    };
    Ok(page(&viewer, Section::Models, "Models", &content))
}

fn table(rates: &[NamedRate], has_no_keys: bool) -> Table {
    let mut columns = vec![Column::from(("Model", "")), Column::from(("Serves", "wide-only"))];
    columns.push(Column::new("Context", "n wide-only").hint("Maximum tokens of prompt and output together"));
    columns.push(Column::new("Max output", "n wide-only").hint("Maximum tokens of output"));
    columns.extend(rates.iter().map(|(name, hint, _)| Column::new(*name, classes(name)).hint(hint)));
    columns
        .push(Column::new("Last two hours", "wide-only").hint("Median time to the first token of a stream"));
    columns.extend(
        (!has_no_keys).then(|| Column::new("Keys", "n wide-only").hint("Active keys that may call it")),
    );
    Table::new("Models", columns)
}

/// Renders a model's row, and a row for each step of its prices.
fn rows(model: &Model, rates: &[NamedRate], lately: Option<&UpstreamCalls>, keys: &CountedKeys) -> Markup {
    let prices = |of: &Rates| {
        html! { @for (name, _, rate) in rates { td class=(classes(name)) { (usd(rate(of))) } } }
    };
    html! {
        tr {
            th scope="row" {
                a href={ (ACTIVITY) "?" (with(&Fields::default(), "model", &model.id)) } title="Requests of this model" { bdi { (model.id) } }
                @if !model.aliases.is_empty() { p.under { "also " (model.aliases.join(", ")) } }
                p.narrow-only { (serves(model)) " · " (short_count(model.context_window)) " context · " (in_short(lately)) }
            }
            td.wide-only { (serves(model)) }
            td.n.wide-only title=(count(model.context_window)) { (short_tokens(model.context_window)) }
            td.n.wide-only { @if model.serves.chat { span title=(count(model.max_output_tokens)) { (short_tokens(model.max_output_tokens)) } } @else { span.quiet { "–" } } }
            (prices(&model.price.base))
            td.wide-only title=(answers(lately)) { (in_short(lately)) }
            @if let Some((may, says)) = keys.allowed(&model.id) { td.n.wide-only title=(says) { (may) } }
        }
        @for Tier { above, rates: of } in &model.price.tiers {
            tr.below {
                th scope="row" { "Prompts above " (short_tokens(*above)) p.narrow-only { "of " (model.id) } }
                td.wide-only {} td.wide-only {} td.wide-only {}
                (prices(of))
                td.wide-only {}
                @if !keys.keys.is_empty() { td.wide-only {} }
            }
        }
    }
}

/// Returns the classes of a rate's column. On phones only the prices of prompt and output are shown.
fn classes(rate: &str) -> &'static str {
    let is_main = [BASIC[0], BASIC[2]].iter().any(|(name, _, _)| *name == rate);
    if is_main { "n" } else { "n wide-only" }
}

/// Writes a number of tokens in thousands or millions, as models are described: `200K`, `1.05M`.
fn short_tokens(tokens: u64) -> String {
    match tokens {
        1_000..1_000_000 => format!("{}K", tokens / 1_000),
        _ => short_count(tokens),
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

    /// Counts the keys that may call a model, by their own lists and their groups' lists, and says which keys were
    /// counted; `None` if there are no keys.
    fn allowed(&self, model: &str) -> Option<(usize, String)> {
        let may = self.keys.iter().filter(|key| self.may_call(key, model)).count();
        let says = match (self.keys.len(), self.has_more) {
            (0, _) => return None,
            (1, false) => format!("Allowed for {may} of 1 active key."),
            (all, false) => format!("Allowed for {may} of {all} active keys."),
            (newest, true) => format!("Allowed for {may} of the newest {newest} active keys."),
        };
        Some((may, says))
    }

    fn may_call(&self, key: &ApiKey, model: &str) -> bool {
        let group = key.spend.group.and_then(|id| self.groups.get(&id));
        let above = group.and_then(|group| self.groups.get(&group.spend.parent?));
        let groups = [group, above].into_iter().flatten().map(|group| &group.spend.budget);
        let mut lists = std::iter::once(&key.spend.budget).chain(groups).filter_map(list_of);
        lists.all(|list| list.iter().any(|allowed| allowed == model))
    }
}

/// Reports whether a model answers, and how fast. `lately` counts the model's bills in this hour and the previous hour.
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

/// Says in few words whether a model answers, and how fast.
fn in_short(lately: Option<&UpstreamCalls>) -> Markup {
    let Some(calls) = lately else { return html! { span.quiet { "no answers" } } };
    html! {
        span.badge.active { "answers" }
        @match calls.first_token(50) {
            None => {},
            Some(ClassedTime::Within(millis)) => { " ≤ " (duration(millis)) },
            Some(ClassedTime::Above(millis)) => { " > " (duration(millis)) },
        }
    }
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

/// Heading of a rate's column, its tooltip, and the rate.
type NamedRate = (&'static str, &'static str, RateOf);

/// Rates that are always shown.
const BASIC: [NamedRate; 3] = [
    ("Input", "Tokens of the prompt", |rates| rates.input),
    ("Cached", "Tokens of the prompt that came from a cache", |rates| rates.cached_input),
    ("Output", "Tokens of the output", |rates| rates.output),
];

/// Rates that are shown only if they differ from prompt and output for some model.
const FURTHER: [NamedRate; 5] = [
    ("Cache write", "Tokens of the prompt that were written to a cache", |rates| rates.cache_write),
    ("Cache write, 1 h", "Tokens of the prompt that were written to a cache for an hour", |rates| {
        rates.cache_write_long
    }),
    ("Reasoning", "Tokens of reasoning", |rates| rates.reasoning),
    ("Audio in", "Tokens of audio in the prompt", |rates| rates.audio_input),
    ("Audio out", "Tokens of audio in the output", |rates| rates.audio_output),
];

/// Lists the rates to show: the basic rates, and those that differ from prompt and output for some model in any tier.
fn rates(models: &[Model]) -> Vec<NamedRate> {
    let of_model = |model: &Model| {
        let tiers: Vec<Rates> = model.price.tiers.iter().map(|tier| tier.rates).collect();
        std::iter::once(model.price.base).chain(tiers)
    };
    let all: Vec<Rates> = models.iter().flat_map(of_model).collect();
    let differs = |rate: RateOf| all.iter().any(|rates| ![rates.input, rates.output].contains(&rate(rates)));
    BASIC.into_iter().chain(FURTHER.into_iter().filter(|(_, _, rate)| differs(*rate))).collect()
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
