//! Describes settings in plain words: what several limits allow together, and what a change has done.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::{
    calendar::Per,
    money::NanoUsd,
    text::capitalised,
    time::Timestamp,
    wire::{Field, Fields as Table, GroupField, KeyField, Kind, Limit, Raise, Value},
};

use domain::{
    event::Change,
    group::Group,
    ledger::{Bounds, Budget},
};
use key_service_page::{
    show::{count, name_of, usd},
    zone::Zone,
};

/// The reader of a description: what groups are called, and the time zone.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub groups: &'a [Group],
    pub zone: &'a Zone,
}

/// Describes what a budget allows: `At most $5 a day and $50 in all. Also counts toward Course 101 ($400 a month).`
/// `groups` has the groups whose limits apply too, the nearest group first. Returns an empty text if there are no
/// limits.
pub fn bounds(own: &Budget, groups: &[&Group], now: Timestamp, zone: &Zone) -> String {
    let own_money = money(own, now, zone).map(|money| format!("at most {money}"));
    let of_group =
        |group: &&Group| Some(format!("{} ({})", name_of(group), money(&group.spend.budget, now, zone)?));
    let also = if own_money.is_some() { "also counts" } else { "counts" };
    let of_groups = joined(groups.iter().filter_map(of_group).collect());
    let of_groups = of_groups.map(|groups| format!("{also} toward {groups}"));
    let mut sentences: Vec<String> = own_money.into_iter().chain(of_groups).collect();
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

/// Describes which models in these lists are not offered, and whether any model is left. The lists name models by id,
/// and a request must meet all of them. If no model is left, `who` may call nothing. `None` if all models are offered
/// and at least one is allowed.
pub fn unknown_models(lists: &[&Vec<String>], offered: &[String], who: &str) -> Option<String> {
    let mut unknown: Vec<&str> = Vec::new();
    for model in lists.iter().flat_map(|list| list.iter()).filter(|model| !offered.contains(model)) {
        if !unknown.contains(&model.as_str()) {
            unknown.push(model);
        }
    }
    let is_allowed = |model: &&String| lists.iter().all(|list| list.contains(model));
    let has_none = !lists.is_empty() && !offered.iter().any(|model| is_allowed(&model));
    let names = joined(unknown.iter().map(ToString::to_string).collect());
    let verb = if unknown.len() == 1 { "is" } else { "are" };
    match (names, has_none) {
        (Some(names), true) => Some(format!("{names} {verb} not offered; {who} can call nothing.")),
        (Some(names), false) => Some(format!("{names} {verb} not offered.")),
        (None, true) => Some(format!("No model is allowed by all of the lists; {who} can call nothing.")),
        (None, false) => None,
    }
}

/// Returns the models that a budget allows, if it has a list of them.
pub fn list_of(budget: &Budget) -> Option<&Vec<String>> {
    budget.bounds.as_deref()?.models.as_ref()
}

/// Lists the limits of a budget, the shortest window first: `$20 a day until 2027-12-31 18:00 UTC, then $5 a day`.
fn money(budget: &Budget, now: Timestamp, zone: &Zone) -> Option<String> {
    let mut windows = budget.bounds.as_deref().map_or_else(Vec::new, |bounds| bounds.windows.clone());
    windows.sort_by_key(|window| window.per);
    let limit = |raised: Option<Raise>, plain, says: &dyn Fn(NanoUsd) -> String| {
        raised.map_or_else(
            || says(plain),
            |Raise { amount, until }| {
                format!("{} until {}, then {}", says(amount), moment(until, zone), says(plain))
            },
        )
    };
    let windows = windows
        .iter()
        .map(|window| limit(window.at(now).raised, window.amount, &|amount| per(amount, window.per)));
    let in_all = |amount| format!("{} in all", dollars(amount));
    let lifetime = budget.limit.map(|plain| limit(budget.limit_raised(now), plain, &in_all));
    joined(windows.chain(lifetime).collect())
}

fn rates(bounds: &Bounds) -> Option<String> {
    let per_minute = [(bounds.requests_per_minute, "requests"), (bounds.tokens_per_minute, "tokens")];
    let per_minute = per_minute
        .into_iter()
        .filter_map(|(rate, unit)| Some(format!("{} {unit} a minute", count(rate?.per_minute))));
    let at_once = bounds.max_in_flight.map(|most| format!("{} requests at the same time", count(most)));
    joined(per_minute.chain(at_once).collect())
}

/// Writes an amount as a limit for each window of this length, such as `$5 a day`.
pub fn per(amount: NanoUsd, per: Per) -> String {
    let article = if per == Per::Hour { "an" } else { "a" };
    format!("{} {article} {}", dollars(amount), per.as_str())
}

/// Writes an exact amount, without cents if there are none.
pub fn dollars(amount: NanoUsd) -> String {
    let text = usd(amount);
    text.strip_suffix(".00").map_or_else(|| text.clone(), str::to_owned)
}

fn joined(mut parts: Vec<String>) -> Option<String> {
    let last = parts.pop()?;
    Some(if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) })
}

/// Describes a change: `Saved. Limit: $25.00 → $5.00.` `values` returns a setting before and after the change.
pub fn saved<F: Table>(values: impl Fn(F) -> [Value; 2], reader: Reader<'_>) -> String {
    let changes = F::settings().filter_map(|field| {
        let values = values(field).map(Value::setting);
        (values[0] != values[1]).then(|| change(&field.row(), &values, reader))
    });
    let changes: Vec<String> = changes.collect();
    if changes.is_empty() { "Nothing was changed.".into() } else { format!("Saved. {}.", sentence(&changes)) }
}

/// Joins changes to one sentence, without a period at the end.
pub fn sentence(changes: &[String]) -> String {
    capitalised(&changes.join("; "))
}

/// Describes how a setting changed: `limit: $25.00 → $5.00`.
pub fn change(field: &Field, [before, after]: &[Value; 2], reader: Reader<'_>) -> String {
    format!("{}: {} → {}", title(field), shown(field, before, reader), shown(field, after, reader))
}

/// Returns the name of a setting that an event changed, with its values before and after. Metadata and key defaults
/// contain several values, so there is an entry for each value that changed.
pub fn of_event(change: &Change, reader: Reader<'_>) -> Vec<(String, [String; 2])> {
    let mut rows = KeyField::settings().map(KeyField::row).chain(GroupField::settings().map(GroupField::row));
    let row = rows.find(|row| row.name == change.field);
    let json = [change.before.as_str(), change.after.as_str()];
    let Some(row) = row else {
        return vec![(change.field.clone(), json.map(text))];
    };
    let members = json.map(members);
    match (row.kind, members) {
        (Kind::Metadata | Kind::KeyDefaults, [Some(before), Some(after)]) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let value =
                |name: &String| [&before, &after].map(|of| of.get(name).map_or("null", |value| value.get()));
            let differs = names.into_iter().filter(|name| value(name)[0] != value(name)[1]);
            let member = |name: &String| {
                let values = value(name).map(|json| of_member(name, row.kind, json, reader));
                (format!("{} {name}", title(&row)), values)
            };
            differs.map(member).collect()
        }
        _ => vec![(title(&row), json.map(|json| in_words(&row, json, reader)))],
    }
}

/// Describes a setting's value. A truncated value, and a value that cannot be read because an earlier version wrote it,
/// is shown as it is stored.
fn in_words(row: &Field, json: &str, reader: Reader<'_>) -> String {
    read(row.kind, json).map_or_else(|| text(json), |value| shown(row, &value, reader))
}

/// Describes a member of the metadata or of the key defaults. In metadata, it is a text; in key defaults, it is a
/// setting of a key.
fn of_member(name: &str, kind: Kind, json: &str, reader: Reader<'_>) -> String {
    let row = KeyField::settings().map(KeyField::row).find(|row| row.name == name);
    match row {
        Some(row) if matches!(kind, Kind::KeyDefaults) => in_words(&row, json, reader),
        Some(_) | None if json == "null" => "none".into(),
        Some(_) | None => text(json),
    }
}

/// Returns the members of a JSON object, and an empty map for null. `None` for anything else, and for a truncated
/// value.
fn members(json: &str) -> Option<BTreeMap<String, Box<RawValue>>> {
    if json == "null" {
        return Some(BTreeMap::new());
    }
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).ok()?;
    members.get("cut").is_none_or(|cut| cut.get() != "true").then_some(members)
}

/// Returns a value as stored: a text without its quotes, or the beginning of a value that was too long.
fn text(json: &str) -> String {
    #[derive(Deserialize)]
    struct CutValue {
        begins: String,
    }
    let text = serde_json::from_str::<String>(json).ok();
    let cut = || serde_json::from_str::<CutValue>(json).ok().map(|cut| format!("{}… (cut)", cut.begins));
    text.or_else(cut).unwrap_or_else(|| json.to_owned())
}

/// Reads the value of a setting from the JSON of an event.
fn read(kind: Kind, json: &str) -> Option<Value> {
    #[derive(Deserialize)]
    struct EventLimit {
        amount: Box<RawValue>,
        per: Per,
        raised: Option<EventRaise>,
    }
    #[derive(Deserialize)]
    struct EventRaise {
        amount: Box<RawValue>,
        until: Timestamp,
    }
    let raise = |EventRaise { amount, until }: EventRaise| {
        Some(Raise { amount: NanoUsd::parse(amount.get()).ok()?, until })
    };
    if json == "null" {
        return Some(Value::Null);
    }
    let text = || serde_json::from_str::<String>(json).ok();
    match kind {
        Kind::Amount => NanoUsd::parse(json).ok().map(Value::Amount),
        Kind::Limits => {
            let limits: Vec<EventLimit> = serde_json::from_str(json).ok()?;
            let limit = |EventLimit { amount, per, raised }: EventLimit| {
                let raised = if let Some(raised) = raised { Some(raise(raised)?) } else { None };
                Some(Limit { raised, ..Limit::new(NanoUsd::parse(amount.get()).ok()?, per) })
            };
            limits.into_iter().map(limit).collect::<Option<_>>().map(Value::Limits)
        }
        Kind::Raise => raise(serde_json::from_str(json).ok()?).map(Value::Raise),
        Kind::Time => Timestamp::parse(&text()?).map(Value::Time),
        Kind::Count { .. } => json.parse().ok().map(Value::Count),
        Kind::Flag => json.parse().ok().map(Value::Flag),
        Kind::Models => serde_json::from_str(json).ok().map(Value::Texts),
        Kind::Group => text()?.parse().ok().map(Value::Group),
        Kind::Line { .. } | Kind::ExternalId { .. } | Kind::Word(_) => text().map(Value::Text),
        Kind::Answered(_)
        | Kind::Metadata
        | Kind::Paid
        | Kind::PaymentId { .. }
        | Kind::Url
        | Kind::EventTypes
        | Kind::KeyDefaults => None,
    }
}

/// Returns the name of a field for use within a sentence.
fn title(field: &Field) -> String {
    if let Kind::Limits = field.kind {
        return "limits by window".into();
    }
    let title = field.input.map_or_else(|| field.name.replace('_', " "), |input| input.title.to_owned());
    let title = title.as_str();
    title.split(" (").next().unwrap_or(title).to_lowercase()
}

/// Writes a time in the reader's zone: `2027-12-31 18:00:00 UTC`, `2027-12-31 19:00 (Zurich)`.
fn moment(at: Timestamp, zone: &Zone) -> String {
    let text = zone.from_utc(&at.to_string()).trim_end_matches('Z').replace('T', " ");
    if zone.is_utc() { format!("{text} UTC") } else { format!("{text} ({})", zone.title()) }
}

fn until(Raise { amount, until }: Raise, zone: &Zone) -> String {
    format!("{} until {}", dollars(amount), moment(until, zone))
}

/// Writes a flag as a word.
pub const fn yes_or_no(flag: bool) -> &'static str {
    if flag { "yes" } else { "no" }
}

/// Describes what it means that a setting is not set.
fn unset(field: &Field) -> String {
    match field.kind {
        Kind::Models => "all models".into(),
        Kind::Amount | Kind::Limits | Kind::Count { .. } => "no limit".into(),
        Kind::Time => "never".into(),
        Kind::Group => "no group".into(),
        Kind::Raise => "not raised".into(),
        Kind::Line { .. } | Kind::ExternalId { .. } => format!("no {}", title(field)),
        Kind::Flag
        | Kind::Answered(_)
        | Kind::Metadata
        | Kind::Paid
        | Kind::PaymentId { .. }
        | Kind::Word(_)
        | Kind::Url
        | Kind::EventTypes
        | Kind::KeyDefaults => "none".into(),
    }
}

/// Writes a value for use within a sentence.
fn shown(field: &Field, value: &Value, reader: Reader<'_>) -> String {
    match value {
        Value::Null => unset(field),
        Value::Text(text) if text.is_empty() => unset(field),
        Value::Text(text) => text.clone(),
        Value::Amount(amount) => usd(*amount),
        Value::Time(at) => moment(*at, reader.zone),
        Value::Count(number) => count(*number),
        Value::Flag(flag) => yes_or_no(*flag).into(),
        Value::Limits(limits) => {
            let raised = |raise: Raise| format!(" (raised to {})", until(raise, reader.zone));
            let limit =
                |limit: &Limit| per(limit.amount, limit.per) + &limit.raised.map_or_else(String::new, raised);
            limits.iter().map(limit).collect::<Vec<_>>().join(" and ")
        }
        Value::Raise(raise) => until(*raise, reader.zone),
        Value::Texts(texts) => texts.join(", "),
        Value::Group(id) => {
            reader.groups.iter().find(|group| group.id == *id).map_or_else(|| id.to_string(), name_of)
        }
        Value::Metadata(_) | Value::KeyDefaults(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::BoundsPatch;
    use shared::ids::GroupId;

    const NOW: Timestamp = Timestamp::from_millis(0);

    fn group(name: &str, patch: &BoundsPatch) -> Group {
        let mut group = Group::new(GroupId::new(NOW, [1; 10]), NOW);
        group.name = name.into();
        group.spend.budget = Budget::new(patch, NOW);
        group
    }

    fn limits(lifetime: Option<i64>, windows: &[(Per, i64)]) -> BoundsPatch {
        let windows =
            windows.iter().map(|(per, amount)| Limit::new(NanoUsd::from_usd(*amount), *per)).collect();
        BoundsPatch {
            limit: Some(lifetime.map(NanoUsd::from_usd)),
            windows: Some(windows),
            ..BoundsPatch::default()
        }
    }

    #[test]
    fn bounds_are_said_together_with_those_of_groups() {
        let own = Budget::new(&limits(Some(50), &[(Per::Month, 20), (Per::Day, 5)]), NOW);
        let course = group("Course 101", &limits(None, &[(Per::Month, 400)]));
        assert_eq!(
            bounds(&own, &[&course], NOW, &Zone::utc()),
            "At most $5 a day, $20 a month and $50 in all. Also counts toward Course 101 ($400 a month)."
        );
        assert_eq!(
            bounds(&Budget::default(), &[&course], NOW, &Zone::utc()),
            "Counts toward Course 101 ($400 a month)."
        );
        assert_eq!(
            bounds(&Budget::default(), &[&group("Free", &BoundsPatch::default())], NOW, &Zone::utc()),
            ""
        );
    }

    #[test]
    fn a_raised_limit_is_said_with_its_end_and_what_holds_then() {
        let until = Timestamp::parse("2027-12-31T18:00Z").unwrap();
        let raise = |usd| Some(Raise { amount: NanoUsd::from_usd(usd), until });
        let mut patch = limits(Some(50), &[(Per::Day, 5)]);
        patch.limit_raised = Some(raise(80));
        patch.windows.as_mut().unwrap()[0].raised = raise(20);
        let budget = Budget::new(&patch, NOW);
        assert_eq!(
            bounds(&budget, &[], NOW, &Zone::utc()),
            "At most $20 a day until 2027-12-31 18:00:00 UTC, then $5 a day and \
             $80 in all until 2027-12-31 18:00:00 UTC, then $50 in all."
        );
        assert_eq!(bounds(&budget, &[], until, &Zone::utc()), "At most $5 a day and $50 in all.");
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
            bounds(&Budget::new(&patch, NOW), &[], NOW, &Zone::utc()),
            "At most $1 an hour. At most 60 requests a minute and 3 requests at the same time. \
             Only Model Flash, Model Max."
        );
    }

    #[test]
    fn a_list_with_a_model_that_is_not_offered_says_so() {
        let list = |models: &[&str]| models.iter().map(ToString::to_string).collect::<Vec<_>>();
        let offered = list(&["gpt-5", "gpt-5-mini"]);
        let says = |lists: &[&[&str]]| {
            let lists: Vec<_> = lists.iter().map(|models| list(models)).collect();
            unknown_models(&lists.iter().collect::<Vec<_>>(), &offered, "this key").unwrap_or_default()
        };
        assert_eq!(says(&[]), "");
        assert_eq!(says(&[&["gpt-5"]]), "");
        assert_eq!(says(&[&["gpt-5-minni"]]), "gpt-5-minni is not offered; this key can call nothing.");
        assert_eq!(says(&[&["gpt-5", "a", "b"], &["gpt-5", "b"]]), "a and b are not offered.");
        assert_eq!(
            says(&[&["gpt-5"], &["gpt-5-mini"]]),
            "No model is allowed by all of the lists; this key can call nothing."
        );
    }

    #[test]
    fn changes_of_events_are_said_in_words() {
        let team = group("Tiny team", &BoundsPatch::default());
        let said = |field: &str, before: &str, after: &str| {
            let change = Change { field: field.into(), before: before.into(), after: after.into() };
            let said = of_event(&change, Reader { groups: std::slice::from_ref(&team), zone: &Zone::utc() })
                .into_iter();
            said.map(|(title, [before, after])| format!("{title} {before} → {after}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let id = format!("\"{}\"", team.id);
        for (change, words) in [
            (("limit", "null", "25.5"), "limit no limit → $25.50"),
            (
                ("limits", "null", "[{\"amount\":35,\"per\":\"month\"}]"),
                "limits by window no limit → $35 a month",
            ),
            (
                (
                    "limits",
                    "null",
                    "[{\"amount\":5,\"per\":\"day\",\"raised\":{\"amount\":20,\"until\":\"2027-12-31T18:00:00Z\"}}]",
                ),
                "limits by window no limit → $5 a day (raised to $20 until 2027-12-31 18:00:00 UTC)",
            ),
            (
                ("limit_raised", "{\"amount\":80,\"until\":\"2027-12-31T18:00:00Z\"}", "null"),
                "limit raised $80 until 2027-12-31 18:00:00 UTC → not raised",
            ),
            (("group_id", "null", id.as_str()), "group no group → Tiny team"),
            (("expires_at", "\"2027-01-01T00:00:00Z\"", "null"), "expires 2027-01-01 00:00:00 UTC → never"),
            (("models", "null", "[\"a\",\"b\"]"), "models all models → a, b"),
            (("label", "\"\"", "\"Ann\""), "label no label → Ann"),
            (("disabled", "false", "true"), "disabled no → yes"),
            (("requests_per_minute", "60", "1000"), "requests a minute 60 → 1,000"),
            (
                (
                    "metadata",
                    "{\"old\":\"a\",\"same\":\"1\",\"team\":\"x\"}",
                    "{\"new\":\"\",\"same\":\"1\",\"team\":\"y\"}",
                ),
                "metadata new none → , metadata old a → none, metadata team x → y",
            ),
            (("metadata", "null", "{\"cut\":\"true\"}"), "metadata cut none → true"),
            (
                ("metadata", "null", "{\"cut\":true,\"bytes\":2000,\"begins\":\"{\\\"a\\\":\\\"b\"}"),
                "metadata none → {\"a\":\"b… (cut)",
            ),
            (
                (
                    "key_defaults",
                    "{\"limit\":5,\"models\":[\"a\"]}",
                    "{\"expires_in_seconds\":60,\"limit\":5,\"requests_per_minute\":1000}",
                ),
                "key defaults expires_in_seconds none → 60, key defaults models a → all models, \
                 key defaults requests_per_minute no limit → 1,000",
            ),
            (("models", "null", "\"[\\\"a\\\",… (cut)\""), "models all models → [\"a\",… (cut)"),
            (("of_later", "1", "x"), "of_later 1 → x"),
        ] {
            assert_eq!(said(change.0, change.1, change.2), words);
        }
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
        let said =
            "Saved. Label: no label → Ann; limit: $25.00 → $5.00; expires: never → 1970-01-01 00:00:00 UTC.";
        assert_eq!(saved(values, Reader { groups: &[], zone: &Zone::utc() }), said);
        assert_eq!(
            saved(|_: KeyField| [Value::Null, Value::Null], Reader { groups: &[], zone: &Zone::utc() }),
            "Nothing was changed."
        );
    }
}
