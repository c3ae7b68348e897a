//! The operators' pages at `/operator`, over the same use cases as the operators' commands.
//!
//! A handler that only reads takes an `Operator` from [`key_service_page::operator`], and a handler that changes
//! something takes an `OperatorAct`. Both require an operator's session with a second factor, and `OperatorAct` also
//! requires a form with the right CSRF token and origin. A member's session provides neither.

use std::sync::Arc;

use axum::{
    Extension, Router, middleware,
    routing::{any, get, post},
};
use key_service_management::Management;
use key_service_page::{
    app::{App, Site},
    area::{Area as _, choose_display, no_such_page, secure, sign_out},
    operator::Operator,
    paths::{OPERATOR, OPERATOR_SECOND_FACTOR, OPERATOR_SIGN_IN},
    second_factor::enable,
    sign_in::{open_link, with_link},
};
use shared_catalog::Catalog;
use shared_config::current::Current;

mod catalogue;
/// Accounts: the list, the page of an account, creating an account, adding credit, refunds, and suspending or closing
/// an account.
mod customers {
    pub(crate) mod account;
    pub(crate) mod accounts;
    pub(crate) mod credit;
    pub(crate) mod credit_form;
    pub(crate) mod new_account;
    pub(crate) mod refund;
    pub(crate) mod standing;
}
mod installation;
mod keys;
mod layout;
mod process_metrics;
mod sign_in;
mod upstreams;

use customers::{account, accounts, credit, new_account, refund, standing};
use layout::{CATALOGUE, INSTALLATION, KEYS, NEW_ACCOUNT, UPSTREAMS};
pub use process_metrics::{ProgramFacts, RenderMetrics};
use sign_in::Operators;

/// Returns the routes of the operators' pages.
pub fn router(
    management: Arc<Management>,
    catalog: Arc<Current<Catalog>>,
    site: Site,
    program: ProgramFacts,
) -> Router {
    let app = App::new(management, catalog, site);
    Router::new()
        .route(OPERATOR, get(accounts::list))
        .route(OPERATOR_SIGN_IN, get(sign_in::show).post(open_link::<Operators>))
        .route(sign_in::LINK, get(sign_in::show))
        .route(Operators::USES_LINK, post(with_link::<Operators>))
        .route("/operator/sign-out", post(sign_out::<Operators>))
        .route("/operator/theme", post(choose_display::<Operator>))
        .route(OPERATOR_SECOND_FACTOR, get(sign_in::offer).post(enable::<Operators>))
        .route(NEW_ACCOUNT, get(new_account::show).post(new_account::create))
        .route("/operator/accounts/{id}", get(account::show))
        .route("/operator/accounts/{id}/credit", post(credit::confirm))
        .route("/operator/accounts/{id}/credit/add", post(credit::add))
        .route("/operator/accounts/{id}/refund", get(refund::show).post(refund::confirm))
        .route("/operator/accounts/{id}/refund/take", post(refund::take))
        .route("/operator/accounts/{id}/suspend", get(standing::ask_suspension).post(standing::suspend))
        .route("/operator/accounts/{id}/restore", get(standing::ask_restoration).post(standing::restore))
        .route("/operator/accounts/{id}/close", get(standing::ask_closure).post(standing::close))
        .route(KEYS, get(keys::list).post(keys::create))
        .route("/operator/keys/{id}/rotate", get(keys::ask_rotation).post(keys::rotate))
        .route("/operator/keys/{id}/revoke", get(keys::ask_revocation).post(keys::revoke))
        .route(UPSTREAMS, get(upstreams::show))
        .route(CATALOGUE, get(catalogue::show))
        .route(INSTALLATION, get(installation::show))
        .route("/operator/{*rest}", any(no_such_page))
        .method_not_allowed_fallback(no_such_page)
        .with_state(app.clone())
        .layer(Extension(program))
        .layer(middleware::from_fn_with_state(app, secure::<Operators>))
}

#[cfg(test)]
mod tests;
