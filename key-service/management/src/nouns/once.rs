//! Requests that create one object no matter how often they are repeated: marks of forms, and digests of requests with
//! an idempotency key.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::AccountId,
    time::Timestamp,
    wire::{Fields, Value},
};

use crate::management::Management;
use domain::digest::Digest;
use key_service_store::store::Idempotency;

/// Lifetime of an idempotency key.
const IDEMPOTENCY_TTL: Duration = Duration::from_hours(24);
/// Tolerated clock difference between key-services, because one may show a form that another receives.
const CLOCKS_APART: Duration = Duration::from_mins(1);

/// Settings are digested as of this time, so that a repeated request has the same digest even if its raise has ended
/// since.
pub(super) const AS_SENT: Timestamp = Timestamp::from_millis(i64::MIN);

/// Outcome of a form that creates an object.
#[derive(Debug)]
pub enum Once<T> {
    /// The object was created. A secret in it cannot be recovered later.
    New(T),
    /// An earlier attempt created the object.
    Replayed,
    /// The form does not come from this service or is too old.
    Stale,
}

/// Digests a request to create an object with these settings. Settings with the same meaning have the same digest.
#[expect(clippy::expect_used, reason = "texts, numbers and ids always have a form in JSON")]
pub(crate) fn digest_of_request<F: Fields>(object: &str, value: impl Fn(F) -> Value) -> Digest {
    let settings = F::settings().map(|field| (field.row().name, value(field).setting()));
    let given: Vec<(&str, Value)> = settings.filter(|(_, value)| !value.is_unset()).collect();
    Digest::of(&serde_json::to_vec(&(object, given)).expect("settings are JSON"))
}

/// Describes an attempt at a request with this digest; `None` if the request has no idempotency key.
pub(crate) fn attempt(name: Option<String>, request: Digest, now: Timestamp) -> Option<Idempotency> {
    let expires_at = now.plus(IDEMPOTENCY_TTL);
    name.map(|name| Idempotency { key: Digest::of(name.as_bytes()), request, now, expires_at })
}

impl Management {
    /// Returns the mark of a form: 64 hexadecimal digits. The first twelve encode the time when it was shown.
    pub fn form_attempt(&self) -> String {
        let shown = self.clock.now().millis();
        format!("{shown:012x}{}", hex::encode(random_bytes::<26>(&*self.clock)))
    }

    /// Returns when an attempt's form was shown, or the current time if the attempt does not contain a recent time;
    /// `None` if the text is not an attempt.
    pub(crate) fn shown_at(&self, attempt: &str) -> Option<Timestamp> {
        let is_attempt = attempt.len() == 64 && attempt.bytes().all(|digit| digit.is_ascii_hexdigit());
        let shown = i64::from_str_radix(attempt.get(..12).filter(|_| is_attempt)?, 16).ok()?;
        let shown = Timestamp::from_millis(shown);
        let now = self.clock.now();
        let is_recent = shown <= now.plus(CLOCKS_APART) && now < shown.plus(IDEMPOTENCY_TTL);
        Some(if is_recent { shown } else { now })
    }

    /// Returns the random bytes for the id of the object that an attempt with these settings creates. The caller cannot
    /// choose them.
    pub(crate) fn bytes_of_attempt(
        &self,
        object: &str,
        account: AccountId,
        attempt: &str,
        settings: &str,
    ) -> [u8; 10] {
        let of = format!("{object}\0{account}\0{attempt}\0{settings}");
        let digest = *self.credentials.keyed_digest(of).as_bytes();
        std::array::from_fn(|byte| digest[byte])
    }
}
