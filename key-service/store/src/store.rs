//! The nouns, written once over the records of any backend: accounts, keys, groups, members and the rest.
//!
//! Every method is atomic: a call takes effect completely or not at all, and concurrent calls take effect in some
//! order. Acknowledged changes survive a crash of this process and of the machine, except in a store in memory. After
//! [`StoreError::Unavailable`], the outcome is unknown, and the same call may be made again. After every other error,
//! nothing has changed.
//!
//! A call with an [`Act`](domain::event::Act) governs an account. If the call changes something, the event of the change is
//! written with the change: both take effect, or none does. A repetition that changes nothing leaves no event.

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
    AccountSummary, Created, Credential, Cursor, Deposit, DueHold, DueHolds, EventSlice, EventsPage,
    ExpiringRecord, Found, Funds, GroupCreated, GroupPage, GroupUpdated, HoldIndex, Idempotency,
    JournalEntry, JournalPage, KeyName, ManagementKey, MemberCreated, NewAccount, NewManagementKey,
    NumberedEvent, Order, Page, RecordKind, Rotated, Skew, TopGroups, Updated, UsageLine, WebhookCreated,
};
#[cfg(any(test, feature = "testing"))]
pub use crate::suite;
pub use domain::usage::Hour;
pub use key_service_ledger::{
    EVENTS_KEPT, EventBounds, StoreError,
    sums::{AccountDay, OtherSums},
};
