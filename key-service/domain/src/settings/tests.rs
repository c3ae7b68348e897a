//! Checks that each setting is stored where it is read, and that changing it affects nothing else.

use shared::{
    calendar::Per,
    ids::{GroupId, KeyId, WebhookId},
    wire::{DefaultField, Field, GroupField, KeyField, Kind, WebhookField},
};

use super::*;
use crate::{
    credentials::digest::Digest,
    governed::Refused,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    webhook::{Webhook, WebhookPatch, WebhookUrl},
};

const NOW: Timestamp = Timestamp::from_millis(1_795_140_665_000);
const LATER: Timestamp = Timestamp::from_millis(1_795_140_665_000 + 60_000);

fn key() -> ApiKey {
    ApiKey::new(KeyId::new(NOW, [0; 10]), "fg_api_3kF9…b8r9".into(), NOW)
}

fn group() -> Group {
    Group::new(GroupId::new(NOW, [0; 10]), NOW)
}

/// Returns a value that requests may set; `None` where no request sets the field.
fn sample(row: Field) -> Option<Value> {
    Some(match row.kind {
        Kind::Answered(_) => return None,
        Kind::Line { .. } | Kind::ExternalId { .. } => Value::Text("Customer A".into()),
        Kind::Amount => Value::Amount(NanoUsd::from_usd(25)),
        Kind::Time => Value::Time(Timestamp::from_millis(1)),
        Kind::Count { .. } => Value::Count(7),
        Kind::Limits => Value::Limits(vec![Limit::new(NanoUsd::from_usd(5), Per::Week)]),
        Kind::Raise => Value::Raise(Raise { amount: NanoUsd::from_usd(50), until: LATER }),
        Kind::Models => Value::Texts(vec!["Model Flash".into()]),
        Kind::Metadata => Value::Metadata(BTreeMap::from([("plan".into(), Some("gold".into()))])),
        Kind::Group => Value::Group(GroupId::new(NOW, [1; 10])),
        Kind::Url => Value::Text("https://example.com/hook".into()),
        Kind::EventTypes => Value::Texts(vec!["key.created".into()]),
        // This differs from the default of a new key or webhook.
        Kind::Flag => Value::Flag(row.name == "disabled"),
        Kind::Choice { of } => Value::Text(of[0].into()),
        Kind::KeyDefaults => Value::KeyDefaults(
            DefaultField::settings().filter_map(|field| Some((field, sample(field.row())?))).collect(),
        ),
    })
}

/// Sets each field separately and clears it again. `changed` applies a change of fields, and returns `None` if one
/// cannot be set; `value` reads a field.
fn each_setting_is_kept<F: Fields, T: Clone>(
    blank: &T,
    changed: impl Fn(T, F, Value) -> Option<T>,
    value: impl Fn(&T, F) -> Value,
) {
    for field in F::all() {
        let Some(given) = sample(field.row()) else {
            assert!(changed(blank.clone(), field, value(blank, field)).is_none(), "{field:?}");
            continue;
        };
        let with = changed(blank.clone(), field, given.clone()).unwrap_or_else(|| panic!("{field:?}"));
        assert_eq!(value(&with, field).setting(), given, "{field:?}");
        for other in F::settings().filter(|other| *other != field) {
            assert_eq!(value(&with, other), value(blank, other), "{field:?} {other:?}");
        }
        assert!(changed(blank.clone(), field, Value::Count(u64::MAX)).is_none() || given == Value::Count(7));
        if let Some(cleared) = changed(with, field, Value::Null) {
            assert_eq!(value(&cleared, field), value(blank, field), "{field:?}");
        }
    }
}

#[test]
fn each_setting_is_kept_where_it_is_read_and_no_other_field_can_be_set() {
    each_setting_is_kept(
        &key(),
        |key, field, value| {
            let mut patch = KeyPatch::default();
            patch.set(field, value).then(|| key.with(&patch, NOW))
        },
        |key, field: KeyField| key.value(field, NOW),
    );
    each_setting_is_kept(
        &group(),
        |group, field, value| {
            let mut patch = GroupPatch::default();
            patch.set(field, value).then(|| group.with(&patch, NOW))
        },
        |group, field: GroupField| group.value(field, NOW),
    );
    let webhook = Webhook {
        id: WebhookId::new(NOW, [0; 10]),
        url: WebhookUrl::parse("https://example.com/").unwrap(),
        types: None,
        secret: Digest::of(b"secret"),
        created_at: NOW,
        disabled: None,
    };
    each_setting_is_kept(
        &webhook,
        |webhook, field, value| {
            let mut patch = WebhookPatch::default();
            patch.set(field, value).then(|| webhook.with(&patch, NOW))
        },
        |webhook, field: WebhookField| webhook.value(field),
    );
}

#[test]
fn metadata_merge_and_have_at_most_sixteen_names() {
    let named = |from: u32, to: u32, value: Option<&str>| {
        (from..to).map(|n| (format!("name {n}"), value.map(str::to_owned))).collect()
    };
    let patch =
        |changes| KeyPatch { metadata: MetadataPatch { is_cleared: false, changes }, ..KeyPatch::default() };
    let full = key().updated(&patch(named(0, 16, Some("a"))), NOW).unwrap();
    let one_more = patch(named(16, 17, Some("a")));
    assert_eq!(full.clone().updated(&one_more, NOW), Err(Refused::TooMuchMetadata));
    let fewer = full.updated(&patch(named(0, 2, None)), NOW).unwrap().updated(&one_more, NOW).unwrap();
    let left: Vec<&str> = fewer.metadata.keys().map(String::as_str).collect();
    assert_eq!((left.len(), left.contains(&"name 0"), left.contains(&"name 16")), (15, false, true));
    let mut clear = KeyPatch::default();
    assert!(clear.set(KeyField::Metadata, Value::Null));
    assert!(fewer.updated(&clear, NOW).unwrap().metadata.is_empty());
}

#[test]
fn a_key_made_in_a_group_has_the_defaults_that_it_says_nothing_about() {
    let defaults = [
        (DefaultField::Bound(Bound::Limit), Value::Amount(NanoUsd::from_usd(5))),
        (DefaultField::Bound(Bound::MaxInFlight), Value::Count(4)),
        (DefaultField::ExpiresInSeconds, Value::Count(60)),
        (DefaultField::Metadata, Value::Metadata(BTreeMap::from([("plan".into(), Some("gold".into()))]))),
    ];
    let mut patch = GroupPatch::default();
    assert!(patch.set(GroupField::KeyDefaults, Value::KeyDefaults(defaults.into())));
    let group = group().with(&patch, NOW);
    let mut own = KeyPatch::default();
    assert!(own.set(KeyField::Bound(Bound::Limit), Value::Null));
    assert!(own.set(KeyField::Bound(Bound::MaxInFlight), Value::Count(2)));
    let key = key().with(&group.key_defaults.settings(NOW), NOW).with(&own, NOW);
    assert_eq!(key.spend.budget.limit, None);
    assert_eq!(key.value(KeyField::Bound(Bound::MaxInFlight), NOW), Value::Count(2));
    assert_eq!(key.spend.expires_at, Some(Timestamp::from_millis(NOW.millis() + 60_000)));
    assert_eq!(key.metadata["plan"], "gold");
}

#[test]
fn an_archived_group_does_not_change() {
    let archived = group().archived(NOW);
    assert_eq!(archived.clone().updated(&GroupPatch::default(), Ok(()), NOW), Err(Refused::GroupArchived));
    let later = Timestamp::from_millis(NOW.millis() + 1);
    assert_eq!(archived.clone().archived(later), archived);
}

#[test]
fn a_change_names_the_settings_that_differ_and_no_others() {
    let key = key();
    let patch = KeyPatch {
        label: Some("x".into()),
        bounds: BoundsPatch::of_limit(Some(NanoUsd::from_usd(25))),
        ..KeyPatch::default()
    };
    let changed = key.clone().with(&patch, NOW);
    let limit = crate::event::Change { field: "limit".into(), before: "null".into(), after: "25".into() };
    let label = crate::event::Change { field: "label".into(), before: "\"\"".into(), after: "\"x\"".into() };
    assert_eq!(changed.changes_since(&key, NOW), [label, limit]);
    assert_eq!(changed.clone().with(&patch, NOW).changes_since(&changed, NOW), []);
}

#[test]
fn a_change_only_lowers_where_every_setting_that_differs_allows_less() {
    let usd = |usd| Some(Some(NanoUsd::from_usd(usd)));
    let models = |models: &[&str]| Some(Some(models.iter().map(|id| (*id).to_owned()).collect()));
    let bounds = BoundsPatch {
        limit: usd(9),
        windows: Some(vec![
            Limit::new(NanoUsd::from_usd(5), Per::Day),
            Limit::new(NanoUsd::from_usd(7), Per::Week),
        ]),
        models: models(&["a", "b"]),
        requests_per_minute: Some(Some(60)),
        ..BoundsPatch::default()
    };
    let before = key().with(&KeyPatch { label: Some("x".into()), bounds, ..KeyPatch::default() }, NOW);
    let lowers = |patch: KeyPatch| before.clone().with(&patch, NOW).only_lowers(&before, NOW);
    let bound = |bounds: BoundsPatch| lowers(KeyPatch { bounds, ..KeyPatch::default() });
    let empty = BoundsPatch::default;
    let windows = |windows: &[(Per, i64)]| {
        let windows = windows.iter().map(|(per, usd)| Limit::new(NanoUsd::from_usd(*usd), *per));
        bound(BoundsPatch { windows: Some(windows.collect()), ..empty() })
    };
    assert!(lowers(KeyPatch::default()), "nothing differs");
    assert!(lowers(KeyPatch { expires_at: Some(Some(NOW)), ..KeyPatch::default() }));
    let disabled = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
    assert!(lowers(disabled.clone()));
    let enabled = before.clone().with(&disabled, NOW);
    let enabling = KeyPatch { disabled: Some(false), ..KeyPatch::default() };
    assert!(!enabled.clone().with(&enabling, NOW).only_lowers(&enabled, NOW));
    assert!(!lowers(KeyPatch { label: Some("y".into()), ..KeyPatch::default() }));
    assert!(!lowers(KeyPatch { group: Some(Some(group().id)), ..KeyPatch::default() }));
    for (allowed, usd) in [(true, usd(8)), (false, usd(10)), (false, Some(None))] {
        assert_eq!(bound(BoundsPatch { limit: usd, ..empty() }), allowed, "{usd:?}");
    }
    assert!(!lowers(KeyPatch {
        label: Some("y".into()),
        bounds: BoundsPatch { limit: usd(8), ..empty() },
        ..KeyPatch::default()
    }));
    assert!(windows(&[(Per::Day, 4), (Per::Week, 7), (Per::Month, 9)]));
    assert!(!windows(&[(Per::Day, 4)]) && !windows(&[(Per::Day, 6), (Per::Week, 7)]) && !windows(&[]));
    for (allowed, list) in [
        (true, models(&["b"])),
        (false, models(&["b", "c"])),
        (false, models(&["a", "a", "b"])),
        (false, Some(None)),
    ] {
        assert_eq!(bound(BoundsPatch { models: list.clone(), ..empty() }), allowed, "{list:?}");
    }
    assert!(bound(BoundsPatch {
        requests_per_minute: Some(Some(59)),
        max_in_flight: Some(Some(1)),
        ..empty()
    }));
    assert!(!bound(BoundsPatch { requests_per_minute: Some(None), ..empty() }));
}
