//! Fuzz targets for the settings of keys, groups, webhooks and alerts.

use domain::{
    alert::AlertPatch,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    webhook::WebhookPatch,
};
use shared::{
    error::Code,
    ids::{GroupId, KeyId},
    json::Object,
    time::Timestamp,
    wire::{Fields, Value},
};
use shared_fuzz::{Examples, Input, fuzz};

use crate::{settings, settings_among};

fn examples() -> Examples {
    Examples::of([
        r#"{"label":"CI","limit":12.5,"limits":[{"amount":1,"per":"day"},{"amount":0.000000001,"per":"month"}],"expires_at":"2099-12-31T23:59:59Z","metadata":{"a":"b"},"disabled":false}"#,
        r#"{"label":"","models":["m","n"],"requests_per_minute":60,"tokens_per_minute":100000,"max_in_flight":4,"group_id":"grp_0198f1a2b3c4d5e6f708192a3b4c5d6e"}"#,
        r#"{"name":"team","external_id":"t1","parent_id":null,"limit":null,"metadata":{"x":null},"key_defaults":{"limit":5,"expires_in_seconds":3600,"metadata":{"k":"v"}}}"#,
        r#"{"limit":5,"limit_raised":{"amount":9,"until":"2027-01-01T00:00Z"},"limits":[{"amount":1,"per":"day","raised":{"amount":2,"until":"2026-12-24T18:00:00+01:00"}}]}"#,
        r#"{"url":"https://example.com/hook","event_types":["key.created"],"disabled":true}"#,
    ])
}

/// A time at which no raise has ended yet.
const BEFORE: Timestamp = Timestamp::from_millis(i64::MIN);

fn now() -> Timestamp {
    Timestamp::from_millis(1_795_140_665_000)
}

/// Checks that a new key with the settings of another key equals that key.
#[test]
fn key_settings() {
    let fresh = || ApiKey::new(KeyId::new(now(), [1; 10]), "hint".into(), now());
    fuzz(&examples(), |input: &Input| {
        for is_new in [true, false] {
            let Ok(patch) = settings::<KeyPatch>(input.bytes(), is_new) else { continue };
            let key = fresh().with(&patch, now());
            let text = json(|field| key.value(field, BEFORE));
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            let patch: KeyPatch = settings_among(&object, true).unwrap_or_else(|e| panic!("{e:?} {text}"));
            assert_eq!(fresh().with(&patch, now()), key, "{text}");
        }
    });
}

/// Checks that a new group with the settings of another group equals that group.
#[test]
fn group_settings() {
    let fresh = || Group::new(GroupId::new(now(), [1; 10]), now());
    fuzz(&examples(), |input: &Input| {
        for is_new in [true, false] {
            let Ok(patch) = settings::<GroupPatch>(input.bytes(), is_new) else { continue };
            let group = fresh().with(&patch, now());
            let text = json(|field| group.value(field, BEFORE));
            let object: Object<'_> = serde_json::from_str(&text).unwrap();
            let patch: GroupPatch = settings_among(&object, true).unwrap_or_else(|e| panic!("{e:?} {text}"));
            assert_eq!(fresh().with(&patch, now()), group, "{text}");
        }
    });
}

/// Checks that a webhook's settings are either accepted or refused with an error that blames the sender.
#[test]
fn webhook_settings() {
    fuzz(&examples(), |input: &Input| {
        for is_new in [true, false] {
            if let Err(error) = settings::<WebhookPatch>(input.bytes(), is_new) {
                assert!(serde_json::from_str::<Object<'_>>(&error.to_json()).is_ok());
                assert_ne!(error.code, Code::InternalError);
            }
        }
    });
}

/// An alert's settings are accepted, or the refusal blames the sender.
#[test]
fn alert_settings() {
    fuzz(&examples(), |input: &Input| {
        for is_new in [true, false] {
            if let Err(error) = settings::<AlertPatch>(input.bytes(), is_new) {
                assert!(serde_json::from_str::<Object<'_>>(&error.to_json()).is_ok());
                assert_ne!(error.code, Code::InternalError);
            }
        }
    });
}

/// Writes an object's settings as a request body.
fn json<F: Fields>(value: impl Fn(F) -> Value) -> String {
    let member = |field: F| {
        let name = field.row().name;
        let value = value(field).setting();
        (value != Value::Null).then(|| format!("\"{name}\":{}", serde_json::to_string(&value).unwrap()))
    };
    format!("{{{}}}", F::settings().filter_map(member).collect::<Vec<_>>().join(","))
}
