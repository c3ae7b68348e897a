//! Accounts, keys, groups, members and other nouns, over the records of any backend.
//!
//! Every method is atomic: a call takes effect completely or not at all, and concurrent calls take effect in some
//! order. Confirmed changes survive a crash of the process and of the machine, except in an in-memory store. After
//! [`StoreError::Unavailable`], the outcome is unknown, and the call may be retried. After every other error, nothing
//! has changed.
//!
//! A call with an [`Act`](domain::event::Act) changes an account on somebody's behalf. The event of the change is
//! written in the same commit. A repetition that changes nothing writes no event.

mod accounts;
mod base;
mod books;
mod credentials;
mod events;
mod groups;
mod idempotency;
pub(crate) mod inspection;
mod keys;
pub(crate) mod layout;
pub(crate) mod members;
mod sequences;
mod spending;
mod webhooks;

pub use self::{
    base::{Store, StoreRetention},
    books::{
        refused::{REFUSED_KEPT_DAYS, RefusedLine},
        refused_calls::REFUSED_CALLS_KEPT,
        search,
        upstreams::UPSTREAM_HOURS,
    },
    inspection::{
        capacity::Capacity,
        show::{InvalidObject, ShownObject, ShownRecord},
    },
    members::operators::operators,
    spending::{Ledger, Outcomes},
};
pub use crate::data::{
    AccountChanged, AccountMade, AccountSummary, Created, Credential, Cursor, Deposit, DueHold, DueHolds,
    EventSlice, EventsPage, ExpiringRecord, Found, Funds, GroupCreated, GroupPage, GroupUpdated, HoldIndex,
    Idempotency, JournalEntry, JournalPage, KeyName, ManagementKey, ManagementKeyMade, MemberCreated,
    NewAccount, NewManagementKey, NewOperatorKey, NumberedEvent, OperatorKey, OperatorKeyMade,
    OperatorRotation, Order, Page, RecordKind, Rotated, Skew, TopGroups, Updated, UsageLine, WebhookCreated,
};
#[cfg(any(test, feature = "testing"))]
pub use crate::suite;
pub use domain::usage::Hour;
pub use key_service_ledger::{
    EVENTS_KEPT, EventBounds, StoreError,
    sums::{AccountDay, OtherSums},
};
pub use records::MissingServers;
