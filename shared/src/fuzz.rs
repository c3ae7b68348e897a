//! Fuzz targets for values that come from outside the program.

use std::time::Duration;

use chrono::DateTime;
use serde_json::Value;
use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    credential::{
        key::{Class, Prefix, Presented, without_keys},
        secret::ExposeSecret,
    },
    host::network::Network,
    ids::{KeyId, RequestId},
    json::{Kind, Object, text},
    money::{MoneyError, NanoUsd},
    text::{cut, is_control, is_name, shown},
    timing::{calendar::Per, time::Timestamp},
};

/// An amount differs by at most half a nano-USD from the number that a JSON parser reads. It stays the same when it is
/// written and read again.
#[test]
fn money() {
    let examples =
        ["25", "0.004215", "1e-9", "-2.5E1", "0.0000000025", "9223372036.854775807", "-0", "1e300"];
    fuzz(&Examples::of(examples), |input: &Input| {
        let spelled = input.text();
        let is_number = serde_json::from_str::<&serde_json::value::RawValue>(&spelled)
            .is_ok_and(|raw| Kind::of(raw) == Kind::Number && raw.get() == spelled);
        let amount = NanoUsd::parse(&spelled);
        assert_eq!(is_number, amount != Err(MoneyError::NotANumber));
        let float: f64 = spelled.parse().unwrap_or_default();
        match amount {
            Ok(amount) => {
                let read: f64 = amount.to_string().parse().unwrap();
                assert!((read - float).abs() <= 5.000_001e-10 + float.abs() * 1e-15, "{read}");
                let again = NanoUsd::parse(&amount.to_string());
                assert!(again == Ok(amount) || amount.nanos() == i64::MIN);
            }
            Err(MoneyError::NotANumber) => {}
            Err(MoneyError::OutOfRange { negative }) => {
                assert!(float.abs() > 9.223_372_036e9 && negative == (float < 0.0));
            }
            Err(MoneyError::RoundsToZero) => assert!(float.abs() <= 5e-10),
        }
    });
}

/// If chrono can read a time too, it reads the same instant. An instant stays the same when it is written and read
/// again.
#[test]
fn timestamps() {
    let examples = [
        "2027-12-31T23:59:59Z",
        "2027-12-31t23:59:59.123456789-02:00",
        "2028-02-29 00:00+0530",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Some(at) = Timestamp::parse(&input.text()) else { return };
        assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        assert_eq!(Timestamp::from_millis(at.millis()), at);
        if let Some(local) = input.text().strip_suffix(['Z', 'z']) {
            let written = at.to_string();
            assert_eq!(
                (&local[..10], &local[11..16]),
                (&written[..10], &written[11..16]),
                "every digit is there"
            );
        }
        if let Ok(theirs) = DateTime::parse_from_rfc3339(&input.text()) {
            assert_eq!(theirs.timestamp_millis(), at.millis());
        }
        for per in Per::ALL {
            let (beginning, end) = (per.beginning(at), per.end(at));
            assert!(beginning <= at && (at < end || end == Timestamp::from_millis(i64::MAX)), "{per:?}");
            assert_eq!((per.beginning(beginning), per.end(beginning)), (beginning, end), "{per:?}");
            assert_eq!(per.beginning(end.minus(Duration::from_millis(1))), beginning, "{per:?}");
        }
    });
}

/// There is only one spelling of every id.
#[test]
fn ids() {
    let examples = ["ak_0198f1a2b3c4d5e6f708192a3b4c5d6e", "req_ffffffffffffffffffffffffffffffff"];
    fuzz(&Examples::of(examples), |input: &Input| {
        let text = input.text();
        if let Ok(id) = text.parse::<KeyId>() {
            assert_eq!((id.to_string(), KeyId::from_slice(id.as_bytes())), (text.to_string(), Some(id)));
            assert!(text.parse::<RequestId>().is_err());
        }
    });
}

/// A key that was changed is not recognised as ours. No key is ever shown.
#[test]
fn keys() {
    let prefix = Prefix::parse("fg").unwrap();
    let minted = Class::ALL.map(|class| prefix.mint(class, [200; 32]));
    let minted = minted.each_ref().map(|key| key.expose_secret().to_owned());
    let examples =
        Examples::of(&minted).and(Examples::of(["/v1/keys/sk-proj-0123456789abcdef", "shop_api_é"]));
    fuzz(&examples, |input: &Input| {
        let text = input.text();
        match prefix.recognise(&text) {
            Presented::Own(_) => assert!(minted.iter().any(|key| *key == text)),
            Presented::Foreign => assert!(text.bytes().all(|byte| byte.is_ascii_graphic())),
            Presented::Malformed => {}
        }
        let shown = without_keys(&text);
        assert_eq!(without_keys(&shown), shown, "a second look finds no more");
        assert!(!minted.iter().any(|key| shown.contains(key)), "{shown}");
    });
}

/// An object has the members that `serde_json` finds, with their exact spelling.
#[test]
fn json_objects() {
    fuzz(
        &Examples::folder("chat").and(Examples::of([r#"{"a":1,"\u0061 ":"\ud83d\ude00"}"#])),
        |input: &Input| {
            let theirs: Result<Value, _> = serde_json::from_slice(input.bytes());
            match (Object::from_slice(input.bytes()), theirs) {
                (Ok(ours), Ok(Value::Object(theirs))) => {
                    assert_eq!(ours.iter().count(), theirs.len());
                    for (name, raw) in ours.iter() {
                        assert_eq!(&serde_json::from_str::<Value>(raw.get()).unwrap(), &theirs[name]);
                        assert_eq!(text(raw).ok().as_deref(), theirs[name].as_str());
                    }
                }
                // `serde_json` refuses some numbers, deep nesting and lone surrogates. An `Object` keeps such members
                // unparsed, and their readers must deal with them.
                (Ok(_), Err(_)) => {
                    assert!(serde_json::from_slice::<&serde_json::value::RawValue>(input.bytes()).is_ok());
                }
                (Ok(_), Ok(other)) => panic!("{other} is no object"),
                (Err(error), Ok(Value::Object(_))) => {
                    assert!(error.to_string().contains("duplicate member"), "{error}");
                }
                (Err(_), _) => {}
            }
        },
    );
}

/// A shown text has a limited length, and cannot control a terminal.
#[test]
fn shown_texts() {
    let examples = ["plain, größer, 漢字", "a\u{1b}[31mb\nc\u{202e}d\u{2028}", " a\u{200b}"];
    fuzz(&Examples::of(examples), |input: &Input| {
        let (text, most) = (input.text(), input.choice(20));
        let shown = shown(&text, most);
        assert!(!shown.contains(is_control) && shown.chars().count() <= most * "\\u{10ffff}".len() + 1);
        assert!(text.starts_with(cut(&text, most)) && cut(&text, most).chars().count() <= most);
        assert!(!is_name(&text, most) || shown == text, "a name is shown as it is");
    });
}

/// A network contains the address with which it is written.
#[test]
fn networks() {
    fuzz(&Examples::of(["10.0.0.0/8", "192.168.1.7", "fd00::/8", "::ffff:1.2.3.4/128"]), |input: &Input| {
        let text = input.text();
        if let Ok(network) = text.parse::<Network>() {
            let (address, _) = text.split_once('/').unwrap_or((&text, ""));
            assert!(network.contains(address.parse().unwrap()));
        }
    });
}
