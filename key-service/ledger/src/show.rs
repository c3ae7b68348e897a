//! Shows the fields of records as JSON, with bytes in hexadecimal and without secrets.

use serde::{Serialize, Serializer};

/// Shown instead of a secret.
const HIDDEN: &str = "hidden";

/// A secret, or a digest or hash of one.
pub(crate) trait Secret {
    fn is_there(&self) -> bool;
}

impl Secret for Vec<u8> {
    fn is_there(&self) -> bool {
        !self.is_empty()
    }
}

impl Secret for String {
    fn is_there(&self) -> bool {
        !self.is_empty()
    }
}

impl<T: Secret> Secret for Option<T> {
    fn is_there(&self) -> bool {
        self.as_ref().is_some_and(Secret::is_there)
    }
}

/// Shows only whether a secret exists.
pub(crate) fn hidden<S: Serializer>(secret: &impl Secret, serializer: S) -> Result<S::Ok, S::Error> {
    secret.is_there().then_some(HIDDEN).serialize(serializer)
}

/// Shows an id or other bytes.
pub(crate) fn hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex::encode(bytes))
}

pub(crate) fn hex_list<S: Serializer>(all: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(hex::encode))
}
