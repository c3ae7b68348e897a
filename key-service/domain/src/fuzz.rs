//! Fuzz targets for stored texts, events and webhook addresses.

use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    books::usage::Day,
    credentials::{digest::ForeignKey, pepper_record::PepperRecord},
    event::Event,
    member::{LinkMaker, SignInWay},
    payment::PaymentId,
    webhook::{Host, WebhookUrl},
};

/// Checks that stored texts survive reading and writing.
#[test]
fn stored_texts() {
    let hex = "0f".repeat(32);
    let examples = [
        "unproven 1795140665000".to_owned(),
        format!("known {0} {0}", &hex[..32]),
        "password".to_owned(),
        "link owner Ann van  der B".to_owned(),
        "owner Ann".to_owned(),
        "2026-11-21".to_owned(),
        hex.clone(),
        "Invoice 7/2026".to_owned(),
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let text = input.text();
        if let Ok(record) = text.parse::<PepperRecord>() {
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        if let Some(way) = SignInWay::parse(&text) {
            assert_eq!((way.to_string(), SignInWay::parse(&way.to_string())), (text.to_string(), Some(way)));
        }
        if let Some(maker) = LinkMaker::parse(&text) {
            assert_eq!(maker.to_string(), text);
        }
        if let Some(day) = Day::parse(&text) {
            assert_eq!(day.to_string(), text);
        }
        if let Some(key) = ForeignKey::from_hex(&text) {
            assert_eq!(hex::encode(key.as_bytes()), text.to_ascii_lowercase());
            assert!(!key.hint().contains(&*text));
        }
        if let Some(id) = PaymentId::stored(&text) {
            assert_eq!(id.as_str(), text);
        }
    });
}

/// Checks that events survive writing and reading.
#[test]
fn events() {
    let event = |kind: &str, actor: &str, data: &str| {
        let (id, key) = (format!("evt_{:032x}", 1), format!("ak_{:032x}", 2));
        format!(
            r#"{{"id":"{id}","object":"event","type":"{kind}","created_at":"2026-11-21T12:00:00Z","actor":{actor},"key_id":"{key}","group_id":null,"data":{data}}}"#
        )
    };
    let system = r#"{"type":"system","id":null,"name":null}"#;
    let member = format!(r#"{{"type":"member","id":"mem_{:032x}","name":"Ann"}}"#, 3);
    let changes = r#"{"changes":{"label":{"from":"","to":"x"},"limit":{"from":null,"to":0.5}}}"#;
    let examples = [
        event("key.created", &member, changes),
        event("key.updated", r#"{"type":"operator","id":null,"name":"root"}"#, changes),
        event("key.rotated", system, r#"{"previous_key_expires_at":"2026-11-22T12:00:00Z"}"#),
        event("key.limit_reached", system, r#"{"limit":5,"used":4.9,"percent":98,"per":null}"#),
        event("credit.added", system, r#"{"amount":12.5,"credit":20,"note":"n"}"#),
        event("credit.refunded", system, r#"{"amount":2,"shortfall":1,"of":"pay_1","payment_id":"re_1"}"#),
        event("key.revoked", system, "{}"),
    ];
    assert!(examples.iter().any(|text| Event::from_json(text).is_some()));
    fuzz(&Examples::of(examples), |input: &Input| {
        if let Some(event) = Event::from_json(&input.text()) {
            let json = event.to_json();
            assert_eq!(Event::from_json(&json), Some(event), "{json}");
        }
    });
}

/// Checks that an accepted URL uses https or names this machine by its IP address, and that its host name is never an
/// IP address in another spelling.
#[test]
fn webhook_urls() {
    let examples = [
        "https://example.com:8443/hook?token=a%20b&c=d",
        "https://[2606:4700::1111]:443/x",
        "http://127.0.0.1:9000/hook",
        "https://0x7f.1/",
        "https://user@example.com./",
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let text = input.text();
        let Ok(url) = WebhookUrl::parse(&text) else { return };
        assert_eq!((url.as_str(), WebhookUrl::stored(&text).as_ref()), (&*text, Ok(&url)));
        match url.host() {
            Host::Literal(address) => assert!(text.starts_with("https://") || address.is_loopback()),
            Host::Name(name) => {
                assert!(text.starts_with("https://") && name.parse::<std::net::IpAddr>().is_err());
                assert_eq!(Host::parse(name), Some(Host::Name(name.clone())));
            }
        }
    });
}
