//! The operator API: routes of the installation, and the routes of the management API for any account.

mod accounts;
mod management_keys;
mod members;
mod payments;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, on},
};
use http::{HeaderValue, header};
use shared::{
    describe::{JSON, operator_api},
    error::ApiError,
    wire::OperatorEndpoint,
};

use crate::{api::Api, listing, operator_caller::OperatorCaller, query};
use domain::event::Event;
use key_service_store::store::operators;

/// Returns the handler of a route that only the operator API has.
pub(crate) fn handler(endpoint: OperatorEndpoint, method: MethodFilter) -> MethodRouter<Api> {
    match endpoint {
        OperatorEndpoint::ListAccounts => on(method, accounts::list),
        OperatorEndpoint::CreateAccount => on(method, accounts::create),
        OperatorEndpoint::FetchAccount => on(method, accounts::fetch),
        OperatorEndpoint::UpdateAccount => on(method, accounts::update),
        OperatorEndpoint::SuspendAccount => on(method, accounts::suspend),
        OperatorEndpoint::RestoreAccount => on(method, accounts::restore),
        OperatorEndpoint::CloseAccount => on(method, accounts::close),
        OperatorEndpoint::ListManagementKeys => on(method, management_keys::list),
        OperatorEndpoint::CreateManagementKey => on(method, management_keys::create),
        OperatorEndpoint::FetchManagementKey => on(method, management_keys::fetch),
        OperatorEndpoint::RevokeManagementKey => on(method, management_keys::revoke),
        OperatorEndpoint::ListMembers => on(method, members::list),
        OperatorEndpoint::InviteMember => on(method, members::invite),
        OperatorEndpoint::RemoveMember => on(method, members::remove),
        OperatorEndpoint::LinkMember => on(method, members::link),
        OperatorEndpoint::ListPayments => on(method, payments::list),
        OperatorEndpoint::Pay => on(method, payments::pay),
        OperatorEndpoint::FetchPayment => on(method, payments::fetch),
        OperatorEndpoint::Refund => on(method, payments::refund),
        OperatorEndpoint::Events => on(method, events),
        OperatorEndpoint::Description => on(method, description),
    }
}

/// Lists events of the operators' own account: operators and operator keys.
async fn events(State(api): State<Api>, _: OperatorCaller, request: Request) -> Result<Response, ApiError> {
    let query = query::read::<Event>(request.uri().query())?.in_pages();
    listing::respond(api, operators(), query).await
}

async fn description(_: OperatorCaller) -> Response {
    let description = operator_api(env!("CARGO_PKG_VERSION")).to_string();
    ([(header::CONTENT_TYPE, HeaderValue::from_static(JSON))], description).into_response()
}
