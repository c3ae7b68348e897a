//! Summarises in one line what a key may do or, if it may do nothing, why and until when.

use maud::{Markup, html};
use shared::money::NanoUsd;

use crate::{
    budget::{in_words, may_raise, raise_today, used},
    words::list_of,
};
use domain::{
    access::{Effect, Subject},
    group::Group,
    key::{ApiKey, Status},
    ledger::{Budget, Holder},
};
use key_service_management::limits::{MoneyLimit, ReachedLimits};
use key_service_page::{
    paths::{GROUPS, KEYS},
    session::Viewer,
    show::{count, glance, name_of, time},
};
use shared::calendar::Per;

/// Maximum number of models that are listed by name. If there are more, only their number is given.
const NAMED_MODELS: usize = 2;

/// Renders a summary of what a key may do. `reached` has the limits of the key and of its groups.
pub fn key_line(viewer: &Viewer, key: &ApiKey, reached: &ReachedLimits) -> Markup {
    let groups = reached.groups_of(key);
    let settings = format!("{KEYS}/{}/settings", key.id);
    let archived = groups.iter().find(|group| group.spend.archived_at.is_some());
    let funds = viewer.may(Effect::Read, Subject::Account).is_ok().then_some(&viewer.funds);
    let is_out_of_credit = funds.is_some_and(|funds| funds.credit <= NanoUsd::ZERO);
    let credit = funds.map(|funds| funds.credit.left_after(funds.held));
    let stopped = |why: Markup| html! { p.verdict.problem { strong { "Stopped" } (why) } };
    match key.status(reached.now()) {
        Status::Revoked => {
            stopped(html! { ": revoked " @if let Some(at) = key.spend.revoked_at { (time(at)) } "." })
        }
        Status::Disabled => stopped(html! { ": disabled. Requests are refused until it is enabled again." }),
        Status::Expired => stopped(html! {
            ": expired " @if let Some(at) = key.spend.expires_at { (time(at)) } ". "
            @if viewer.keeps_keys() { a href=(settings) { "Extend" } }
        }),
        Status::Active => match (archived, reached.first_reached(key)) {
            (Some(group), _) => stopped(html! { " because " (linked(group)) " is archived." }),
            (None, Some((holder, limit))) => stopped(refused_for(viewer, &groups, holder, &limit)),
            // The limit belongs to a group that the member may not see.
            (None, None) if reached.of_key(key).is_some() => {
                stopped(html! { ": a limit of its group’s parent is reached." })
            }
            (None, None) if is_out_of_credit => stopped(html! { ": the account has no credit left." }),
            (None, None) => html! { p.verdict { (allowed(key, &groups, reached, credit)) } },
        },
    }
}

/// Renders an explanation of which limit stops a key, and until when.
fn refused_for(viewer: &Viewer, groups: &[&Group], holder: Holder, limit: &MoneyLimit) -> Markup {
    let group = groups.iter().find(|group| holder == Holder::Group(group.id));
    html! {
        " by " @match group { Some(group) => (linked(group)), None => "its limit" }
        ": " (used(limit)) " of " (in_words(limit)) " used"
        @if let Some((_, resets_at)) = limit.window { ", resets " (time(resets_at)) }
        ". "
        @if may_raise(viewer, holder) { (raise_today(holder, limit)) }
    }
}

fn linked(group: &Group) -> Markup {
    html! { a href={ (GROUPS) "/" (group.id.to_string()) } { bdi { (name_of(group)) } } }
}

/// Renders what an active key may spend, with which models, how fast, and until when. `credit` is what is left of the
/// account's credit, if the viewer may know it.
fn allowed(key: &ApiKey, groups: &[&Group], reached: &ReachedLimits, credit: Option<NanoUsd>) -> Markup {
    let own = (None, Holder::Key(key.id, None), &key.spend.budget);
    let of_groups = groups.iter().map(|group| (Some(*group), Holder::Group(group.id), &group.spend.budget));
    let all: Vec<(Option<&Group>, Holder, &Budget)> = std::iter::once(own).chain(of_groups).collect();
    let limits = all.iter().flat_map(|(group, holder, budget)| {
        let limits = reached.limits(*holder, budget).into_iter();
        limits.map(move |limit| (limit.left().left_after(budget.held), limit, *group))
    });
    let least = limits.min_by_key(|(left, _, _)| *left);
    let least = least.filter(|(left, _, _)| credit.is_none_or(|credit| *left <= credit));
    let rates = all.iter().filter_map(|(_, _, budget)| budget.bounds.as_deref());
    let at_once = rates.clone().filter_map(|bounds| bounds.max_in_flight).min();
    let per_minute = rates.filter_map(|bounds| Some(bounds.requests_per_minute?.per_minute)).min();
    let lists: Vec<&Vec<String>> = all.iter().filter_map(|(_, _, budget)| list_of(budget)).collect();
    html! {
        @match &least {
            Some((left, limit, group)) => {
                "May spend " strong { (glance(*left)) } (within_window(limit))
                @if let Some(group) = group { ", the rest of " (linked(group)) "’s limit" }
            },
            None => "May spend the account’s credit",
        }
        " · " (models(&lists))
        @if let Some(most) = at_once { " · " (count(most)) " at a time" }
        @if let Some(most) = per_minute { " · " (count(most)) " requests a minute" }
        " · " @match key.spend.expires_at { Some(at) => { "expires " (time(at)) }, None => "never expires" }
    }
}

/// Returns the words that follow "May spend $5".
const fn within_window(limit: &MoneyLimit) -> &'static str {
    match limit.window {
        None => " in total from now on",
        Some((Per::Hour, _)) => " this hour",
        Some((Per::Day, _)) => " today",
        Some((Per::Week, _)) => " this week",
        Some((Per::Month, _)) => " this month",
    }
}

/// Describes the models that all lists allow.
fn models(lists: &[&Vec<String>]) -> String {
    let Some((first, others)) = lists.split_first() else { return "all models".into() };
    let allowed: Vec<&str> = first
        .iter()
        .filter(|model| others.iter().all(|list| list.contains(model)))
        .map(String::as_str)
        .collect();
    match allowed.len() {
        0 => "no model".into(),
        1..=NAMED_MODELS => format!("only {}", allowed.join(" and ")),
        more => format!("{} models", count(more as u64)),
    }
}

#[cfg(test)]
mod tests {
    use domain::ledger::BoundsPatch;
    use shared::{
        ids::{GroupId, KeyId},
        time::Timestamp,
        wire::Limit,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn windows(usd: i64, per: Per) -> BoundsPatch {
        let limit = Limit::new(NanoUsd::from_usd(usd), per);
        BoundsPatch { windows: Some(vec![limit]), ..BoundsPatch::default() }
    }

    fn says(own: &BoundsPatch, groups: &[&BoundsPatch]) -> String {
        says_with(None, own, groups)
    }

    fn says_with(credit: Option<NanoUsd>, own: &BoundsPatch, groups: &[&BoundsPatch]) -> String {
        let mut key = ApiKey::new(KeyId::new(NOW, [1; 10]), String::new(), NOW);
        key.spend.budget = Budget::new(own, NOW);
        let groups = groups.iter().map(|bounds| {
            let mut group = Group::new(GroupId::new(NOW, [2; 10]), NOW);
            group.name = "Team".into();
            group.spend.budget = Budget::new(bounds, NOW);
            group
        });
        let groups: Vec<Group> = groups.collect();
        let groups: Vec<&Group> = groups.iter().collect();
        let html = allowed(&key, &groups, &ReachedLimits::none(NOW), credit).into_string();
        let text = html.split('<').map(|piece| piece.split_once('>').map_or(piece, |(_, text)| text));
        text.collect()
    }

    #[test]
    fn a_key_without_bounds_may_spend_the_credit() {
        let says = says(&BoundsPatch::default(), &[]);
        assert_eq!(says, "May spend the account’s credit · all models · never expires");
    }

    #[test]
    fn the_least_that_is_left_counts_whoever_bounds_it() {
        let (own, team) = (windows(20, Per::Day), windows(3, Per::Month));
        assert!(says(&own, &[]).starts_with("May spend $20.00 today · "), "{}", says(&own, &[]));
        let both = says(&own, &[&team]);
        assert!(both.starts_with("May spend $3.00 this month, the rest of Team’s limit · "), "{both}");
    }

    #[test]
    fn credit_below_every_limit_is_what_may_be_spent() {
        let own = windows(20, Per::Day);
        let with = |usd| says_with(Some(NanoUsd::from_usd(usd)), &own, &[]);
        assert!(with(20).starts_with("May spend $20.00 today · "), "{}", with(20));
        assert!(with(19).starts_with("May spend the account’s credit · "), "{}", with(19));
    }

    #[test]
    fn models_rates_and_the_expiry_are_said_too() {
        let list = |models: &[&str]| Some(Some(models.iter().map(ToString::to_string).collect()));
        let own = BoundsPatch {
            limit: Some(Some(NanoUsd::from_usd(5))),
            models: list(&["a", "b", "c"]),
            max_in_flight: Some(Some(4)),
            requests_per_minute: Some(Some(1_000)),
            ..BoundsPatch::default()
        };
        let team =
            BoundsPatch { models: list(&["b", "x"]), max_in_flight: Some(Some(9)), ..BoundsPatch::default() };
        assert_eq!(
            says(&own, &[&team]),
            "May spend $5.00 in total from now on · only b · 4 at a time · 1,000 requests a minute · never expires"
        );
        assert!(says(&own, &[]).contains("3 models"), "{}", says(&own, &[]));
    }
}
