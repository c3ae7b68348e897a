//! The operators' pages at `/operator`, over the same use-cases as the operators' commands.
//!
//! A handler that only reads takes an `Operator` from [`key_service_page::operator`], and one that changes something takes an
//! `OperatorAct`. Both require an operator's session with a second factor, and `OperatorAct` also a form with the right
//! CSRF token and origin. A member's session yields neither.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use key_service_management::Management;
use key_service_page::{
    app::{App, Site},
    browser::Browser,
    failure::Failure,
    headers,
    paths::{OPERATOR, OPERATOR_SECOND_FACTOR, OPERATOR_SIGN_IN},
};
use shared_catalog::Catalog;
use shared_config::current::Current;

mod catalogue;
mod customers;
mod installation;
mod layout;
mod paths;
mod process_metrics;
mod second_factor;
mod sign_in;
mod theme_choice;
mod upstreams;

use customers::{account, accounts, credit, new_account};
use paths::{CATALOGUE, INSTALLATION, NEW_ACCOUNT, UPSTREAMS};
pub use process_metrics::ProgramFacts;
pub use process_metrics::RenderMetrics;

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
        .route(OPERATOR_SIGN_IN, get(sign_in::show).post(sign_in::open_link))
        .route(sign_in::LINK, get(sign_in::show))
        .route(sign_in::USE_LINK, post(sign_in::with_link))
        .route("/operator/sign-out", post(sign_in::out))
        .route("/operator/theme", post(theme_choice::choose))
        .route(OPERATOR_SECOND_FACTOR, get(second_factor::show).post(second_factor::enable))
        .route(NEW_ACCOUNT, get(new_account::show).post(new_account::create))
        .route("/operator/accounts/{id}", get(account::show))
        .route("/operator/accounts/{id}/credit", post(credit::confirm))
        .route("/operator/accounts/{id}/credit/add", post(credit::add))
        .route(UPSTREAMS, get(upstreams::show))
        .route(CATALOGUE, get(catalogue::show))
        .route(INSTALLATION, get(installation::show))
        .route("/operator/{*rest}", any(no_such_page))
        .method_not_allowed_fallback(no_such_page)
        .with_state(app.clone())
        .layer(Extension(program))
        .layer(middleware::from_fn_with_state(app, secure))
}

/// Middleware: sets security headers, and renders failures as pages.
async fn secure(State(app): State<App>, browser: Browser, request: Request, next: Next) -> Response {
    let over_tls = browser.secure;
    let response =
        if browser.is_at(&app.site) { next.run(request).await } else { Failure::ForeignHost.into_response() };
    let mut response = layout::failure(&app, browser, response).await;
    headers::secure(response.headers_mut(), over_tls);
    response
}

/// Answers a path or a method that no page has.
async fn no_such_page() -> Failure {
    Failure::NotFound
}

#[cfg(test)]
mod tests;
