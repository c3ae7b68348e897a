//! Payments and refunds over HTTP. Each takes effect once for its id. It is answered with 201 the first time, and with
//! 200 and the same body from then on.

use std::marker::PhantomData;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    governed::payments::PaymentRefused, group::Group, ledger::PaidTo, payment::PaymentId, settings::Patch,
};
use http::StatusCode;
use shared::{
    error::ApiError,
    ids::GroupId,
    money::NanoUsd,
    wire::{GroupPaymentBody, GroupRefundBody, Kept, MoneyField, PayingFields, Value},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    body,
    parts::{Caller, PathId},
};
use key_service_management::{
    Error,
    accounts::payments::{NewDeposit, NewRefund, Paid},
};
use key_service_objects::payment_object;

/// A payment or a refund that a request's body asks for. `B` lists the members that the body may have.
pub(crate) struct MoneyDraft<B> {
    payment_id: Option<PaymentId>,
    pub(crate) amount: NanoUsd,
    note: String,
    pub(crate) group: Option<GroupId>,
    pub(crate) group_external_id: Option<String>,
    of: Option<PaymentId>,
    partial: bool,
    body: PhantomData<B>,
}

impl<B> Default for MoneyDraft<B> {
    fn default() -> Self {
        Self {
            payment_id: None,
            amount: NanoUsd::ZERO,
            note: String::new(),
            group: None,
            group_external_id: None,
            of: None,
            partial: false,
            body: PhantomData,
        }
    }
}

impl<B: PayingFields> Patch for MoneyDraft<B> {
    type Field = B;

    fn set(&mut self, field: B, value: Value) -> bool {
        match field.field() {
            MoneyField::PaymentId => keep_id(&mut self.payment_id, value),
            MoneyField::Amount => keep(&mut self.amount, NanoUsd::from_value(value)),
            MoneyField::Note => keep(&mut self.note, String::from_value(value)),
            MoneyField::GroupId => keep(&mut self.group, Kept::from_value(value)),
            MoneyField::GroupExternalId => keep(&mut self.group_external_id, Kept::from_value(value)),
            MoneyField::Of => keep_id(&mut self.of, value),
            MoneyField::Partial => keep(&mut self.partial, bool::from_value(value)),
        }
    }
}

fn keep<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

/// Stores the id of a payment in `place`. Returns `false` if the value is neither an id nor null.
fn keep_id(place: &mut Option<PaymentId>, value: Value) -> bool {
    match value {
        Value::Text(text) => {
            *place = PaymentId::parse(&text);
            place.is_some()
        }
        other => other == Value::Null,
    }
}

impl<B> MoneyDraft<B> {
    pub(crate) fn payment(self, to: PaidTo) -> NewDeposit {
        let Self { payment_id, amount, note, .. } = self;
        NewDeposit { amount, note, payment_id, to }
    }

    pub(crate) fn refund(self, from: PaidTo) -> Result<NewRefund, ApiError> {
        let Self { payment_id, amount, note, of, partial, .. } = self;
        // The id is required, so a body without it has already been refused.
        let payment_id = payment_id.ok_or_else(ApiError::internal)?;
        Ok(NewRefund { payment_id, amount, from, partial, of, note })
    }
}

pub(crate) fn answer(paid: Result<Paid, Error<PaymentRefused>>) -> Result<Response, ApiError> {
    let Paid { deposit, is_new } = paid?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, ok(&payment_object(&deposit))).into_response())
}

/// Answers a request about the group in the path. The body has no member for the group, so an error must not name one.
fn answer_of_group(paid: Result<Paid, Error<PaymentRefused>>) -> Result<Response, ApiError> {
    answer(paid).map_err(|error| match error.param.as_deref() {
        Some("group_id") => ApiError { param: None, ..error },
        Some(_) | None => error,
    })
}

/// Pays into the wallet of the group in the path, out of the account's credit.
pub(crate) async fn pay_group(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let draft: MoneyDraft<GroupPaymentBody> = body::read_draft(request).await?;
    let group = api.in_reach::<Group>(&caller, &path).await?;
    let payment = draft.payment(PaidTo::Wallet(group));
    answer_of_group(api.management.deposit(caller.account, payment, caller.actor).await)
}

pub(crate) async fn refund_group(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GroupId>,
    request: Request,
) -> Result<Response, ApiError> {
    let draft: MoneyDraft<GroupRefundBody> = body::read_draft(request).await?;
    let group = api.in_reach::<Group>(&caller, &path).await?;
    let refund = draft.refund(PaidTo::Wallet(group))?;
    answer_of_group(api.management.refund(caller.account, refund, caller.actor).await)
}
