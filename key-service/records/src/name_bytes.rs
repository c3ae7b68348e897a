//! Bytes of a record's name.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// Length of the longest name that is stored without an allocation: a letter, an id, and a few more bytes.
const SHORT: usize = 22;

/// Bytes of a name. Clones of a long name share its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct NameBytes(Bytes);

/// Equal bytes have equal variants: every name that fits is `Short` and is filled up with zeros.
#[derive(Clone, PartialEq, Eq)]
enum Bytes {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

impl NameBytes {
    /// Joins these parts into a name.
    pub fn concat<const PARTS: usize>(parts: [&[u8]; PARTS]) -> Self {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let Some(short) = u8::try_from(length).ok().filter(|_| length <= SHORT) else {
            return Self(Bytes::Long(parts.concat().into()));
        };
        let (mut bytes, mut at) = ([0; SHORT], 0);
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Self(Bytes::Short { length: short, bytes })
    }
}

impl Deref for NameBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { length, bytes } => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for NameBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for NameBytes {
    fn from(name: &[u8]) -> Self {
        Self::concat([name])
    }
}

impl<const LENGTH: usize> From<[u8; LENGTH]> for NameBytes {
    fn from(name: [u8; LENGTH]) -> Self {
        name[..].into()
    }
}

impl From<Vec<u8>> for NameBytes {
    fn from(name: Vec<u8>) -> Self {
        name[..].into()
    }
}

impl PartialOrd for NameBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self[..].cmp(&other[..])
    }
}

impl Hash for NameBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            // Hashers take a few numbers faster than bytes. The two numbers overlap.
            Bytes::Short { length: _, bytes } => {
                state.write_u64(bytes.first_chunk().map_or(0, |first| u64::from_ne_bytes(*first)));
                state.write_u128(bytes.last_chunk().map_or(0, |last| u128::from_ne_bytes(*last)));
            }
            Bytes::Long(bytes) => state.write(bytes),
        }
    }
}

impl fmt::Debug for NameBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_keep_their_bytes_and_order() {
        assert_eq!(size_of::<NameBytes>(), 24);
        let names: Vec<Vec<u8>> = (0..=60).map(|length| vec![7; length]).collect();
        let mut kept: Vec<_> = names.iter().map(|name| NameBytes::from(&name[..])).rev().collect();
        kept.sort();
        assert!(kept.iter().map(|name| &name[..]).eq(names.iter().map(|name| &name[..])));
        assert_eq!(NameBytes::concat([&[7; 20], &[7; 40]]), kept[60]);
        assert_eq!(NameBytes::concat([&[7; 2], &[7; 20]]), kept[22]);
        assert!(kept.iter().enumerate().all(|(n, name)| kept[..n].iter().all(|other| other != name)));
        assert_ne!(NameBytes::from([7]), NameBytes::from([7, 0]));
    }
}
