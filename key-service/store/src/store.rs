//! The store: accounts, keys, groups, members and other nouns, on top of the records of any backend.
//!
//! Every method is atomic: a call takes effect completely or not at all, and concurrent calls take effect one after
//! another. Confirmed changes survive a crash of the process and of the machine, except if the store is in memory.
//! After [`StoreError::Unavailable`], the outcome is unknown, and the call may be retried. After every other error,
//! nothing has changed. [`Error::Refused`] contains the reason.
//!
//! A call with an [`Act`](domain::event::Act) changes an account on someone's behalf. The same commit writes the event
//! that reports the change. A repeated call that changes nothing writes no event.

mod accounts;
mod alerts;
mod base;
mod books;
mod credentials;
mod events;
mod groups;
mod idempotency;
/// What an operator inspects: the audit of the books, the store's free space, and single records.
pub(crate) mod inspection {
    pub(super) mod audit;
    pub(super) mod capacity;
    pub(crate) mod show;
}
mod keys;
pub(crate) mod layout;
pub(crate) mod members;
mod sequences;
mod spending;
mod webhooks;

pub use self::{
    alerts::{AlertTest, AlertTestOutcome, RaiseOutcome, Raised},
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
    webhooks::records::QueueId,
};
pub use crate::data::{
    AccountSummary, Credential, Cursor, Deposit, DueHold, DueHolds, EventSlice, EventsPage, ExpiringRecord,
    Found, Funds, GroupPage, HoldIndex, Idempotency, JournalEntry, JournalPage, KeyName, ManagementKey,
    ManagementKeyNotMade, NewAccount, NewManagementKey, NewOperatorKey, NumberedEvent, OperatorKey,
    OperatorKeyMade, OperatorRotation, Order, Page, RecordKind, Skew, TopGroups, UsageLine,
};
pub use crate::error::Error;
#[cfg(any(test, feature = "testing"))]
pub use crate::suite;
pub use domain::{governed::Made, usage::Hour};
pub use key_service_ledger::{
    EVENTS_KEPT, EventBounds, StoreError,
    sums::{AccountDay, OtherSums},
};
pub use records::MissingServers;
