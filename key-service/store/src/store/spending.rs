//! Money of accounts and keys, with the holds on that money.

pub(crate) mod holders;
mod house;

use async_trait::async_trait;
use key_service_ledger::{StoreError, messages, names};
use records::{Order, timed};
use shared::{ids::AccountId, time::Timestamp};

use crate::{
    data::{Cursor, DueHold, DueHolds, HoldIndex, Skew},
    store::{base::Store, layout},
};
use domain::ledger::{Command, Outcome, Refused};

/// Due holds on a page, which expire in one commit.
const HOLDS_AT_ONCE: usize = 64;

/// Outcomes of commands, in the order of the commands.
pub type Outcomes = Vec<Result<Outcome, Refused>>;

/// Money of accounts and keys, with the holds on that money.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Name of the database in spans.
    fn system(&self) -> &'static str;

    /// Applies commands in their order to one account, by [`domain::ledger::apply`]. Each has one outcome. Commands for
    /// an account that does not exist are refused with [`Refused::UnknownKey`], commands whose record cannot be read
    /// with [`Refused::Damaged`].
    ///
    /// A [`Command::Tick`] goes the same way as every other command, even if it only asks: an answer proves that a
    /// lease could have been renewed.
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError>;

    /// Lists the accounts with open holds. Accounts whose last hold was resolved may be listed for a while.
    async fn accounts_with_holds(&self) -> HoldIndex;

    /// Lists open holds of the account whose lease has run out (`lease_until <= tick`), page by page in any order: the
    /// first page, or the one after a page's `next`. A hold that is due before the first page is read is on one of the
    /// pages. A hold that cannot be read counts as due.
    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError>;

    /// Our clock minus the store's; `None` if the store has no clock of its own. Fails while the store loads its data.
    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError>;

    /// Succeeds if the store answers and has loaded its data.
    async fn ping(&self) -> Result<(), StoreError>;
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
        let Some(account) = self.read().get::<messages::Account>(&space, names::account()).await? else {
            return Ok(DueHolds::default());
        };
        let from = after.map(|Cursor(from)| hex::decode(from)).transpose();
        let from = from.map_err(|_| StoreError::Conflict("a cursor of another listing".into()))?;
        let to = account.tick.saturating_add(1).to_be_bytes().to_vec();
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

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.records.ping().await?)
    }
}
