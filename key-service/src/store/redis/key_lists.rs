//! Lists of API keys by status and by spend: sorted sets beside the set of all keys, so that some keys are found without
//! reading all.
//!
//! The lists follow from the keys. An expired key stays listed as active until keys of a status are read after its
//! expiry. Keys of a version without these lists are listed at that time as well.

use redis::cmd;
use shared::{
    ids::{AccountId, KeyId},
    time::Timestamp,
};

use super::{Redis, script::Arguments};
use crate::store::{KeyName, Order, Page, StoreError};
use domain::key::Status;

/// Most keys that a run of `expire_keys.lua` moves.
const MOVED_AT_ONCE: usize = 1000;
/// Member of the keys by spend that marks a complete list.
const COMPLETE: &str = "";
/// Keys listed, or read, in a run of a script: a millisecond of Redis.
const LISTED_AT_ONCE: usize = 500;

impl Redis {
    /// Names for the scripts about keys: the account, the lists of active, expired and revoked keys, and of the keys
    /// with an expiry.
    pub(super) fn key_arguments(&self, account: AccountId) -> Arguments {
        let [active, expired, revoked] = [Status::Active, Status::Expired, Status::Revoked]
            .map(|status| self.key_space.keys_of(account, status));
        Arguments::keys([
            self.key_space.account(account),
            active,
            expired,
            revoked,
            self.key_space.expiring(account),
        ])
    }

    /// The sorted set of the keys that have a status, if one is asked for.
    pub(super) async fn index_of(
        &self,
        account: AccountId,
        status: Option<(Status, Timestamp)>,
    ) -> Result<String, StoreError> {
        let Some((status, now)) = status else { return Ok(self.key_space.keys(account)) };
        self.list_statuses(account, now).await?;
        Ok(self.key_space.keys_of(account, status))
    }

    /// Reads two texts of each key in a script, instead of all texts and the ledger's part.
    pub(super) async fn names_of_keys(
        &self,
        account: AccountId,
        page: Page,
    ) -> Result<Vec<KeyName>, StoreError> {
        let index = self.index_of(account, page.status).await?;
        let (mut names, mut after) = (Vec::new(), page.after);
        while names.len() < page.limit {
            let wanted = (page.limit - names.len()).min(LISTED_AT_ONCE);
            let ids: Vec<KeyId> = self.ids_behind(&index, after, page.order, wanted).await?;
            let Some(last) = ids.last() else { break };
            let mut arguments = Arguments::default();
            for id in &ids {
                arguments.key(self.key_space.key(account, *id));
            }
            let texts: Vec<(String, String)> = self.client.run(&self.scripts.key_names, &arguments).await?;
            let found = ids.iter().zip(texts);
            names.extend(found.map(|(id, (label, hint))| KeyName { id: *id, label, hint }));
            after = Some(*last);
            if ids.len() < wanted {
                break;
            }
        }
        Ok(names)
    }

    /// Brings the lists up to date.
    pub(super) async fn list_statuses(&self, account: AccountId, now: Timestamp) -> Result<(), StoreError> {
        let mut arguments = self.key_arguments(account).with(now.millis().to_string());
        arguments.key(self.key_space.keys(account));
        let mut is_first = true;
        loop {
            let (moved, is_complete): (usize, bool) =
                self.client.run(&self.scripts.expire_keys, &arguments).await?;
            if !is_complete && is_first {
                self.list_all(account).await?;
            } else if moved < MOVED_AT_ONCE {
                return Ok(());
            }
            is_first = false;
        }
    }

    /// Lists all keys by spend that a version without this list left.
    pub(super) async fn list_spenders(&self, account: AccountId) -> Result<(), StoreError> {
        let spenders = self.key_space.spenders(account);
        let mut question = cmd("ZSCORE");
        let mark: Option<String> = self.client.ask(question.arg(&spenders).arg(COMPLETE)).await?;
        if mark.is_none() {
            self.list_all(account).await?;
            self.client.ask::<()>(cmd("ZADD").arg(&spenders).arg("+inf").arg(COMPLETE)).await?;
        }
        Ok(())
    }

    /// Lists every key, once after a version without a list: some hundred milliseconds for a hundred thousand keys.
    async fn list_all(&self, account: AccountId) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let index = self.key_space.keys(account);
            let ids: Vec<KeyId> = self.ids_behind(&index, after, Order::Ascending, LISTED_AT_ONCE).await?;
            let mut arguments = self.key_arguments(account);
            arguments.key(self.key_space.spenders(account));
            for id in &ids {
                arguments.value(*id.as_bytes());
                arguments.value(id.to_string());
            }
            self.client.run::<()>(&self.scripts.list_keys, &arguments).await?;
            after = ids.last().copied();
            if ids.len() < LISTED_AT_ONCE {
                return Ok(());
            }
        }
    }
}
