//! What use-cases share: store, clock, credentials, and common limits.

pub(crate) mod last_use;
pub(crate) mod password;
pub(crate) mod recent_spend;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use shared::{
    clock::{Clock, random_bytes},
    ids::AccountId,
    network::Network,
    time::Timestamp,
};
use shared_catalog::Catalog;
use shared_config::current::Current;
use shared_door::admission::{Owner, Permit, Quota};
use tokio::time::Instant;

use domain::event::{Act, Actor};
use key_service_credentials::Credentials;
use key_service_store::store::{Capacity as _, Store, StoreError};
use last_use::LastUses;
use password::Passwords;
use recent_spend::RecentSpend;

/// Default maximum number of API keys per account: about 65 MB in Redis, or more with long labels.
pub const MAX_KEYS_PER_ACCOUNT: u64 = 100_000;

/// How long a read waits for a permit. A page reads for about 20 ms, so a hundred pages get through in this time.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Manages keys and accounts. Cheap to share behind an `Arc`.
pub struct Management {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credentials: Arc<Credentials>,
    /// Maximum number of API keys per account.
    pub(crate) max_keys: u64,
    /// Models and their aliases; `None` for commands that name no models.
    pub(crate) catalog: Option<Arc<Current<Catalog>>>,
    /// Networks that webhooks may reach in addition to public networks.
    pub(crate) webhook_networks: Vec<Network>,
    /// Whether a mail server is configured.
    pub(crate) sends_mail: bool,
    pub(crate) passwords: Passwords,
    /// Permits for reading pages and listings, one per account at a time, so that the store serves other accounts in
    /// between.
    reads: Quota,
    /// Records when management keys and operator keys are used.
    pub(crate) last_uses: LastUses,
    pub(crate) recent_spend: RecentSpend,
    /// Held while an account's owners are counted and one of them is changed or removed.
    pub(crate) owners: tokio::sync::Mutex<()>,
    /// Time of the latest id, in milliseconds.
    last_id: AtomicI64,
}

impl Management {
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>, credentials: Arc<Credentials>) -> Self {
        let (max_keys, last_id) = (MAX_KEYS_PER_ACCOUNT, AtomicI64::new(i64::MIN));
        let passwords = Passwords::new();
        let (reads, owners) = (Quota::new(usize::MAX, 1), tokio::sync::Mutex::default());
        let (last_uses, catalog, webhook_networks) = (LastUses::default(), None, Vec::new());
        Self {
            store,
            clock,
            credentials,
            max_keys,
            catalog,
            webhook_networks,
            sends_mail: true,
            passwords,
            reads,
            last_uses,
            recent_spend: RecentSpend::default(),
            owners,
            last_id,
        }
    }

    /// Waits for a permit to read a page or listing of an account.
    pub(crate) async fn read_permit(&self, account: AccountId) -> Result<Permit, StoreError> {
        let permit = self.reads.wait(Owner::Account(account), 1, Instant::now() + READ_TIMEOUT).await;
        permit.ok_or(StoreError::Busy("the account reads too many pages at once"))
    }

    /// Fails if the store is nearly full.
    pub(crate) async fn check_room(&self) -> Result<(), StoreError> {
        if self.store.is_nearly_full().await? { Err(StoreError::Full) } else { Ok(()) }
    }

    /// Like [`Self::check_room`], but also fails if the pepper is wrong, because no secret may be created with it.
    pub(crate) async fn check_room_for_secret(&self) -> Result<(), StoreError> {
        self.credentials.must_fit(self.clock.now()).await?;
        self.check_room().await
    }

    /// Sets the networks that webhooks may reach in addition to public networks.
    #[must_use]
    pub fn with_webhook_networks(self, webhook_networks: Vec<Network>) -> Self {
        Self { webhook_networks, ..self }
    }

    /// Sets whether a mail server is configured. Without a mail server, no alert can be sent by mail.
    #[must_use]
    pub fn with_mail(self, sends_mail: bool) -> Self {
        Self { sends_mail, ..self }
    }

    /// Sets the catalogue, which resolves aliases in lists of models.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<Current<Catalog>>) -> Self {
        Self { catalog: Some(catalog), ..self }
    }

    /// Sets the maximum number of API keys per account.
    #[must_use]
    pub fn with_max_keys(self, max_keys: u64) -> Self {
        Self { max_keys, ..self }
    }

    /// Returns an action by this actor at the current time.
    pub(crate) fn act(&self, actor: Actor) -> Act {
        Act { actor, at: self.clock.now(), chance: random_bytes(&*self.clock) }
    }

    /// Returns the current time, or the first millisecond after the latest id if that is later. Listings are ordered by
    /// id, so keys created within the same millisecond keep their order.
    pub(crate) fn later_than_the_last(&self, now: Timestamp) -> Timestamp {
        let next = |last: i64| now.millis().max(last.saturating_add(1));
        let last = self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Timestamp::from_millis(next(last.unwrap_or_else(|last| last)))
    }

    /// Replaces model aliases with ids, because the ledger does not know aliases.
    pub(crate) fn name_by_id<'a>(&self, lists: impl IntoIterator<Item = &'a mut Vec<String>>) {
        let Some(catalog) = &self.catalog else { return };
        let catalog = catalog.get();
        for models in lists {
            catalog.name_by_id(models);
        }
    }

    /// Returns the current time by the clock that sessions and keys use.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Office;
    use domain::ledger::histories::account;

    #[tokio::test(start_paused = true)]
    async fn an_account_reads_one_page_at_a_time_and_keeps_no_other_waiting() {
        let management = Office::open().management;
        let first = management.read_permit(account(1)).await.unwrap();
        assert!(management.read_permit(account(1)).await.is_err());
        drop(management.read_permit(account(2)).await.unwrap());
        drop(first);
        drop(management.read_permit(account(1)).await.unwrap());
    }
}
