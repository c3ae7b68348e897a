//! Numbers of API keys per account, as counted by this process.

use quick_cache::sync::Cache;
use rusqlite::Connection;
use shared::ids::AccountId;

use domain::key::NewKey;

/// Accounts whose keys are counted in memory; some 50 bytes each.
const COUNTED_ACCOUNTS: usize = 10_000;

/// Numbers of keys, counted once a process: counting a million takes tens of milliseconds of the writer.
pub(super) struct KeyCounts(Cache<AccountId, KeyCount>);

/// API keys of an account.
#[derive(Clone, Copy, Debug)]
struct KeyCount {
    keys: u64,
    /// True if counted in the file. A number added to since is not exact: the additions may have been undone.
    exact: bool,
}

impl KeyCounts {
    pub(super) fn new() -> Self {
        Self(Cache::new(COUNTED_ACCOUNTS))
    }

    /// Counts the keys of the account. Before an account is found to be full, the remembered number is replaced by a new
    /// count, once: no key is ever deleted.
    pub(super) fn count(&self, connection: &Connection, new: &NewKey) -> rusqlite::Result<u64> {
        let remembered = self.0.get(&new.account);
        if let Some(KeyCount { keys, .. }) = remembered.filter(|count| count.exact || count.keys < new.most) {
            return Ok(keys);
        }
        let keys = count(connection, new.account)?;
        self.0.insert(new.account, KeyCount { keys, exact: true });
        Ok(keys)
    }

    /// Remembers that keys were made beside those that were counted.
    pub(super) fn add(&self, account: AccountId, counted: u64, made: u64) {
        self.0.insert(account, KeyCount { keys: counted + made, exact: false });
    }
}

/// Counts the keys of an account in the file.
pub(super) fn count(connection: &Connection, account: AccountId) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM api_keys WHERE account = ?1";
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
    connection.prepare_cached(sql)?.query_row([account.as_bytes()], count)
}
