//! Paths of pages that other pages lead to.

/// List of requests.
pub const ACTIVITY: &str = "/dashboard/activity";
/// Path of the first page.
pub const HOME: &str = "/dashboard";
/// Path of the page that signs in.
pub const SIGN_IN: &str = "/dashboard/sign-in";
/// Path of the list of API keys.
pub const KEYS: &str = "/dashboard/keys";
/// Path of the list of groups.
pub const GROUPS: &str = "/dashboard/groups";
/// Path of the page of management keys.
pub const MANAGEMENT_KEYS: &str = "/dashboard/management-keys";
/// Path of the page that compares charges with costs.
pub const MARGIN: &str = "/dashboard/margin";
/// Path of the member's own page.
pub const YOU: &str = "/dashboard/you";
/// First page of operators, below which all others are.
pub const OPERATOR: &str = "/operator";
/// Path of the page that signs an operator in.
pub const OPERATOR_SIGN_IN: &str = "/operator/sign-in";
/// Path of the page on which an operator sets up a second factor.
pub const OPERATOR_SECOND_FACTOR: &str = "/operator/second-factor";
