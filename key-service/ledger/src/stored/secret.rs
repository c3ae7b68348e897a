//! Hides secrets when records are shown.

use serde::Serializer;

/// Shows only that there is a secret or a hash of a secret.
pub(crate) fn hidden<T, S: Serializer>(_: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("hidden")
}
