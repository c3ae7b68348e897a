//! Paths of the management API.

/// Paths of the management API, as a pattern.
pub const MANAGEMENT: &str = "/v1/management/{*rest}";
/// Path of an account's API keys.
pub const KEYS: &str = "/v1/management/keys";
/// Path of an account's groups.
pub const GROUPS: &str = "/v1/management/groups";
/// Path of an account's webhooks.
pub const WEBHOOKS: &str = "/v1/management/webhooks";
/// Path of an account's alerts.
pub const ALERTS: &str = "/v1/management/alerts";
/// Path of an account's money.
pub const CREDITS: &str = "/v1/management/credits";
/// Path of an account's counters.
pub const USAGE: &str = "/v1/management/usage";
/// Path of an account's bills.
pub const GENERATIONS: &str = "/v1/management/generations";
/// Path of an account's refused calls.
pub const REFUSALS: &str = "/v1/management/refusals";
/// Path of an account's events.
pub const EVENTS: &str = "/v1/management/events";
/// Path of the requesting API key.
pub const OWN_KEY: &str = "/v1/key";
