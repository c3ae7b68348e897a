//! Idempotency keys: names and arguments of their records, for scripts that make an object once.

use shared::ids::AccountId;

use super::Redis;
use crate::store::Idempotency;
use domain::digest::Digest;

impl Redis {
    /// Name of an idempotency record. Without an attempt scripts leave the record alone.
    pub(super) fn idempotency_name(&self, account: AccountId, attempt: Option<&Idempotency>) -> String {
        let none = Digest::from_bytes([0; 32]);
        self.key_space.idempotency(account, attempt.map_or(&none, |attempt| &attempt.key))
    }
}

/// The request, the time, and the end of the idempotency key: by the caller's clock, and as a lifetime for Redis. Empty
/// without an idempotency key.
pub(super) fn idempotency_record(attempt: Option<&Idempotency>) -> [String; 4] {
    let Some(Idempotency { key: _, request, now, expires_at }) = attempt else { return Default::default() };
    let life = expires_at.millis().saturating_sub(now.millis()).max(1);
    let request = hex::encode(request.as_bytes());
    [request, now.millis().to_string(), expires_at.millis().to_string(), life.to_string()]
}
