//! Changes of the fields of an encoded message, by `fields.txt`, which `make generate` writes from the proto files.

use std::collections::HashMap;

/// Numbers of the types of fields in a descriptor.
const FIXED64: [i32; 2] = [6, 16];
const STRING: i32 = 9;
const MESSAGE: i32 = 11;
const BYTES: i32 = 12;
const BOOL: i32 = 8;

/// Messages of the store.
pub(super) struct Schema(HashMap<String, Vec<Field>>);

#[derive(Clone)]
struct Field {
    number: u32,
    name: String,
    kind: i32,
    message: String,
    is_repeated: bool,
}

/// A value on the wire, with its field's number.
#[derive(Clone)]
struct Value {
    number: u32,
    of: Content,
}

#[derive(Clone)]
enum Content {
    Varint(u64),
    Fixed64(u64),
    Bytes(Vec<u8>),
}

impl Schema {
    pub(super) fn read() -> Self {
        let mut schema: HashMap<String, Vec<Field>> = HashMap::new();
        for line in include_str!("fields.txt").lines() {
            let mut words = line.split(' ');
            let fields = schema.entry(words.next().unwrap().to_owned()).or_default();
            let [Some(number), Some(name), Some(kind), Some(message), Some(is_repeated)] =
                std::array::from_fn(|_| words.next())
            else {
                continue;
            };
            fields.push(Field {
                number: number.parse().unwrap(),
                name: name.to_owned(),
                kind: kind.parse().unwrap(),
                message: message.to_owned(),
                is_repeated: is_repeated == "true",
            });
        }
        Self(schema)
    }

    /// Changes every field of a message: the name of each change, which begins with `label`, and the changed message.
    pub(super) fn changes(&self, label: &str, message: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut changes = Vec::new();
        self.change(label, &format!(".store.v1.{message}"), bytes, &mut changes);
        changes
    }

    fn change(&self, path: &str, message: &str, bytes: &[u8], changes: &mut Vec<(String, Vec<u8>)>) {
        let (fields, values) = (&self.0[message], decode(bytes));
        for (place, value) in values.iter().enumerate() {
            let field = fields.iter().find(|field| field.number == value.number).unwrap();
            let path = format!("{path}.{}", field.name);
            let with = |content: Content| {
                let mut values = values.clone();
                values[place].of = content;
                encode(&values)
            };
            let mut without = values.clone();
            without.remove(place);
            changes.push((format!("{path} removed"), encode(&without)));
            match &value.of {
                Content::Varint(n) if field.kind == BOOL => {
                    changes.push((format!("{path} changed"), with(Content::Varint(1 - n))));
                }
                Content::Varint(n) => {
                    changes.push((format!("{path} changed"), with(Content::Varint(n.wrapping_add(1)))));
                    changes.push((format!("{path} largest"), with(Content::Varint(u64::MAX))));
                }
                Content::Fixed64(n) => {
                    changes.push((format!("{path} changed"), with(Content::Fixed64(n.wrapping_add(1)))));
                    let largest = with(Content::Fixed64(i64::MAX.cast_unsigned()));
                    changes.push((format!("{path} largest"), largest));
                    let smallest = with(Content::Fixed64(i64::MIN.cast_unsigned()));
                    changes.push((format!("{path} smallest"), smallest));
                }
                Content::Bytes(inner) if field.kind == MESSAGE => {
                    let mut inside = Vec::new();
                    self.change(&path, &field.message, inner, &mut inside);
                    let outside = inside.into_iter().map(|(name, inner)| (name, with(Content::Bytes(inner))));
                    changes.extend(outside);
                }
                Content::Bytes(inner) if field.kind == STRING => {
                    let longer = [&inner[..], b"x"].concat();
                    changes.push((format!("{path} changed"), with(Content::Bytes(longer))));
                }
                Content::Bytes(inner) => {
                    // Bytes, or numbers with the last one changed.
                    let mut other = inner.clone();
                    if let Some(last) = other.last_mut() {
                        *last ^= 0x40;
                    }
                    changes.push((format!("{path} changed"), with(Content::Bytes(other))));
                }
            }
        }
        for field in fields.iter().filter(|field| values.iter().all(|value| value.number != field.number)) {
            let of = match field.kind {
                _ if field.is_repeated => continue,
                MESSAGE => continue,
                kind if FIXED64.contains(&kind) => Content::Fixed64(1),
                STRING => Content::Bytes(b"x".to_vec()),
                BYTES => Content::Bytes(vec![1; 16]),
                _ => Content::Varint(1),
            };
            let mut values = values.clone();
            values.push(Value { number: field.number, of });
            changes.push((format!("{path}.{} added", field.name), encode(&values)));
        }
    }
}

fn varint(bytes: &[u8], place: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*place];
        *place += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

fn decode(bytes: &[u8]) -> Vec<Value> {
    let (mut values, mut place) = (Vec::new(), 0);
    while place < bytes.len() {
        let key = varint(bytes, &mut place);
        let of = match key & 7 {
            0 => Content::Varint(varint(bytes, &mut place)),
            1 => {
                place += 8;
                Content::Fixed64(u64::from_le_bytes(bytes[place - 8..place].try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(bytes, &mut place)).unwrap();
                place += length;
                Content::Bytes(bytes[place - length..place].to_vec())
            }
            other => panic!("no wire type {other} in the store"),
        };
        values.push(Value { number: u32::try_from(key >> 3).unwrap(), of });
    }
    values
}

fn encode(values: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    for Value { number, of } in values {
        let key = u64::from(*number) << 3;
        match of {
            Content::Varint(value) => {
                put_varint(&mut out, key);
                put_varint(&mut out, *value);
            }
            Content::Fixed64(value) => {
                put_varint(&mut out, key | 1);
                out.extend(value.to_le_bytes());
            }
            Content::Bytes(bytes) => {
                put_varint(&mut out, key | 2);
                put_varint(&mut out, bytes.len() as u64);
                out.extend(bytes);
            }
        }
    }
    out
}
