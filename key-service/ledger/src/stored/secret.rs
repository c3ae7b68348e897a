//! Hides secrets where records are shown.

use serde::Serializer;

/// Shows only whether a secret, or a hash of one, exists.
pub(crate) fn hidden<T, S: Serializer>(_: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("hidden")
}
