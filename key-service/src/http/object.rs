//! The API key in responses.

use serde::{Serialize, Serializer, ser::SerializeMap};
use shared::{
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::KeyField,
};

use domain::key::ApiKey;

/// A key as clients read it, with the status at a time.
pub(super) struct Shown<'a> {
    key: &'a ApiKey,
    plaintext: Option<&'a SecretString>,
    now: Timestamp,
}

/// The key with the current status.
pub(super) fn shown(key: &ApiKey, now: Timestamp) -> Shown<'_> {
    Shown { key, plaintext: None, now }
}

/// The key with the plaintext, shown only in the answer to the creation.
pub(super) fn shown_with<'a>(key: &'a ApiKey, plaintext: &'a SecretString, now: Timestamp) -> Shown<'a> {
    Shown { key, plaintext: Some(plaintext), now }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("id", &self.key.id)?;
        members.serialize_entry("object", "api_key")?;
        for field in KeyField::ALL {
            members.serialize_entry(field.row().name, &self.key.value(*field, self.now))?;
        }
        if let Some(plaintext) = self.plaintext {
            members.serialize_entry("key", plaintext.expose_secret())?;
        }
        members.end()
    }
}
