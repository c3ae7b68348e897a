//! Paths of the management API.

/// Pattern that all paths of the management API match.
pub const MANAGEMENT: &str = "/v1/management/{*rest}";
/// Path of an account's API keys.
pub const KEYS: &str = "/v1/management/keys";
/// Path of an account's groups.
pub const GROUPS: &str = "/v1/management/groups";
/// Path of an account's webhooks.
pub const WEBHOOKS: &str = "/v1/management/webhooks";
/// Path of the credit of an account.
pub const CREDITS: &str = "/v1/management/credits";
/// Path of the sums of an account's usage.
pub const USAGE: &str = "/v1/management/usage";
/// Path of the bills of an account.
pub const GENERATIONS: &str = "/v1/management/generations";
/// Path of an account's refused calls.
pub const REFUSALS: &str = "/v1/management/refusals";
/// Path of an account's events.
pub const EVENTS: &str = "/v1/management/events";
/// Path at which an API key reads about itself.
pub const OWN_KEY: &str = "/v1/key";
