//! The operator API: scopes of operator keys, acts of operators, and the objects that only operators read.

use std::collections::BTreeMap;

use http::Method;
use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    ids::{AccountId, GroupId, ManagementKeyId, MemberId},
    money::NanoUsd,
    timing::time::Timestamp,
};

/// What an operator key may do. The names are wire format: add, never rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum OperatorScope {
    /// Reads everything and changes nothing.
    #[n(0)]
    Read,
    /// Reads and changes accounts and everything in them.
    #[n(1)]
    Accounts,
    /// Pays and refunds.
    #[n(2)]
    Credit,
    /// Changes the catalogue of models.
    #[n(3)]
    Catalogue,
}

crate::names! { OperatorScope: Read = "read", Accounts = "accounts", Credit = "credit", Catalogue = "catalogue" }

/// What a route of the operator API does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorEndpoint {
    ListAccounts,
    CreateAccount,
    FetchAccount,
    UpdateAccount,
    SuspendAccount,
    RestoreAccount,
    CloseAccount,
    ListManagementKeys,
    CreateManagementKey,
    FetchManagementKey,
    RevokeManagementKey,
    ListMembers,
    InviteMember,
    RemoveMember,
    LinkMember,
    ListPayments,
    Pay,
    FetchPayment,
    Refund,
    Events,
    Description,
}

impl OperatorEndpoint {
    pub(super) const fn method(self) -> Method {
        match self {
            Self::CreateAccount
            | Self::SuspendAccount
            | Self::RestoreAccount
            | Self::CloseAccount
            | Self::CreateManagementKey
            | Self::InviteMember
            | Self::LinkMember
            | Self::Pay
            | Self::Refund => Method::POST,
            Self::UpdateAccount => Method::PATCH,
            Self::RevokeManagementKey | Self::RemoveMember => Method::DELETE,
            Self::ListAccounts
            | Self::FetchAccount
            | Self::ListManagementKeys
            | Self::FetchManagementKey
            | Self::ListMembers
            | Self::ListPayments
            | Self::FetchPayment
            | Self::Events
            | Self::Description => Method::GET,
        }
    }

    pub(super) const fn scopes(self) -> &'static [OperatorScope] {
        match self {
            Self::ListAccounts | Self::FetchAccount | Self::ListPayments | Self::FetchPayment => {
                &[OperatorScope::Read, OperatorScope::Accounts, OperatorScope::Credit]
            }
            Self::ListManagementKeys | Self::FetchManagementKey | Self::ListMembers => {
                &[OperatorScope::Read, OperatorScope::Accounts]
            }
            Self::CreateAccount
            | Self::UpdateAccount
            | Self::SuspendAccount
            | Self::RestoreAccount
            | Self::CloseAccount
            | Self::CreateManagementKey
            | Self::RevokeManagementKey
            | Self::InviteMember
            | Self::RemoveMember
            | Self::LinkMember => &[OperatorScope::Accounts],
            Self::Pay | Self::Refund => &[OperatorScope::Credit],
            Self::Events | Self::Description => &[OperatorScope::Read],
        }
    }
}

/// An account, as operators see it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Account")]
pub struct AccountObject<'a> {
    /// The account.
    pub id: AccountId,
    /// `account`
    #[schemars(extend("const" = "account"))]
    pub object: &'static str,
    /// Name of the account. Its members sign in with it.
    pub name: &'a str,
    /// Your own id of the account.
    pub external_id: Option<&'a str>,
    /// `active`, `suspended` (its API keys are refused) or `closed`.
    #[schemars(extend("enum" = super::bounds::ACCOUNT_STATUSES))]
    pub status: &'static str,
    /// Prepaid credit left, including held amounts.
    pub credit: NanoUsd,
    /// Part of the credit that requests in flight hold.
    pub held: NanoUsd,
    /// Number of API keys ever made, revoked ones included.
    pub keys: u64,
    /// Number of groups ever made, archived ones included.
    pub groups: u64,
    /// Your own texts, by name.
    pub metadata: &'a BTreeMap<String, String>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the suspension; null for an active account.
    pub suspended_at: Option<Timestamp>,
    /// Why the account is suspended.
    pub suspended_reason: Option<&'a str>,
    /// Time of the closure; null for an open account.
    pub closed_at: Option<Timestamp>,
}

/// An account with its totals.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "AccountWithTotals")]
pub struct AccountTotals<'a> {
    #[serde(flatten)]
    pub account: AccountObject<'a>,
    /// Sum of the deposits among the latest 100,000 deposits and refunds.
    pub total_deposited: NanoUsd,
    /// Sum of the refunds among them.
    pub total_refunded: NanoUsd,
    /// `total_deposited` less `total_refunded` and the credit.
    pub total_used: NanoUsd,
}

/// A management key of an account.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ManagementKey")]
pub struct ManagementKeyObject<'a> {
    /// The management key.
    pub id: ManagementKeyId,
    /// `management_key`
    #[schemars(extend("const" = "management_key"))]
    pub object: &'static str,
    /// Name of the key.
    pub name: &'a str,
    /// First and last characters of the plaintext.
    pub key_hint: &'a str,
    /// `full`, or `read` for a key that changes nothing.
    #[schemars(extend("enum" = super::bounds::SCOPES))]
    pub scope: &'static str,
    /// The only group that the key reaches; null for the whole account.
    pub group_id: Option<GroupId>,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of expiry; null for never.
    pub expires_at: Option<Timestamp>,
    /// Time of the last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// Time of the revocation.
    pub revoked_at: Option<Timestamp>,
    /// The plaintext, only when the key is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<&'a str>,
}

/// A member of an account, who signs in to the dashboard.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Member")]
pub struct MemberObject<'a> {
    /// The member.
    pub id: MemberId,
    /// `member`
    #[schemars(extend("const" = "member"))]
    pub object: &'static str,
    /// An e-mail address or any handle.
    pub name: &'a str,
    /// `owner`, `viewer` (reads everything, changes nothing) or `lead` (governs the API keys of one group).
    #[schemars(extend("enum" = super::bounds::ROLES))]
    pub role: &'static str,
    /// The group of a lead.
    pub group_id: Option<GroupId>,
    /// Whether sign-ins need a code of a second factor.
    pub second_factor: bool,
    /// Time of creation.
    pub created_at: Timestamp,
    /// A link that signs the member in once, only in the answer that makes the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<&'a str>,
}
