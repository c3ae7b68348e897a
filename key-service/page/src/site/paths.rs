//! Paths of pages that other pages link to.

/// The list of requests; its title is *Requests*.
pub const ACTIVITY: &str = "/dashboard/activity";
/// The first page; all pages for members are below it.
pub const HOME: &str = "/dashboard";
pub const SIGN_IN: &str = "/dashboard/sign-in";
pub const KEYS: &str = "/dashboard/keys";
pub const GROUPS: &str = "/dashboard/groups";
pub const MANAGEMENT_KEYS: &str = "/dashboard/management-keys";
pub const MARGIN: &str = "/dashboard/margin";
/// The page about the member's own sign-in.
pub const YOU: &str = "/dashboard/you";
/// The first page for operators; all their pages are below it.
pub const OPERATOR: &str = "/operator";
pub const OPERATOR_SIGN_IN: &str = "/operator/sign-in";
pub const OPERATOR_SECOND_FACTOR: &str = "/operator/second-factor";
