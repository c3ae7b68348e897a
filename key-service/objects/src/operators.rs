//! Objects of the operator API: accounts, payments, management keys and members.

use serde::Serialize;
use shared::{
    money::NanoUsd,
    time::Timestamp,
    wire::{AccountObject, ManagementKeyObject, MemberObject, PaymentObject},
};

use crate::json::Shown;
use domain::{member::Member, payment::PaymentId, settings::AccountLabels};
use key_service_store::store::{AccountSummary, Deposit, ManagementKey};

impl Shown for AccountSummary {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        account_object(self)
    }
}

impl Shown for ManagementKey {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        management_key_object(self, None)
    }
}

impl Shown for Member {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        member_object(self, None)
    }
}

impl Shown for Deposit {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        payment_object(self)
    }
}

/// Returns a payment or a refund as the API shows it. The result is the same at any time.
pub fn payment_object(payment: &Deposit) -> PaymentObject<'_> {
    let Deposit { id, deposited } = payment;
    let terms = deposited.terms();
    let taken = NanoUsd::from_nanos(deposited.change().nanos().saturating_abs());
    let refund = deposited.refund.as_ref();
    PaymentObject {
        id: *id,
        object: if terms.is_refund { "refund" } else { "payment" },
        payment_id: deposited.payment.as_ref().map_or("", |payment| payment.id.as_str()),
        amount: terms.amount,
        taken: refund.map(|_| taken),
        shortfall: refund.map(|_| deposited.shortfall()),
        of: refund.and_then(|refund| refund.of.as_ref()).map(PaymentId::as_str),
        note: &deposited.note,
        group_id: terms.to.group(),
        credit_after: deposited.credit,
        group_limit_after: deposited.wallet.map(|wallet| wallet.limit),
        created_at: payment.at(),
    }
}

pub fn account_object(account: &AccountSummary) -> AccountObject<'_> {
    let AccountSummary { id, name, credit, held, keys, groups, labels, standing, created_at } = account;
    let AccountLabels { external_id, metadata, suspended_reason } = labels;
    AccountObject {
        id: *id,
        object: "account",
        name,
        external_id: external_id.as_deref(),
        status: account.status().as_str(),
        credit: *credit,
        held: *held,
        keys: *keys,
        groups: *groups,
        metadata,
        created_at: *created_at,
        suspended_at: standing.map(|standing| standing.suspended_at),
        suspended_reason: suspended_reason.as_deref(),
        closed_at: standing.and_then(|standing| standing.closed_at),
    }
}

/// Returns a management key as the API shows it. `plaintext` is set only in the answer to the request that creates the
/// key.
pub fn management_key_object<'a>(
    key: &'a ManagementKey,
    plaintext: Option<&'a str>,
) -> ManagementKeyObject<'a> {
    let ManagementKey { id, name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
    ManagementKeyObject {
        id: *id,
        object: "management_key",
        name,
        key_hint: hint,
        scope: access.scope.as_str(),
        group_id: access.group,
        created_at: *created_at,
        expires_at: *expires_at,
        last_used_at: *last_used_at,
        revoked_at: *revoked_at,
        key: plaintext,
    }
}

/// Returns a member as the API shows it. `link` is set only in the answer to the request that makes a sign-in link.
pub fn member_object<'a>(member: &'a Member, link: Option<&'a str>) -> MemberObject<'a> {
    MemberObject {
        id: member.id,
        object: "member",
        name: &member.name,
        role: member.role.as_str(),
        group_id: member.role.group(),
        second_factor: member.second_factor.is_some(),
        created_at: member.created_at,
        link,
    }
}
