//! Tests of every noun and every route, generated from their tables.

use serde_json::Map;
use shared::wire::{
    AlertObject, Endpoint, Field, Fields, GroupObject, KeyObject, Kind, Noun, NounAct, Object, WebhookObject,
};

use super::*;

/// A noun, with values for its settings.
struct Sample {
    path: &'static str,
    once: Option<&'static str>,
    settings: Vec<Field>,
    /// The smallest valid body.
    least: Value,
    /// For each setting, a value that differs from a new object's value.
    full: Map<String, Value>,
}

/// Returns a valid value for a setting. `blank` is the value that a new object has.
fn value(kind: Kind, group: &str, blank: &Value) -> Value {
    match kind {
        Kind::Line { .. } => json!("a"),
        Kind::ExternalId { .. } => json!("cus_1"),
        Kind::Amount => json!(2.5),
        Kind::Time => json!("2027-12-31T23:59:59Z"),
        Kind::Count { .. } => json!(7),
        Kind::Limits => json!([{"amount": 5, "per": "week"}]),
        Kind::Raise => json!({"amount": 50, "until": "2027-11-01T00:00:00Z"}),
        Kind::Models => json!(["Model Flash"]),
        Kind::Metadata => json!({"term": "fall"}),
        Kind::Group => json!(group),
        Kind::Url => json!("https://hooks.example/other"),
        Kind::Word(words) => json!(words[0]),
        Kind::EventTypes => json!(["key.revoked"]),
        Kind::Flag => json!(!blank.as_bool().unwrap()),
        Kind::KeyDefaults => json!({"limit": 1, "expires_in_seconds": 60}),
        Kind::Paid | Kind::PaymentId { .. } | Kind::Answered(_) => unreachable!("no setting"),
    }
}

async fn sample<O: Object>(desk: &Desk) -> Sample {
    let settings: Vec<Field> = O::Fields::settings().map(Fields::row).collect();
    let required = settings.iter().filter(|row| row.is_required);
    let least = required.map(|row| {
        let Kind::Word(words) = row.kind else {
            return (row.name.to_owned(), json!("https://hooks.example/"));
        };
        (row.name.to_owned(), json!(words[0]))
    });
    let least = Value::Object(least.collect());
    let group = desk.group("{}").await;
    let blank = desk.call(Method::POST, O::NOUN.row().path, least.to_string()).await.json;
    let of = |row: &Field| {
        let value = match row.name {
            // The sample alert uses the first channel, which has no address, and is about the group.
            "to" => json!(""),
            "about" => json!(id_in(&group)),
            _ => value(row.kind, &id_in(&group), &blank[row.name]),
        };
        (row.name.to_owned(), value)
    };
    let full = settings.iter().map(of).collect();
    Sample { path: O::NOUN.row().path, once: O::ONCE.map(|(name, _)| name), settings, least, full }
}

async fn samples(desk: &Desk) -> [Sample; 4] {
    [
        sample::<KeyObject>(desk).await,
        sample::<GroupObject>(desk).await,
        sample::<WebhookObject>(desk).await,
        sample::<AlertObject>(desk).await,
    ]
}

impl Sample {
    async fn made(&self, desk: &Desk) -> (String, Value) {
        let made = desk.call(Method::POST, self.path, self.least.to_string()).await.json;
        (format!("{}/{}", self.path, id_of(&made)), made)
    }

    fn settings_of(&self, object: &Value, but: &str) -> Vec<Value> {
        self.settings.iter().filter(|row| row.name != but).map(|row| object[row.name].clone()).collect()
    }
}

fn id_in(path: &str) -> String {
    path.rsplit('/').next().unwrap().to_owned()
}

/// Asserts that an answer contains everything that was sent. It may also contain more, such as what a limit has used.
#[track_caller]
fn shows(shown: &Value, sent: &Value) {
    match (shown, sent) {
        (Value::Object(shown), Value::Object(sent)) => {
            sent.iter().for_each(|(name, sent)| shows(&shown[name], sent));
        }
        (Value::Array(shown), Value::Array(sent)) => {
            assert_eq!(shown.len(), sent.len());
            shown.iter().zip(sent).for_each(|(shown, sent)| shows(shown, sent));
        }
        _ => assert_eq!(shown, sent),
    }
}

/// Creates one object for each kind of path: key, group, webhook, alert and bill.
async fn one_of_each(desk: &Desk) -> [(&'static str, String); 5] {
    let key = desk.created_id("{}").await;
    let bill = desk.bill(&key, 1_000).await;
    let webhook = sample::<WebhookObject>(desk).await.made(desk).await.0;
    let alert = sample::<AlertObject>(desk).await.made(desk).await.0;
    let group = id_in(&desk.group("{}").await);
    [(KEYS, key), (GROUPS, group), (WEBHOOKS, id_in(&webhook)), (ALERTS, id_in(&alert)), (GENERATIONS, bill)]
}

#[tokio::test]
async fn an_object_is_fetched_and_listed_as_it_was_made() {
    let desk = Desk::open().await;
    for sample in samples(&desk).await {
        let made = desk.call(Method::POST, sample.path, json!(sample.full).to_string()).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let path = format!("{}/{}", sample.path, id_of(&made.json));
        assert_eq!(made.headers["location"], path);
        let mut object = made.json;
        shows(&object, &json!(sample.full));
        assert_eq!(
            sample.once.is_some(),
            sample.once.is_some_and(|once| { object.as_object_mut().unwrap().remove(once).is_some() })
        );
        assert_eq!(desk.get(&path).await.json, object);
        assert_eq!(desk.get(sample.path).await.json["data"][0], object);
    }
}

#[tokio::test]
async fn what_a_change_leaves_out_stays_what_is_null_is_cleared_what_it_has_is_set() {
    let desk = Desk::open().await;
    for sample in samples(&desk).await {
        let (path, blank) = sample.made(&desk).await;
        let change = async |name: &str, value: &Value| {
            desk.call(Method::PATCH, &path, json!({ name: value }).to_string()).await
        };
        // A raise is possible only with a limit, so raises have separate tests.
        for row in sample.settings.iter().filter(|row| !matches!(row.kind, Kind::Raise)) {
            let (name, value) = (row.name, &sample.full[row.name]);
            let before = desk.get(&path).await;
            if row.is_fixed {
                change(name, value).await.is_error(400, "unknown_parameter", Some(name));
                continue;
            }
            let set = change(name, value).await;
            assert_eq!(set.status, 200, "{}", set.text);
            shows(&set.json[name], value);
            assert_eq!(sample.settings_of(&set.json, name), sample.settings_of(&before.json, name));
            assert_eq!(desk.get(&path).await.text, set.text);
            assert_eq!(desk.call(Method::PATCH, &path, "{}").await.text, set.text);
            let cleared = change(name, &Value::Null).await;
            if matches!(row.kind, Kind::Line { .. } | Kind::Url | Kind::Flag | Kind::Word(_)) {
                cleared.is_error(400, "invalid_type", Some(name));
                change(name, &blank[name]).await;
            } else {
                assert_eq!((cleared.status.as_u16(), &cleared.json[name]), (200, &blank[name]), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_unknown_or_missing_in_a_body_is_named() {
    let desk = Desk::open().await;
    for sample in samples(&desk).await {
        let path = sample.made(&desk).await.0;
        let mut body = sample.least.clone();
        body["unheard_of"] = json!(1);
        let change = json!({"unheard_of": 1});
        for (method, path, body) in [(Method::POST, sample.path, body), (Method::PATCH, &*path, change)] {
            let refused = desk.call(method, path, body.to_string()).await;
            refused.is_error(400, "unknown_parameter", Some("unheard_of"));
        }
        for row in sample.settings.iter().filter(|row| row.is_required) {
            let mut body = sample.least.clone();
            body.as_object_mut().unwrap().remove(row.name);
            let refused = desk.call(Method::POST, sample.path, body.to_string()).await;
            refused.is_error(400, "missing_required_parameter", Some(row.name));
        }
    }
}

#[tokio::test]
async fn an_object_that_the_account_does_not_have_is_not_found_however_it_is_spelled() {
    let desk = Desk::open().await;
    let other = Desk { credential: desk.office.account("other").await.1, ..Desk::of(&desk) };
    let objects = one_of_each(&desk).await;
    for row in &ROUTES {
        let Some((_, unknown_code, _)) = row.named else { continue };
        let id = &objects.iter().find(|(path, _)| *path == row.of).unwrap().1;
        let is_unknown = async |desk: &Desk, id: &str| {
            let body = match row.endpoint {
                Endpoint::PayGroup | Endpoint::RefundGroup => r#"{"payment_id":"p1","amount":1}"#,
                _ => "{}",
            };
            let answer = desk.call(row.method(), &row.path().replace("{id}", id), body).await;
            answer.is_error(404, unknown_code.as_str(), None);
        };
        is_unknown(&other, id).await;
        let (prefix, _) = id.split_once('_').unwrap();
        let unknown = format!("{prefix}_00000000000070008000000000000000");
        for unknown in
            [unknown, "nonsense".into(), "%FF".into(), "%20".into(), id.to_uppercase(), id.replace('_', "x_")]
        {
            is_unknown(&desk, &unknown).await;
        }
    }
    for row in ROUTES.iter().filter(|row| row.cursor.is_some() && row.named.is_none()) {
        let id = objects.iter().find(|(path, _)| *path == row.of).map_or("nonsense", |(_, id)| id);
        other.get(&format!("{}?after={id}", row.of)).await.is_error(400, "invalid_value", Some("after"));
        assert_eq!(ids_in(&other.get(&format!("{}?model=x&type=key.created", row.of)).await).0, [""; 0]);
    }
}

#[tokio::test]
async fn lists_are_in_order_and_their_pages_add_up() {
    let desk = Desk::open().await;
    for sample in samples(&desk).await {
        for _ in 0..5 {
            sample.made(&desk).await;
        }
        let (newest_first, has_more) = ids_in(&desk.get(sample.path).await);
        assert!(!has_more && newest_first.len() > 5);
        let oldest_first: Vec<String> = newest_first.iter().rev().cloned().collect();
        for (order, ids) in
            [("", &newest_first), ("&order=desc", &newest_first), ("&order=asc", &oldest_first)]
        {
            assert_eq!(&ids_in(&desk.get(&format!("{}?x=y{order}", sample.path)).await).0, ids);
            let (mut paged, mut after) = (Vec::new(), String::new());
            loop {
                let page = ids_in(&desk.get(&format!("{}?limit=2{order}{after}", sample.path)).await);
                paged.extend(page.0);
                after = format!("&after={}", paged.last().unwrap());
                assert_eq!(page.1, paged.len() < ids.len());
                if !page.1 {
                    break;
                }
            }
            assert_eq!(&paged, ids);
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_makes_one_object_within_24_hours() {
    let desk = Desk::open().await;
    let other = Desk { credential: desk.office.account("other").await.1, ..Desk::of(&desk) };
    for sample in samples(&desk).await {
        let body = json!(sample.full).to_string();
        let first = desk.once(sample.path, sample.path, &body).await;
        assert!(!first.headers.contains_key("idempotent-replayed"));
        let again = desk.once(sample.path, sample.path, &body.replace("2.5", "2.50")).await;
        assert_eq!(
            (again.status.as_u16(), &again.headers["idempotent-replayed"]),
            (201, &HeaderValue::from_static("true"))
        );
        assert_eq!(again.headers["location"], first.headers["location"]);
        let mut object = first.json.clone();
        sample.once.map(|once| object.as_object_mut().unwrap().remove(once));
        assert_eq!(again.json, object);
        let before = desk.get(sample.path).await.text;
        let (least, now) = (sample.least.to_string(), desk.office.clock.now());
        let reused = desk.once(sample.path, sample.path, &least).await;
        reused.is_error(409, "idempotency_key_reuse", None);
        assert_eq!(reused.headers["x-should-retry"], "false");
        assert_eq!(desk.get(sample.path).await.text, before);
        assert_eq!(
            other.once(sample.path, sample.path, &least).await.status,
            201,
            "accounts do not share them"
        );
        desk.office.clock.set(&now.plus(std::time::Duration::from_hours(24)).to_string());
        assert_eq!(desk.once(sample.path, sample.path, &least).await.status, 201);
    }
}

#[tokio::test]
async fn an_idempotency_key_is_1_to_255_printable_characters() {
    let desk = Desk::open().await;
    let objects = one_of_each(&desk).await;
    for row in ROUTES.iter().filter(|row| row.is_idempotent()) {
        let id = &objects.iter().find(|(path, _)| *path == row.of).unwrap().1;
        let path = row.path().replace("{id}", id);
        let body = match row.endpoint {
            Endpoint::Of(Noun::Webhook, NounAct::Create) => r#"{"url":"https://hooks.example/"}"#,
            Endpoint::Of(Noun::Alert, NounAct::Create) => r#"{"rule":"refused","channel":"webhook"}"#,
            _ => "{}",
        };
        // Idempotency keys are unique in the account, so each route uses a different key.
        assert!(desk.once(&path, &row.id.repeat(255)[..255], body).await.status.is_success());
        let before = desk.everything().await;
        for (key, code) in [
            (String::new(), "empty_string"),
            ("x".repeat(256), "string_above_max_length"),
            ("a\tb".into(), "invalid_value"),
            ("é".into(), "invalid_value"),
        ] {
            desk.once(&path, &key, body).await.is_error(400, code, Some("Idempotency-Key"));
        }
        let twice =
            desk.request(Method::POST, &path).header("idempotency-key", "a").header("idempotency-key", "b");
        let answer = desk.send(twice.body(Body::from(body)).unwrap()).await;
        answer.is_error(400, "invalid_value", Some("Idempotency-Key"));
        assert_eq!(desk.everything().await, before);
    }
}

#[tokio::test]
async fn a_query_has_the_parameters_of_its_row_and_ignores_all_others() {
    let desk = Desk::open().await;
    let objects = one_of_each(&desk).await;
    for row in ROUTES.iter().filter(|row| row.cursor.is_some() || !row.query.is_empty()) {
        let id = objects.iter().find(|(path, _)| *path == row.of).map_or("", |(_, id)| id);
        for name in ROUTES.iter().flat_map(|row| row.query).map(|parameter| parameter.name) {
            let is_read = row.query.iter().any(|parameter| parameter.name == name);
            if name == "group_id" && row.endpoint == Endpoint::KeysOfGroup {
                continue;
            }
            let name = if name == "metadata" { "metadata[x]" } else { name };
            // A repeated parameter is refused, whatever its values.
            let answer = desk.get(&format!("{}?{name}=x&{name}=x", row.path().replace("{id}", id))).await;
            assert_eq!(answer.status == StatusCode::BAD_REQUEST, is_read, "{} {name}", row.id);
        }
    }
}

#[tokio::test]
async fn the_credential_is_checked_before_anything_else_and_a_merge_patch_is_for_changes() {
    let desk = Desk::open().await;
    let objects = one_of_each(&desk).await;
    for row in &ROUTES {
        let id = objects.iter().find(|(path, _)| *path == row.of).map_or("", |(_, id)| id);
        let path = row.path().replace("{id}", id);
        let request = Request::builder().method(row.method()).uri(&path).header("content-type", "text/plain");
        let answer = desk.send(request.body(Body::from("x".repeat(1 << 20))).unwrap()).await;
        answer.is_error(401, "missing_api_key", None);
        if row.body.is_none() {
            continue;
        }
        let mut request = desk.request(row.method(), &path).body(Body::from("{}")).unwrap();
        let merge_patch = HeaderValue::from_static("application/merge-patch+json");
        request.headers_mut().insert(header::CONTENT_TYPE, merge_patch);
        let answer = desk.send(request).await;
        assert_eq!(
            answer.status.as_u16(),
            if row.method() == Method::PATCH { 200 } else { 415 },
            "{path}: {}",
            answer.text
        );
    }
}
