//! The limits of the management API, and its lists of words.

use std::time::Duration;

use crate::money::NanoUsd;

/// Maximum length of a label, and of a group's name, in Unicode code points.
pub const MAX_LABEL_CHARS: usize = 80;
/// Maximum length of a member's name in characters: the longest e-mail address fits.
pub const MAX_MEMBER_NAME_CHARS: usize = 254;
/// Maximum length of a payment's note in Unicode code points, so that it fits on a line of an invoice.
pub const MAX_NOTE_CHARS: usize = 200;
/// Maximum length of a payment's id in characters.
pub const MAX_PAYMENT_ID_CHARS: usize = 128;
/// Maximum length of the reason for a suspension, in characters: two sentences fit.
pub const MAX_REASON_CHARS: usize = 200;
/// Maximum length of an external id in Unicode code points.
pub const MAX_EXTERNAL_ID_CHARS: usize = 128;
/// Highest limit that a key or a group may have.
pub const MAX_LIMIT: NanoUsd = NanoUsd::from_usd(MAX_LIMIT_USD);
pub(super) const MAX_LIMIT_USD: i64 = 1_000_000;
/// Maximum number of limits. There may be one for each length of window.
pub const MAX_LIMITS: usize = 4;
pub const MAX_RAISE: Duration = Duration::from_hours(366 * 24);
/// Highest limit on requests or tokens per minute, and on requests in flight.
pub const MAX_RATE: u64 = 1_000_000_000;
pub const MAX_MODELS: usize = 64;
/// Maximum length of an id in a list of models, in Unicode code points. The longest ids in use have about 100.
pub const MAX_MODEL_CHARS: usize = 200;
/// Maximum number of entries in an object's metadata.
pub const MAX_METADATA: usize = 16;
/// Maximum length of the name of a metadata entry, in Unicode code points.
pub const MAX_METADATA_NAME_CHARS: usize = 64;
/// Maximum length of the value of a metadata entry, in Unicode code points.
pub const MAX_METADATA_VALUE_CHARS: usize = 512;
/// Longest life that keys may have by default: a hundred years.
pub(super) const MAX_LIFETIME_SECONDS: u64 = 100 * 366 * 24 * 60 * 60;
/// Longest grace period of a rotation: 30 days.
pub const MAX_GRACE_SECONDS: u64 = 30 * 24 * 60 * 60;
/// Maximum length of an idempotency key in characters. Clients send UUIDs, which are much shorter.
pub const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;
/// Maximum size of a management request's body in bytes. The largest body that makes sense has about 180 KiB. It
/// creates a group with models and metadata, and with defaults for its keys.
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
/// Statuses of a key. They are computed when a key is read.
pub const STATUSES: [&str; 4] = ["active", "disabled", "expired", "revoked"];
pub const ACCOUNT_STATUSES: [&str; 3] = ["active", "suspended", "closed"];
/// Scopes of a management key.
pub const SCOPES: [&str; 2] = ["full", "read"];
/// Roles of a member.
pub const ROLES: [&str; 3] = ["owner", "viewer", "lead"];
/// Number of objects on a page of the operator API if the request has no `limit`.
pub const OPERATOR_PAGE: usize = 100;
/// Orders of a listing. The first is the default.
pub const ORDERS: [&str; 2] = ["desc", "asc"];
