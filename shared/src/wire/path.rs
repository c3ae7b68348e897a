//! Paths of the management API.

/// Pattern that all paths of the management API match.
pub const MANAGEMENT: &str = "/v1/management/{*rest}";
/// Path of an account's API keys.
pub const KEYS: &str = "/v1/management/keys";
/// Path of an account's groups.
pub const GROUPS: &str = "/v1/management/groups";
/// Path of an account's webhooks.
pub const WEBHOOKS: &str = "/v1/management/webhooks";
/// Path of an account's alerts.
pub const ALERTS: &str = "/v1/management/alerts";
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
/// Paths of the operator API, as a pattern.
pub const OPERATOR: &str = "/v1/operator/{*rest}";
/// Path of the installation's accounts.
pub const ACCOUNTS: &str = "/v1/operator/accounts";
/// Path of an account, with the account in place of `{account}`.
pub const ACCOUNT: &str = "/v1/operator/accounts/{account}";
/// Path that suspends an account.
pub const SUSPEND: &str = "/v1/operator/accounts/{account}/suspend";
/// Path that restores a suspended account.
pub const RESTORE: &str = "/v1/operator/accounts/{account}/restore";
/// Path that closes a suspended account.
pub const CLOSE: &str = "/v1/operator/accounts/{account}/close";
/// Path of the management keys of an account.
pub const MANAGEMENT_KEYS: &str = "/v1/operator/accounts/{account}/management_keys";
/// Path of the members of an account.
pub const MEMBERS: &str = "/v1/operator/accounts/{account}/members";
/// Path of the payments and refunds of an account.
pub const PAYMENTS: &str = "/v1/operator/accounts/{account}/payments";
/// Path that refunds from an account.
pub const REFUNDS: &str = "/v1/operator/accounts/{account}/refunds";
/// Path of the installation's events.
pub const OPERATOR_EVENTS: &str = "/v1/operator/events";
/// Path of the operator API's description.
pub const OPERATOR_DESCRIPTION: &str = "/v1/operator/openapi.json";
/// Prefix of an external id that names an account in a path.
pub const BY_EXTERNAL_ID: &str = "external:";
/// Path at which an API key reads about itself.
pub const OWN_KEY: &str = "/v1/key";
