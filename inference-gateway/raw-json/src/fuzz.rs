//! Fuzz targets: JSON is read and edited as spelled, and compared with `serde_json`'s trees.

use bytes::BytesMut;
use serde_json::{Value as Tree, json};
use shared::json::{Kind, Object, RawValue, elements};
use shared_fuzz::{Examples, Input, fuzz};

use crate::{ANY_NUMBER, Members, RawString, Splice, Value};

fn examples() -> Examples {
    Examples::folder("chat").and(Examples::folder("responses"))
}

/// Each member and element equals the one at the same place in the tree.
#[test]
fn members() {
    fuzz(&examples(), |input: &Input| {
        let Ok(members) = Members::of_body(input.bytes()) else { return };
        let Ok(tree) = serde_json::from_slice::<Tree>(input.bytes()) else { return };
        for (name, value) in members.iter() {
            compare(&value, &tree[name], name);
        }
        assert!(members.get("no such name").is_none() && members.require("no such name").is_err());
    });
}

fn compare(value: &Value<'_, '_>, tree: &Tree, place: &str) {
    assert_eq!(serde_json::from_str::<Tree>(value.raw()).unwrap(), *tree);
    assert_eq!(value.place(), place);
    assert_eq!(value.string().ok().as_deref(), tree.as_str());
    assert_eq!(value.string_token().is_ok(), tree.is_string());
    assert_eq!(value.boolean().ok(), tree.as_bool());
    let is_whole = !value.raw().contains(['.', 'e', 'E']) && value.raw().len() <= 64;
    // In a tree, `-0` is a float.
    let integer = tree.as_i64().or((value.raw() == "-0").then_some(0)).filter(|_| is_whole);
    assert_eq!(value.integer(i64::MIN..=i64::MAX).ok(), integer);
    let mut number = 0;
    let read = value.each_if_any(ANY_NUMBER, |element| {
        compare(&element, &tree[number], &format!("{place}[{number}]"));
        number += 1;
        Ok(())
    });
    assert_eq!(read.ok(), tree.as_array().map(Vec::len));
    let objects = value.objects_if_any(ANY_NUMBER, |_| Ok(())).is_ok();
    // A tree keeps the last of repeated members; here, they are refused.
    assert!(!objects || tree.as_array().is_some_and(|elements| elements.iter().all(Tree::is_object)));
    if let Ok(members) = value.object() {
        assert_eq!(members.iter().count(), tree.as_object().unwrap().len());
        for (name, member) in members.iter() {
            compare(&member, &tree[name], &format!("{place}.{name}"));
        }
    }
}

/// A string is written as JSON of the text in the tree, or with replacement characters if the tree refuses it.
#[test]
fn raw_strings() {
    let halves = [r#""\ud83d""#, r#""a\uDE00\\ud83d\ud83d\ude00\u00e9""#, r#""\\\ud83dx""#];
    fuzz(&Examples::of(halves).and(Examples::folder("chat")), |input: &Input| {
        let text = input.text();
        let mut strings = Vec::new();
        if let Ok(raw) = serde_json::from_str::<&RawValue>(&text) {
            collect(raw, &mut |raw| strings.extend(RawString::of(raw).map(|string| (raw, string))));
        }
        for (raw, string) in strings {
            let (mut whole, mut inner) = (BytesMut::new(), BytesMut::new());
            string.write(&mut whole);
            string.write_inner(&mut inner);
            assert_eq!(whole[1..whole.len() - 1], inner[..]);
            assert_eq!((string.sound().as_bytes(), string.len()), (&inner[..], string.inner().len() as u64));
            let read: String = serde_json::from_slice(&whole).unwrap();
            assert_eq!(read, string.decoded());
            match serde_json::from_str::<String>(raw.get()) {
                Ok(theirs) => assert_eq!((&read, &whole[..]), (&theirs, raw.get().as_bytes())),
                Err(_) => assert!(read.contains('\u{fffd}')),
            }
        }
    });
}

/// Replacing a value, removing an element or adding a member gives the text of the edited tree; nothing else changes.
#[test]
fn splices() {
    fuzz(&examples(), |input: &Input| {
        let text = input.text();
        let (Ok(raw), Ok(tree)) =
            (serde_json::from_str::<&RawValue>(&text), serde_json::from_str::<Tree>(&text))
        else {
            return;
        };
        let mut places = Vec::new();
        find(raw, String::new(), &mut places);
        let Some((pointer, value)) = places.get(input.choice(places.len())) else { return };
        let edited = |edit: &dyn Fn(&mut Splice<'_>), expected: Tree| {
            let mut splice = Splice::of(&text);
            edit(&mut splice);
            let edited = splice.finish();
            assert_eq!(serde_json::from_str::<Tree>(&edited).ok(), Some(expected), "{edited}");
        };
        let mut expected = tree.clone();
        *expected.pointer_mut(pointer).unwrap() = json!("new");
        edited(&|splice| splice.replace(value, r#""new""#), expected);
        let mut expected = tree.clone();
        if let Some(members) = expected.pointer_mut(pointer).unwrap().as_object_mut() {
            members.insert("added".into(), json!(1));
            edited(&|splice| splice.insert(value, "added", "1"), expected);
        }
    });
}

/// Passes a value and everything in it to `take`.
fn collect<'a>(raw: &'a RawValue, take: &mut dyn FnMut(&'a RawValue)) {
    take(raw);
    match Kind::of(raw) {
        Kind::Array => {
            elements(raw).unwrap_or_default().into_iter().for_each(|element| collect(element, take));
        }
        Kind::Object => {
            let object = Object::from_raw(raw).unwrap_or_default();
            object.iter().for_each(|(_, value)| collect(value, take));
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
    }
}

/// Finds all values that no repeated name hides, each with its JSON pointer.
fn find<'a>(raw: &'a RawValue, at: String, found: &mut Vec<(String, &'a str)>) {
    match Kind::of(raw) {
        Kind::Array => {
            for (number, element) in elements(raw).unwrap_or_default().into_iter().enumerate() {
                find(element, format!("{at}/{number}"), found);
            }
        }
        Kind::Object => {
            let Ok(object) = Object::from_raw(raw) else { return };
            for (name, value) in object.iter() {
                find(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
    }
    found.push((at, raw.get()));
}
