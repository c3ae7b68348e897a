//! Accounts in the operator API.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use shared::{
    error::ApiError,
    wire::{ACCOUNTS, AccountTotals},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    body,
    error::read_error,
    listing,
    operator_caller::{OfAccount, OperatorCaller},
    query::{self, Filtered, Query, external_id, invalid},
};
use domain::{
    ledger::{AccountStatus, StandingAct},
    settings::Suspension,
};
use key_service_management::accounts::registry::AccountFilter;
use key_service_objects::{Shown as _, account_object};
use key_service_store::store::{AccountSummary, operators};

impl Filtered for AccountSummary {
    fn filter(query: &Query<'_>) -> Result<AccountFilter, ApiError> {
        let (name, external_id) = (query.text("name")?, external_id(query)?);
        let status = query.one("status")?.map(|text| {
            let bad = || invalid("status", "`status` must be `active`, `suspended` or `closed`.");
            AccountStatus::parse(text).ok_or_else(bad)
        });
        Ok(AccountFilter { name, external_id, metadata: query.metadata()?, status: status.transpose()? })
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    _: OperatorCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<AccountSummary>(request.uri().query())?.in_pages();
    listing::respond(api, operators(), query).await
}

/// Creates an account, or answers 200 with the existing account that has this external id.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: OperatorCaller,
    request: Request,
) -> Result<Response, ApiError> {
    let settings = body::read_draft(request).await?;
    let (account, is_new) = api.management.open_account(settings, caller.actor()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = [(header::LOCATION, format!("{ACCOUNTS}/{}", account.id))];
    Ok((status, location, ok(&account.shown(api.clock.now()))).into_response())
}

pub(crate) async fn fetch(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
) -> Result<Response, ApiError> {
    let money = api.management.money(account.id).await.map_err(read_error)?;
    // The totals were read at one moment, so credit and held money must be from that moment too.
    let mut account_now = account_object(&account);
    (account_now.credit, account_now.held) = (money.credit, money.held);
    Ok(ok(&AccountTotals {
        account: account_now,
        total_deposited: money.deposited,
        total_refunded: money.refunded,
        total_used: money.used,
    }))
}

pub(crate) async fn update(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let change = body::read_patch(request).await?;
    let changed = api.management.update_account(account.id, change, governor.actor).await?;
    Ok(ok(&changed.shown(api.clock.now())))
}

pub(crate) async fn suspend(
    State(api): State<Api>,
    account: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let Suspension { reason } = body::read_draft(request).await?;
    stand(&api, account, StandingAct::Suspend(reason)).await
}

pub(crate) async fn restore(State(api): State<Api>, account: OfAccount) -> Result<Response, ApiError> {
    stand(&api, account, StandingAct::Restore).await
}

pub(crate) async fn close(State(api): State<Api>, account: OfAccount) -> Result<Response, ApiError> {
    stand(&api, account, StandingAct::Close).await
}

async fn stand(
    api: &Api,
    OfAccount { account, governor, .. }: OfAccount,
    to: StandingAct,
) -> Result<Response, ApiError> {
    let account = api.management.change_standing(account.id, to, governor.actor).await?;
    Ok(ok(&account.shown(api.clock.now())))
}
