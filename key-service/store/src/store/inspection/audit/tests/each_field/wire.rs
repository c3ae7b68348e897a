//! Changes the fields of a stored value. The fields are named by their numbers.

use minicbor::{Decoder, Encoder, data::Type};

/// Structs whose last fields are optional, with the number of their fields. Such fields are not written if they are
/// absent.
const WITH_OPTIONAL_ENDS: [(&str, usize); 15] = [
    ("Account.0", 5),
    ("Key.0", 7),
    ("Key.0.0", 4),
    ("Key.0.0.3", 7),
    ("Key.0.0.3.0.0", 5),
    ("Key.0.2", 2),
    ("Group.0", 4),
    ("Group.0.0", 4),
    ("Group.0.0.3", 7),
    ("Group.0.0.3.0.0", 5),
    ("Open.1.3", 4),
    ("Bill.1", 10),
    ("Entry.1", 10),
    ("Replaced.1", 10),
    ("Deposit.1", 6),
];

/// A CBOR value.
#[derive(Clone, PartialEq)]
enum Value {
    Null,
    Flag(bool),
    Number(i128),
    Bytes(Vec<u8>),
    Text(String),
    Array(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

/// Changes every field of a value. For each change, returns its name, which begins with `label`, and the changed value.
pub(super) fn changes(label: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut decoder = Decoder::new(bytes);
    let value = Value::read(&mut decoder);
    assert_eq!(decoder.position(), bytes.len(), "there is nothing after the value");
    assert!(value.write() == bytes, "each value has exactly one encoding");
    let mut changes = Vec::new();
    value.change(label, &mut |name, changed| changes.push((name, changed.write())));
    changes
}

impl Value {
    fn read(decoder: &mut Decoder<'_>) -> Self {
        match decoder.datatype().unwrap() {
            Type::Null => {
                decoder.null().unwrap();
                Self::Null
            }
            Type::Bool => Self::Flag(decoder.bool().unwrap()),
            Type::Bytes => Self::Bytes(decoder.bytes().unwrap().to_vec()),
            Type::String => Self::Text(decoder.str().unwrap().to_owned()),
            Type::Array => {
                let length = decoder.array().unwrap().unwrap();
                Self::Array((0..length).map(|_| Self::read(decoder)).collect())
            }
            Type::Map => {
                let length = decoder.map().unwrap().unwrap();
                Self::Map((0..length).map(|_| (Self::read(decoder), Self::read(decoder))).collect())
            }
            _ => Self::Number(decoder.int().unwrap().into()),
        }
    }

    fn write(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::new());
        self.write_to(&mut encoder);
        encoder.into_writer()
    }

    fn write_to(&self, encoder: &mut Encoder<Vec<u8>>) {
        match self {
            Self::Null => drop(encoder.null().unwrap()),
            Self::Flag(flag) => drop(encoder.bool(*flag).unwrap()),
            Self::Number(number) => drop(encoder.int((*number).try_into().unwrap()).unwrap()),
            Self::Bytes(bytes) => drop(encoder.bytes(bytes).unwrap()),
            Self::Text(text) => drop(encoder.str(text).unwrap()),
            Self::Array(all) => {
                encoder.array(all.len() as u64).unwrap();
                for value in all {
                    value.write_to(encoder);
                }
            }
            Self::Map(all) => {
                encoder.map(all.len() as u64).unwrap();
                for (key, value) in all {
                    key.write_to(encoder);
                    value.write_to(encoder);
                }
            }
        }
    }

    /// Calls `each` with every change of the value and of the values inside it.
    fn change(&self, path: &str, each: &mut dyn FnMut(String, Self)) {
        // The whole value itself is left out, because every reader notices a value that cannot be decoded.
        if path.contains('.') {
            for (act, changed) in self.own_changes().into_iter().filter(|(_, changed)| changed != self) {
                each(format!("{path} {act}"), changed);
            }
        }
        if let Self::Array(all) = self {
            let mut all = all.clone();
            if let Some((_, fields)) = WITH_OPTIONAL_ENDS.iter().find(|(of, _)| *of == path) {
                all.resize(*fields, Self::Null);
            }
            for (place, value) in all.iter().enumerate() {
                value.change(&format!("{path}.{place}"), &mut |name, changed| {
                    let mut all = all.clone();
                    all[place] = changed;
                    each(name, Self::Array(all));
                });
            }
        }
    }

    fn own_changes(&self) -> Vec<(&'static str, Self)> {
        match self {
            Self::Null => [
                Self::Number(1),
                Self::Bytes(vec![1; 16]),
                Self::Text("x".into()),
                Self::Flag(true),
                Self::Array(vec![Self::Number(1), Self::Number(1)]),
            ]
            .map(|value| ("added", value))
            .to_vec(),
            Self::Flag(true) => vec![("cleared", Self::Flag(false))],
            Self::Flag(false) => vec![("set", Self::Flag(true))],
            Self::Number(0) => [1, i64::MAX.into(), u64::MAX.into(), i64::MIN.into()]
                .map(|number| ("added", Self::Number(number)))
                .to_vec(),
            Self::Number(number) => vec![
                ("removed", Self::Number(0)),
                ("changed", Self::Number(number + 1)),
                ("largest", Self::Number(i64::MAX.into())),
                ("largest", Self::Number(u64::MAX.into())),
                ("smallest", Self::Number(i64::MIN.into())),
            ],
            Self::Bytes(bytes) => {
                let mut other = bytes.clone();
                if let Some(last) = other.last_mut() {
                    *last ^= 0x40;
                }
                vec![
                    ("removed", Self::Bytes(Vec::new())),
                    ("changed", Self::Bytes(other)),
                    ("removed", Self::Null),
                ]
            }
            Self::Text(text) => {
                vec![
                    ("removed", Self::Text(String::new())),
                    ("changed", Self::Text(format!("{text}x"))),
                    ("removed", Self::Null),
                ]
            }
            Self::Array(_) => vec![("removed", Self::Null), ("removed", Self::Array(Vec::new()))],
            Self::Map(_) => vec![("removed", Self::Map(Vec::new()))],
        }
    }
}
