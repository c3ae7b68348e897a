//! Paths of pages that other pages link to.

/// An account's id follows.
pub(crate) const ACCOUNT: &str = "/operator/accounts";
pub(crate) const NEW_ACCOUNT: &str = "/operator/accounts/new";
pub(crate) const UPSTREAMS: &str = "/operator/upstreams";
pub(crate) const CATALOGUE: &str = "/operator/catalogue";
pub(crate) const INSTALLATION: &str = "/operator/installation";
