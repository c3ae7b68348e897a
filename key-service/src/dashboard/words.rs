//! Settings in plain words: what bounds allow together, and what a change has changed.

use shared::{
    calendar::Per,
    money::NanoUsd,
    wire::{Field, Fields as Table, Kind, Value},
};

use super::{
    settings_form::name_of,
    show::{count, usd},
};
use domain::{
    group::Group,
    ledger::{Bounds, Budget},
};

/// Says what a budget allows: `At most $5 a day and $50 in all, shared with Course 101: $400 a month.` `groups` also bound
/// the key or group, the nearest first. Empty where nothing is bounded.
pub(super) fn bounds(own: &Budget, groups: &[&Group]) -> String {
    let mut clauses: Vec<String> = Vec::new();
    if let Some(money) = money(own) {
        clauses.push(format!("at most {money}"));
    }
    for group in groups {
        if let Some(money) = money(&group.spend.budget) {
            clauses.push(format!("shared with {}: {money}", name_of(group)));
        }
    }
    let mut sentences = vec![clauses.join(", ")];
    let budgets =
        || std::iter::once((own, None)).chain(groups.iter().map(|group| (&group.spend.budget, Some(*group))));
    for (budget, group) in budgets() {
        let Some(bounds) = budget.bounds.as_deref() else { continue };
        let of = group.map_or_else(String::new, |group| format!("{}: ", name_of(group)));
        sentences.extend(rates(bounds).map(|rates| format!("{of}at most {rates}")));
        sentences.extend(bounds.models.as_ref().map(|models| format!("{of}only {}", models.join(", "))));
    }
    let sentences = sentences.iter().filter(|text| !text.is_empty()).map(|text| capitalised(text) + ".");
    sentences.collect::<Vec<_>>().join(" ")
}

/// The limits of a budget, shortest window first.
fn money(budget: &Budget) -> Option<String> {
    let mut windows = budget.bounds.as_deref().map_or_else(Vec::new, |bounds| bounds.windows.clone());
    windows.sort_by_key(|window| window.per);
    let windows = windows.iter().map(|window| per(window.amount, window.per));
    joined(windows.chain(budget.limit.map(|limit| format!("{} in all", dollars(limit)))).collect())
}

fn rates(bounds: &Bounds) -> Option<String> {
    let per_minute = [(bounds.requests_per_minute, "requests"), (bounds.tokens_per_minute, "tokens")];
    let per_minute = per_minute
        .into_iter()
        .filter_map(|(rate, unit)| Some(format!("{} {unit} a minute", count(rate?.per_minute))));
    let at_once = bounds.max_in_flight.map(|most| format!("{} requests at the same time", count(most)));
    joined(per_minute.chain(at_once).collect())
}

/// An amount in each window of this length.
pub(super) fn per(amount: NanoUsd, per: Per) -> String {
    let article = if per == Per::Hour { "an" } else { "a" };
    format!("{} {article} {}", dollars(amount), per.as_str())
}

/// An exact amount, without cents where there are none.
fn dollars(amount: NanoUsd) -> String {
    let text = usd(amount);
    text.strip_suffix(".00").map_or_else(|| text.clone(), str::to_owned)
}

fn joined(mut parts: Vec<String>) -> Option<String> {
    let last = parts.pop()?;
    Some(if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}

/// Says what a change has changed: `Saved: limit $25.00 → $5.00.` `values` are those of a setting before and after.
pub(super) fn saved<F: Table>(values: impl Fn(F) -> [Value; 2], groups: &[Group]) -> String {
    let changes = F::settings().filter_map(|field| {
        let [before, after] = values(field).map(Value::setting);
        let row = field.row();
        let change = || format!("{} {} → {}", title(&row), shown(&before, groups), shown(&after, groups));
        (before != after).then(change)
    });
    let changes: Vec<String> = changes.collect();
    if changes.is_empty() { "Nothing was changed.".into() } else { format!("Saved: {}.", changes.join(", ")) }
}

/// Name of a field within a sentence.
fn title(field: &Field) -> String {
    if let Kind::Limits = field.kind {
        return "limits by window".into();
    }
    let title = field.input.map_or(field.name, |input| input.title);
    title.split(" (").next().unwrap_or(title).to_lowercase()
}

/// A value within a sentence.
fn shown(value: &Value, groups: &[Group]) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Text(text) if text.is_empty() => "none".into(),
        Value::Text(text) => text.clone(),
        Value::Amount(amount) => usd(*amount),
        Value::Time(at) => format!("{} UTC", at.to_string().trim_end_matches('Z').replace('T', " ")),
        Value::Count(number) => count(*number),
        Value::Flag(flag) => flag.to_string(),
        Value::Limits(limits) => {
            limits.iter().map(|limit| per(limit.amount, limit.per)).collect::<Vec<_>>().join(" and ")
        }
        Value::Texts(texts) => texts.join(", "),
        Value::Group(id) => {
            groups.iter().find(|group| group.id == *id).map_or_else(|| id.to_string(), name_of)
        }
        Value::Metadata(_) | Value::KeyDefaults(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::BoundsPatch;
    use shared::{ids::GroupId, time::Timestamp, wire::KeyField};

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn group(name: &str, patch: &BoundsPatch) -> Group {
        let mut group = Group::new(GroupId::new(NOW, [1; 10]), NOW);
        group.name = name.into();
        group.spend.budget = Budget::new(patch, NOW);
        group
    }

    fn limits(lifetime: Option<i64>, windows: &[(Per, i64)]) -> BoundsPatch {
        let windows = windows.iter().map(|(per, amount)| (*per, NanoUsd::from_usd(*amount))).collect();
        BoundsPatch {
            limit: Some(lifetime.map(NanoUsd::from_usd)),
            windows: Some(windows),
            ..BoundsPatch::default()
        }
    }

    #[test]
    fn bounds_are_said_in_one_sentence() {
        let own = Budget::new(&limits(Some(50), &[(Per::Month, 20), (Per::Day, 5)]), NOW);
        let course = group("Course 101", &limits(None, &[(Per::Month, 400)]));
        assert_eq!(
            bounds(&own, &[&course]),
            "At most $5 a day, $20 a month and $50 in all, shared with Course 101: $400 a month."
        );
        assert_eq!(bounds(&Budget::default(), &[&course]), "Shared with Course 101: $400 a month.");
        assert_eq!(bounds(&Budget::default(), &[&group("Free", &BoundsPatch::default())]), "");
    }

    #[test]
    fn rates_and_models_are_said_beside_the_money() {
        let patch = BoundsPatch {
            requests_per_minute: Some(Some(60)),
            max_in_flight: Some(Some(3)),
            models: Some(Some(vec!["Model Flash".into(), "Model Max".into()])),
            ..limits(None, &[(Per::Hour, 1)])
        };
        assert_eq!(
            bounds(&Budget::new(&patch, NOW), &[]),
            "At most $1 an hour. At most 60 requests a minute and 3 requests at the same time. \
             Only Model Flash, Model Max."
        );
    }

    #[test]
    fn a_saved_change_names_what_changed() {
        let values = |field| match field {
            KeyField::Label => [String::new(), "Ann".to_owned()].map(Value::Text),
            KeyField::Bound(shared::wire::Bound::Limit) => {
                [25, 5].map(|usd| Value::Amount(NanoUsd::from_usd(usd)))
            }
            KeyField::ExpiresAt => [Value::Null, Value::Time(NOW)],
            _ => [Value::Null, Value::Null],
        };
        let said = "Saved: label none → Ann, limit $25.00 → $5.00, expires none → 1970-01-01 00:00:00 UTC.";
        assert_eq!(saved(values, &[]), said);
        assert_eq!(saved(|_: KeyField| [Value::Null, Value::Null], &[]), "Nothing was changed.");
    }
}
