//! Bounds of the management API, and its lists of words.

use std::time::Duration;

use crate::money::NanoUsd;

/// Maximum length of a label, and of a group's name, in Unicode code points.
pub const MAX_LABEL_CHARS: usize = 80;
/// Maximum length of an external id in Unicode code points.
pub const MAX_EXTERNAL_ID_CHARS: usize = 128;
/// Largest limit of a key or a group.
pub const MAX_LIMIT: NanoUsd = NanoUsd::from_usd(MAX_LIMIT_USD);
pub(super) const MAX_LIMIT_USD: i64 = 1_000_000;
/// Maximum number of limits: one per length of window.
pub const MAX_LIMITS: usize = 4;
pub const MAX_RAISE: Duration = Duration::from_hours(366 * 24);
/// Largest bound on requests or tokens per minute, and on requests in flight.
pub const MAX_RATE: u64 = 1_000_000_000;
pub const MAX_MODELS: usize = 64;
/// Maximum length of an id in a list of models, in Unicode code points. The longest in use have about 100.
pub const MAX_MODEL_CHARS: usize = 200;
/// Maximum number of metadata entries in an object.
pub const MAX_METADATA: usize = 16;
/// Maximum length of a metadata entry's name in Unicode code points.
pub const MAX_METADATA_NAME_CHARS: usize = 64;
/// Maximum length of a metadata entry's value in Unicode code points.
pub const MAX_METADATA_VALUE_CHARS: usize = 512;
/// Longest default life of a key: a hundred years.
pub(super) const MAX_LIFETIME_SECONDS: u64 = 100 * 366 * 24 * 60 * 60;
/// Longest grace period of a rotation: 30 days.
pub const MAX_GRACE_SECONDS: u64 = 30 * 24 * 60 * 60;
/// Maximum length of an idempotency key in characters; clients send UUIDs.
pub const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;
/// Maximum size of a management request's body in bytes. The largest sensible one, a group with models and metadata for
/// itself and its keys, takes about 180 KiB.
pub const MAX_BODY_BYTES: usize = 256 << 10;
/// Names of the rules of alerts.
pub const ALERT_RULES: [&str; 5] = ["spend_jump", "limit_share", "refused", "credit_days", "weekly_report"];
/// Names of the channels of alerts.
pub const ALERT_CHANNELS: [&str; 4] = ["webhook", "email", "slack", "teams"];
/// Maximum length of an alert's address in characters.
pub const MAX_ALERT_ADDRESS_CHARS: usize = MAX_URL_CHARS;
/// Maximum number of hours without a second message about the same subject: 30 days.
pub const MAX_ALERT_INTERVAL_HOURS: u64 = 720;
/// Maximum threshold of an alert.
pub const MAX_ALERT_THRESHOLD: u64 = 1_000;
/// Maximum length of an id in characters, with room to spare.
pub const MAX_ID_CHARS: usize = 64;
/// Maximum length of a webhook's URL in characters.
pub const MAX_URL_CHARS: usize = 2048;
pub const MAX_PAGE: usize = 1000;
/// Statuses of a key, computed on read.
pub const STATUSES: [&str; 4] = ["active", "disabled", "expired", "revoked"];
/// Orders of a listing, with the default first.
pub const ORDERS: [&str; 2] = ["desc", "asc"];
