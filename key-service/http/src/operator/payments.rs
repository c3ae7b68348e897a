//! Payments and refunds of an account in the operator API.

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{ledger::PaidTo, payment::PaymentId};
use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    wire::{PaymentBody, RefundBody},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    body, listing,
    nouns::payments::{MoneyDraft, answer},
    operator_caller::OfAccount,
    parts::PathId,
    query::{self, Filtered, Query},
};
use key_service_management::Error;
use key_service_objects::payment_object;
use key_service_store::store::Deposit;

/// Adds a payment to the account in the path, and to a group.
pub(crate) async fn pay(
    State(api): State<Api>,
    OfAccount { account, governor, max_payment }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let draft: MoneyDraft<PaymentBody> = body::read_draft(request).await?;
    if draft.amount > max_payment {
        let says = format!("`amount` is above {max_payment} USD, the largest payment of this operator key.");
        return Err(ApiError::at(Code::PaymentAboveMaximum, "amount", says));
    }
    let to = place(&draft, &api, account.id).await?;
    answer(api.management.deposit(account.id, draft.payment(to), governor.actor).await)
}

pub(crate) async fn refund(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let draft: MoneyDraft<RefundBody> = body::read_draft(request).await?;
    let from = place(&draft, &api, account.id).await?;
    answer(api.management.refund(account.id, draft.refund(from)?, governor.actor).await)
}

pub(crate) async fn fetch(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
    path: PathId<PaymentId>,
) -> Result<Response, ApiError> {
    let unknown = || ApiError::new(Code::PaymentNotFound, "The account has no such payment.");
    let found = api.management.payment(account.id, &path.or(unknown())?).await;
    let payment = found.map_err(|error| match error {
        Error::Refused(_) => unknown(),
        Error::Store(cause) => Error::<ApiError>::Store(cause).into(),
    })?;
    Ok(ok(&payment_object(&payment)))
}

impl Filtered for Deposit {
    fn filter(_: &Query<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Deposit>(request.uri().query())?.in_pages();
    listing::respond(api, account.id, query).await
}

/// Finds the group that the body names, if it names one.
async fn place<B>(draft: &MoneyDraft<B>, api: &Api, account: AccountId) -> Result<PaidTo, ApiError> {
    let group = match (draft.group, &draft.group_external_id) {
        (Some(_), Some(_)) => {
            let says = "`group_external_id` cannot be given together with `group_id`.";
            return Err(ApiError::at(Code::InvalidValue, "group_external_id", says));
        }
        (group, None) => group,
        (None, Some(id)) => {
            let found = api.management.paid_group(account, id).await;
            Some(found.map_err(|error| at_external_id(error.into()))?)
        }
    };
    Ok(group.map_or(PaidTo::Account, PaidTo::Both))
}

/// If no group was found, makes the error name `group_external_id`, which is how the caller named the group.
fn at_external_id(error: ApiError) -> ApiError {
    match error.code {
        Code::GroupNotFound => ApiError { param: Some("group_external_id".into()), ..error },
        _ => error,
    }
}
