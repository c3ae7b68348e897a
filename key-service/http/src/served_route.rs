//! A route, and the API that serves it.

use shared::wire::Route;

/// The API that serves a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// For API keys, and for management keys, which determine the account.
    Management,
    /// For operator keys. The path names the account.
    Operator,
}

/// A route with the API that serves it.
#[derive(Clone, Copy)]
pub(crate) struct ServedRoute {
    pub(crate) route: &'static Route,
    pub(crate) door: Door,
}
