//! The store's record of the peppers with which keys were created, so that a start with a wrong pepper fails.
//!
//! A store that has keys but lost its record does not know its pepper. It does not simply trust the first pepper that a
//! process has: a pepper is proven only when it finds a key that is older than the new record.

use std::{fmt, str::FromStr};

use shared::time::Timestamp;

use crate::credentials::digest::{Pepper, Peppers};

/// Context of the derivation, as BLAKE3 requires.
const CONTEXT: &str = "faregate 2026-11-23 fingerprint of a pepper";
/// Length of a fingerprint in bytes: long enough that no two peppers have the same fingerprint by accident.
const BYTES: usize = 16;

/// A keyed hash that distinguishes peppers and reveals nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    fn of(pepper: &Pepper) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&pepper.derive(CONTEXT, b"")[..BYTES]);
        Self(bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PepperRecord {
    /// The store had keys before it had a record, so its pepper is not proven.
    Unproven {
        /// When the record was written. Finding an older key proves the pepper.
        since: Timestamp,
    },
    Known {
        current: Fingerprint,
        /// The previous pepper, during a rotation.
        previous: Option<Fingerprint>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The peppers match the store, as far as its record shows.
    Fits,
    /// The peppers are accepted, and this record must replace the stored record.
    Replace(PepperRecord),
    /// No key of the store would be found with these peppers.
    Wrong,
}

impl PepperRecord {
    /// Returns a record of these peppers as proven.
    pub fn of(peppers: &Peppers) -> Self {
        let previous = peppers.previous.as_ref().map(Fingerprint::of);
        Self::Known { current: Fingerprint::of(&peppers.current), previous }
    }

    /// Compares a process's peppers with the store's record. `has_keys` says whether the store has keys; it matters
    /// only without a record.
    pub fn judge(record: Option<Self>, peppers: &Peppers, has_keys: bool, now: Timestamp) -> Verdict {
        let own = Fingerprint::of(&peppers.current);
        let own_previous = peppers.previous.as_ref().map(Fingerprint::of);
        match record {
            None if has_keys => Verdict::Replace(Self::Unproven { since: now }),
            None => Verdict::Replace(Self::of(peppers)),
            Some(Self::Unproven { .. }) => Verdict::Fits,
            // This process has no previous pepper, so the rotation is over. From now on, the previous pepper is wrong.
            Some(Self::Known { current, previous: Some(_) }) if current == own && own_previous.is_none() => {
                Verdict::Replace(Self::of(peppers))
            }
            Some(Self::Known { current, .. }) if current == own => Verdict::Fits,
            // This process still has only the previous pepper: the rotation has not reached it yet.
            Some(Self::Known { previous, .. }) if previous == Some(own) => Verdict::Fits,
            // This process begins a rotation, and records both peppers.
            Some(Self::Known { current, .. }) if Some(current) == own_previous => {
                Verdict::Replace(Self::of(peppers))
            }
            Some(Self::Known { .. }) => Verdict::Wrong,
        }
    }

    /// Returns whether a pepper is proven if it finds the first credential of a key that was created at this time.
    pub fn is_proven_by(&self, created_at: Timestamp) -> bool {
        match self {
            Self::Unproven { since } => created_at < *since,
            Self::Known { .. } => false,
        }
    }
}

impl fmt::Display for PepperRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unproven { since } => write!(f, "unproven {}", since.millis()),
            Self::Known { current, previous } => {
                write!(f, "known {}", hex::encode(current.0))?;
                previous.map_or(Ok(()), |previous| write!(f, " {}", hex::encode(previous.0)))
            }
        }
    }
}

impl FromStr for PepperRecord {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let fingerprint = |digits: &str| {
            let mut bytes = [0; BYTES];
            hex::decode_to_slice(digits, &mut bytes).map(|()| Fingerprint(bytes)).map_err(|_| ())
        };
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["unproven", since] => {
                Ok(Self::Unproven { since: Timestamp::from_millis(since.parse().map_err(|_| ())?) })
            }
            ["known", current] => Ok(Self::Known { current: fingerprint(current)?, previous: None }),
            ["known", current, previous] => {
                Ok(Self::Known { current: fingerprint(current)?, previous: Some(fingerprint(previous)?) })
            }
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn peppers(current: u8, previous: Option<u8>) -> Peppers {
        let pepper = |byte| Pepper::new([byte; 32]);
        Peppers { current: pepper(current), previous: previous.map(pepper) }
    }

    fn judged(record: &Peppers, ours: &Peppers) -> Verdict {
        PepperRecord::judge(Some(PepperRecord::of(record)), ours, true, NOW)
    }

    #[test]
    fn a_pepper_that_the_store_does_not_know_is_wrong() {
        assert_eq!(judged(&peppers(1, None), &peppers(1, None)), Verdict::Fits);
        assert_eq!(judged(&peppers(1, None), &peppers(2, None)), Verdict::Wrong);
        assert_eq!(judged(&peppers(1, None), &peppers(2, Some(3))), Verdict::Wrong);
        assert_eq!(judged(&peppers(1, None), &peppers(1, Some(3))), Verdict::Fits);
    }

    #[test]
    fn a_rotation_is_followed_and_ends_the_pepper_before() {
        let [before, during, after] = [peppers(1, None), peppers(2, Some(1)), peppers(2, None)];
        assert_eq!(judged(&before, &during), Verdict::Replace(PepperRecord::of(&during)));
        assert_eq!(judged(&during, &before), Verdict::Fits, "a process that was not restarted yet");
        assert_eq!(judged(&during, &after), Verdict::Replace(PepperRecord::of(&after)));
        assert_eq!(judged(&after, &before), Verdict::Wrong);
        assert_eq!(
            judged(&during, &peppers(3, Some(1))),
            Verdict::Wrong,
            "keys created with the second pepper would be lost"
        );
    }

    #[test]
    fn an_older_store_with_keys_believes_no_pepper_before_an_older_key_is_found() {
        let (ours, unproven) = (peppers(1, None), PepperRecord::Unproven { since: NOW });
        assert_eq!(PepperRecord::judge(None, &ours, true, NOW), Verdict::Replace(unproven));
        assert_eq!(PepperRecord::judge(Some(unproven), &peppers(2, None), true, NOW), Verdict::Fits);
        assert!(unproven.is_proven_by(Timestamp::from_millis(NOW.millis() - 1)));
        assert!(!unproven.is_proven_by(NOW), "a key created since then proves only its own pepper");
        let new = PepperRecord::judge(None, &ours, false, NOW);
        assert_eq!(new, Verdict::Replace(PepperRecord::of(&ours)), "a store without keys");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let records = [
            PepperRecord::Unproven { since: NOW },
            PepperRecord::of(&peppers(1, None)),
            PepperRecord::of(&peppers(1, Some(2))),
        ];
        for record in records {
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        assert_ne!(records[1], PepperRecord::of(&peppers(2, None)));
        for damaged in ["", "known", "known xy", "unproven soon", "known 00 00 00"] {
            assert_eq!(damaged.parse::<PepperRecord>(), Err(()), "{damaged}");
        }
    }
}
