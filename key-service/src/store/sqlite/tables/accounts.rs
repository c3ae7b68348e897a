//! Accounts, their money, the owners of credentials, and management keys.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use shared::{
    ids::{AccountId, GroupId, KeyId, ManagementKeyId},
    money::NanoUsd,
    rpc::Principal,
    time::Timestamp,
};

use super::{damaged, events::ActLog, group_if_any, id as column_id, money as nano_usd, time, time_if_any};
use crate::store::{
    AccountSummary, Accounts, Credential, Credentials, Funds, ManagementKey, NewAccount, NewManagementKey,
    StoreError, sqlite::Sqlite,
};
use domain::{
    access::{Access, Scope, is_noted},
    digest::Digest,
    event::{Act, EventKind},
    ledger::{Account, LastDeposit},
};

/// Columns of a management key in the order of [`management_key`].
const COLUMNS: &str = "id, name, hint, scope, group_id, created_at, expires_at, last_used_at, revoked_at";

#[async_trait]
impl Accounts for Sqlite {
    async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let NewAccount { id, name, created_at } = &account;
            let sql = "INSERT INTO accounts (id, name, credit, held, created_at) VALUES (?1, ?2, 0, 0, ?3)
                       ON CONFLICT (name) DO NOTHING";
            let row = params![id.as_bytes(), name, created_at.millis()];
            connection.prepare_cached(sql)?.execute(row)?;
            // The account may have been made by an earlier attempt of the same caller.
            let sql = "SELECT EXISTS (SELECT 1 FROM accounts WHERE name = ?1 AND id = ?2)";
            connection.prepare_cached(sql)?.query_row(params![name, id.as_bytes()], |row| row.get(0))
        };
        self.writer.write(work).await
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        let summary = |row: &Row<'_>| {
            Ok(AccountSummary {
                id: column_id(row, 0, AccountId::from_slice)?,
                name: row.get(1)?,
                credit: nano_usd(row, 2)?,
                held: nano_usd(row, 3)?,
                created_at: time(row, 4)?,
                keys: row.get::<_, i64>(5)?.unsigned_abs(),
            })
        };
        let work = move |connection: &Connection| {
            let sql = "SELECT id, name, credit, held, created_at, keys FROM accounts ORDER BY id";
            connection.prepare_cached(sql)?.query_map([], summary)?.collect()
        };
        self.read(work).await
    }

    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        let name = name.to_owned();
        let work = move |connection: &Connection| {
            let sql = "SELECT id FROM accounts WHERE name = ?1";
            let id = |row: &Row<'_>| column_id(row, 0, AccountId::from_slice);
            connection.prepare_cached(sql)?.query_row([name], id).optional()
        };
        self.read(work).await
    }

    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT name, credit, held, keys, groups FROM accounts WHERE id = ?1";
            let funds = |row: &Row<'_>| {
                let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
                let (credit, held) = (nano_usd(row, 1)?, nano_usd(row, 2)?);
                Ok(Funds { name: row.get(0)?, credit, held, keys: number(3)?, groups: number(4)? })
            };
            connection.prepare_cached(sql)?.query_row([account.as_bytes()], funds).optional()
        };
        self.read(work).await
    }

    async fn create_management_key(&self, key: NewManagementKey, act: &Act) -> Result<bool, StoreError> {
        self.govern(act, move |connection, log| create_management_key(connection, &key, log)).await
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!("SELECT {COLUMNS} FROM management_keys WHERE account = ?1 ORDER BY id");
            connection.prepare_cached(&sql)?.query_map([account.as_bytes()], management_key)?.collect()
        };
        self.read(work).await
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let work = move |connection: &Connection| {
            let sql = format!("SELECT {COLUMNS} FROM management_keys WHERE account = ?1 AND id = ?2");
            let row = [account.as_bytes(), id.as_bytes()];
            connection.prepare_cached(&sql)?.query_row(row, management_key).optional()
        };
        self.read(work).await
    }

    async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let work = move |connection: &Connection| {
            let sql = "SELECT last_used_at FROM management_keys WHERE account = ?1 AND id = ?2";
            let row = [account.as_bytes(), id.as_bytes()];
            let last =
                connection.prepare_cached(sql)?.query_row(row, |row| time_if_any(row, 0)).optional()?;
            if !last.is_some_and(|last| is_noted(last, now)) {
                return Ok(false);
            }
            let sql = "UPDATE management_keys SET last_used_at = ?3 WHERE account = ?1 AND id = ?2";
            let row = params![account.as_bytes(), id.as_bytes(), now.millis()];
            Ok(connection.prepare_cached(sql)?.execute(row)? > 0)
        };
        self.writer.write(work).await
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let work = move |connection: &Connection, log: &ActLog| {
            let sql = "UPDATE management_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL RETURNING account, name";
            let row = params![id.as_bytes(), log.act.at.to_whole_seconds().millis()];
            let owner = |row: &Row<'_>| Ok((column_id(row, 0, AccountId::from_slice)?, row.get(1)?));
            let revoked = connection.prepare_cached(sql)?.query_row(row, owner).optional()?;
            if let Some((account, name)) = revoked {
                let revoked = EventKind::ManagementKeyRevoked { management_key_id: id, name };
                log.write(connection, account, (None, None), revoked)?;
            }
            let sql = format!("SELECT {COLUMNS} FROM management_keys WHERE id = ?1");
            connection.prepare_cached(&sql)?.query_row([id.as_bytes()], management_key).optional()
        };
        self.govern(act, work).await
    }
}

#[async_trait]
impl Credentials for Sqlite {
    async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError> {
        self.read(move |connection| credential(connection, &digest)).await
    }

    async fn pepper_record(&self) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            connection.query_row("SELECT record FROM peppers", [], |row| row.get(0)).optional()
        })
        .await
    }

    async fn replace_pepper_record(&self, seen: Option<String>, record: String) -> Result<bool, StoreError> {
        let replace = move |connection: &Connection| {
            let changed = match seen {
                Some(seen) => {
                    let sql = "UPDATE peppers SET record = ?1 WHERE record = ?2";
                    connection.execute(sql, [&record, &seen])?
                }
                None => {
                    connection.execute("INSERT OR IGNORE INTO peppers (record) VALUES (?1)", [&record])?
                }
            };
            Ok(changed == 1)
        };
        self.writer.write(replace).await
    }
}

/// Numbers of API keys and groups that an account ever made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) keys: u64,
    pub(crate) groups: u64,
}

/// Reads the numbers of keys and groups of an account; zeros for an account that does not exist.
pub(crate) fn numbers(connection: &Connection, account: AccountId) -> rusqlite::Result<Numbers> {
    let sql = "SELECT keys, groups FROM accounts WHERE id = ?1";
    let number = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let numbers = |row: &Row<'_>| Ok(Numbers { keys: number(row, 0)?, groups: number(row, 1)? });
    let found = connection.prepare_cached(sql)?.query_row([account.as_bytes()], numbers).optional()?;
    Ok(found.unwrap_or_default())
}

/// Finds a credential.
pub(crate) fn credential(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<Credential>> {
    let credential = |row: &Row<'_>| {
        let account = column_id(row, 1, AccountId::from_slice)?;
        let owner = match row.get_ref(0)?.as_str()? {
            API => Principal::ApiKey(account, column_id(row, 2, KeyId::from_slice)?),
            MANAGEMENT => Principal::ManagementKey(account, column_id(row, 2, ManagementKeyId::from_slice)?),
            _ => return Err(damaged(0, Type::Text, "a credential's class is not known")),
        };
        Ok(Credential { owner, number: row.get::<_, i64>(3)?.unsigned_abs() })
    };
    let sql = "SELECT class, account, id, number FROM credentials WHERE digest = ?1";
    connection.prepare_cached(sql)?.query_row([digest.as_bytes()], credential).optional()
}

/// Makes a management key unless the account has as many as it may. Returns whether there is one.
fn create_management_key(
    connection: &Connection,
    new: &NewManagementKey,
    log: &ActLog,
) -> rusqlite::Result<bool> {
    let NewManagementKey { account, key, digest, most } = new;
    let ManagementKey { id, name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
    let sql = "SELECT count(*), coalesce(sum(id = ?2), 0) FROM management_keys WHERE account = ?1";
    let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?));
    let (keys, exists): (u64, bool) =
        connection.prepare_cached(sql)?.query_row([account.as_bytes(), id.as_bytes()], counts)?;
    if keys >= *most && !exists {
        return Ok(false);
    }
    let sql = format!(
        "INSERT INTO management_keys (account, {COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (account, id) DO NOTHING"
    );
    let written = connection.prepare_cached(&sql)?.execute(params![
        account.as_bytes(),
        id.as_bytes(),
        name,
        hint,
        access.scope.as_str(),
        access.group.as_ref().map(GroupId::as_bytes),
        created_at.millis(),
        expires_at.map(Timestamp::millis),
        last_used_at.map(Timestamp::millis),
        revoked_at.map(Timestamp::millis),
    ])?;
    put_credential(connection, digest, Credential::first(Principal::ManagementKey(*account, *id)))?;
    if written > 0 {
        log.write(connection, *account, (None, None), key.creation())?;
    }
    Ok(true)
}

/// The ledger's part of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) money: Account,
    /// The number of the last entry of the journal.
    pub(crate) entries: u64,
}

/// An account's books; `None` where the account does not exist.
pub(crate) fn books(connection: &Connection, account: AccountId) -> rusqlite::Result<Option<Books>> {
    let sql = "SELECT credit, held, entries, tick, deposited, deposited_at FROM accounts WHERE id = ?1";
    let books_of = |row: &Row<'_>| {
        let tick = row.get::<_, i64>(3)?.unsigned_abs();
        let deposited = row.get::<_, Option<i64>>(4)?.map(NanoUsd::from_nanos).zip(time_if_any(row, 5)?);
        let last_deposit = deposited.map(|(credit, at)| LastDeposit { credit, at });
        let money = Account { credit: nano_usd(row, 0)?, held: nano_usd(row, 1)?, tick, last_deposit };
        Ok(Books { money, entries: row.get::<_, i64>(2)?.unsigned_abs() })
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes()], books_of).optional()
}

/// Writes an account's books.
pub(crate) fn put_books(connection: &Connection, account: AccountId, books: Books) -> rusqlite::Result<()> {
    let Books { money: Account { credit, held, tick, last_deposit }, entries } = books;
    let sql = "UPDATE accounts SET credit = ?2, held = ?3, entries = ?4, tick = ?5, deposited = ?6, deposited_at = ?7
               WHERE id = ?1";
    let (entries, tick) = (entries.cast_signed(), tick.cast_signed());
    let deposited = last_deposit.map(|deposit| (deposit.credit.nanos(), deposit.at.millis())).unzip();
    let row =
        params![account.as_bytes(), credit.nanos(), held.nanos(), entries, tick, deposited.0, deposited.1,];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// Records a credential; repeating it changes nothing.
pub(crate) fn put_credential(
    connection: &Connection,
    digest: &Digest,
    Credential { owner, number }: Credential,
) -> rusqlite::Result<()> {
    let (class, account, id) = match &owner {
        Principal::ApiKey(account, key) => (API, account.as_bytes(), key.as_bytes()),
        Principal::ManagementKey(account, key) => (MANAGEMENT, account.as_bytes(), key.as_bytes()),
    };
    let sql = "INSERT INTO credentials (digest, class, account, id, number) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (digest) DO NOTHING";
    let row = params![digest.as_bytes(), class, account, id, number.cast_signed()];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

const API: &str = "api";
const MANAGEMENT: &str = "management";

fn management_key(row: &Row<'_>) -> rusqlite::Result<ManagementKey> {
    let scope = Scope::parse(row.get_ref(3)?.as_str()?);
    let scope = scope.ok_or_else(|| damaged(3, Type::Text, "a management key's scope is not known"))?;
    Ok(ManagementKey {
        id: column_id(row, 0, ManagementKeyId::from_slice)?,
        name: row.get(1)?,
        hint: row.get(2)?,
        access: Access { scope, group: group_if_any(row, 4)? },
        created_at: time(row, 5)?,
        expires_at: time_if_any(row, 6)?,
        last_used_at: time_if_any(row, 7)?,
        revoked_at: time_if_any(row, 8)?,
    })
}
