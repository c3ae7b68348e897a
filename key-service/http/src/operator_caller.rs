//! The operator key of a request, and the account in its path.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use shared::{
    error::{ApiError, Code},
    money::NanoUsd,
    wire::{Endpoint, OperatorEndpoint},
};
use shared_door::{
    admission::Owner,
    http::{X_FORWARDED_FOR, bearer},
    serve::ConnectionTrust,
};
use tracing::{Span, field::display};

use crate::{api::Api, served_route::ServedRoute};
use domain::{
    access::{Access, Effect, OperatorForbidden},
    event::Actor,
    governed::registry::closed,
    ledger::AccountStatus,
};
use key_service_management::{Error, governor::Governor, operator_keys::OperatorRefusal};
use key_service_store::store::{AccountSummary, OperatorKey, operators};

/// The request's operator key, which is allowed to use this route from the client's address. This is the first argument
/// of every handler, as [`crate::parts::Caller`] is in the management API.
pub(crate) struct OperatorCaller(pub(crate) OperatorKey);

impl OperatorCaller {
    pub(crate) fn actor(self) -> Actor {
        Actor::OperatorKey { id: self.0.id, name: self.0.name }
    }
}

impl FromRequestParts<Api> for OperatorCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let authenticated = authenticate(parts, api).await;
        if let Err(error) = &authenticated
            && error.code.status().is_client_error()
        {
            let reason = error.code.as_str();
            metrics::counter!("keyservice_operator_denials_total", "reason" => reason).increment(1);
            tracing::info!(reason, "a request to the operator API is refused");
        }
        let key = authenticated?;
        // The log line of this request has the same span, so it gets these fields too.
        Span::current()
            .record("operator_key", display(key.id))
            .record("operator_key_name", key.name.as_str());
        ConnectionTrust::of(&parts.extensions).grant(Owner::Account(operators()));
        Ok(Self(key))
    }
}

async fn authenticate(parts: &Parts, api: &Api) -> Result<OperatorKey, ApiError> {
    // The middleware has put the client's address into this header: the connection's, or the address that a gateway
    // reports.
    let from = parts.headers.get(X_FORWARDED_FOR).and_then(|address| address.to_str().ok()?.parse().ok());
    let from: Option<IpAddr> = from;
    let scopes = parts.extensions.get::<ServedRoute>().map_or(&[][..], |served| served.route.scopes());
    let presented = bearer(&parts.headers)?;
    let authenticated = api.management.authenticate_operator(presented, from, scopes).await;
    authenticated.map_err(|error| {
        let said = |refusal| match refusal {
            OperatorRefusal::Credential(refusal) => ApiError::from(refusal),
            OperatorRefusal::Forbidden(OperatorForbidden::Network) => ApiError::new(
                Code::OperatorNetworkNotAllowed,
                "This operator key does not work from this address.",
            ),
            OperatorRefusal::Forbidden(OperatorForbidden::Scope) => {
                let names: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.as_str())).collect();
                let message = format!("This route needs an operator key with scope {}.", names.join(" or "));
                ApiError::new(Code::OperatorScopeMissing, message)
            }
        };
        match error {
            Error::Refused(refusal) => said(refusal),
            Error::Store(cause) => Error::<ApiError>::Store(cause).into(),
        }
    })
}

/// Finds the account in the path. Returns the account, and the request's operator key as the account's governor.
pub(crate) async fn account_and_governor(
    parts: &mut Parts,
    api: &Api,
) -> Result<(AccountSummary, Governor), ApiError> {
    let caller = OperatorCaller::from_request_parts(parts, api).await?;
    governed(parts, api, caller).await
}

async fn governed(
    parts: &mut Parts,
    api: &Api,
    caller: OperatorCaller,
) -> Result<(AccountSummary, Governor), ApiError> {
    let params = RawPathParams::from_request_parts(parts, api).await;
    let named = params.as_ref().ok().and_then(|params| params.iter().find(|(name, _)| *name == "account"));
    let account = api.management.find_account(named.map_or("", |(_, account)| account)).await?;
    Span::current().record("account", display(account.id));
    // These requests are allowed for a closed account: closing it again changes nothing, a repeated payment or refund
    // gets its earlier answer, and the ledger refuses a new payment.
    let may_follow = parts.extensions.get::<ServedRoute>().is_some_and(|served| {
        matches!(
            served.route.endpoint,
            Endpoint::Operator(
                OperatorEndpoint::CloseAccount | OperatorEndpoint::Pay | OperatorEndpoint::Refund
            )
        )
    });
    if account.status() == AccountStatus::Closed && !parts.method.is_safe() && !may_follow {
        return Err(closed());
    }
    let effect = if parts.method.is_safe() { Effect::Read } else { Effect::Write };
    let governor = Governor { account: account.id, actor: caller.actor(), access: Access::default(), effect };
    Ok((account, governor))
}

/// The account in the path, and the operator key that asks about it.
pub(crate) struct OfAccount {
    pub(crate) account: AccountSummary,
    pub(crate) governor: Governor,
    /// The largest payment that the key may make.
    pub(crate) max_payment: NanoUsd,
}

impl FromRequestParts<Api> for OfAccount {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let caller = OperatorCaller::from_request_parts(parts, api).await?;
        let max_payment = caller.0.rights.max_payment;
        let (account, governor) = governed(parts, api, caller).await?;
        Ok(Self { account, governor, max_payment })
    }
}
