//! The interface for spending: the money of accounts and keys, and holds on this money.

pub(crate) mod holders;

use async_trait::async_trait;
use key_service_ledger::{StoreError, names, stored::AccountRecord};
use records::{MissingServers, Order, timed};
use shared::{ids::AccountId, time::Timestamp};

use crate::{
    data::{Cursor, DueHold, DueHolds, HoldIndex, Skew},
    store::{base::Store, layout},
};
use domain::ledger::{Command, Outcome, Refused};

/// Maximum number of due holds on a page. One commit lets all holds of a page expire.
const HOLDS_AT_ONCE: usize = 64;

/// Outcomes in the order of the commands.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

/// The methods of the store that spending uses.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Returns the database's name for spans.
    fn system(&self) -> &'static str;

    /// Applies commands to one account, in their order, as [`domain::ledger::apply`] does. Each command has one
    /// outcome. If the account does not exist, commands are refused with [`Refused::UnknownKey`]. If a command needs a
    /// record that cannot be read, it is refused with [`Refused::Damaged`].
    ///
    /// A [`Command::Tick`] is carried out in the same way as every other command, even if it only reads the tick. So
    /// its answer proves that a lease could have been renewed.
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError>;

    /// Lists the accounts with open holds. An account stays in the list for a while after its last hold was settled.
    async fn accounts_with_holds(&self) -> HoldIndex;

    /// Lists the account's open holds whose lease has ended (`lease_until <= tick`), page by page and in any order.
    /// Returns the first page, or the page after the `next` of an earlier page. Every hold that was due when the first
    /// page was read is on one of the pages. A hold that cannot be read counts as due.
    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError>;

    /// Returns by how much our clock is ahead of the store's clock; `None` if the store has no clock. Fails while the
    /// store loads its data.
    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError>;

    /// Succeeds if any server of the store answers and has loaded its data. Returns the servers that do not answer or
    /// are still loading.
    async fn ping(&self) -> Result<MissingServers, StoreError>;
}

impl Store {
    /// Drops sets of the account that contain only old records: bills of generations, and daily sums. In a process that
    /// keeps serving the account, this happens every ten minutes anyway. For other accounts, this is called by callers
    /// that go through all accounts. Does nothing if the account does not exist.
    pub async fn keep_house(&self, account: AccountId) -> Result<(), StoreError> {
        Ok(self.lanes.keep_house(account).await?)
    }
}

#[async_trait]
impl Ledger for Store {
    fn system(&self) -> &'static str {
        self.records.system()
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let _timed = timed("ledger");
        if commands.iter().any(|command| matches!(command, Command::Hold(_))) {
            self.list_holder(account).await?;
        }
        Ok(self.lanes.execute(account, commands, now).await?)
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        self.holders().await
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        let space = layout::space(account);
        let Some(account) = self.read().get::<AccountRecord>(&space, names::account()).await? else {
            return Ok(DueHolds::default());
        };
        let from = after.map(|Cursor(from)| hex::decode(from)).transpose();
        let from = from.map_err(|_| StoreError::Conflict("a cursor of another listing".into()))?;
        let to = account.money.tick.saturating_add(1).to_be_bytes().to_vec();
        let range = (from.unwrap_or_default(), Some(to));
        let due = self.read().entries(&space, names::DUE, range, Order::Ascending, HOLDS_AT_ONCE).await?;
        let next = due.last().filter(|_| due.len() == HOLDS_AT_ONCE);
        let next = next.map(|last| Cursor(hex::encode([last, &[0][..]].concat())));
        let hold =
            |entry: &Vec<u8>| names::read_due(entry).map(|(key, generation)| DueHold { key, generation });
        Ok(DueHolds { holds: due.iter().filter_map(hold).collect(), next })
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(self.records.clock_skew().await?.map(|millis| Skew { millis }))
    }

    async fn ping(&self) -> Result<MissingServers, StoreError> {
        Ok(self.records.ping().await?)
    }
}
