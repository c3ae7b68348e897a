//! Accounts, their money, and the owners of credentials.

use rusqlite::{Connection, OptionalExtension, params};
use shared::{
    ids::{AccountId, KeyId, ManagementKeyId},
    rpc::Principal,
};

use super::{damaged, id, money as nano_usd, time};
use crate::store::{AccountSummary, Funds, NewAccount};
use domain::{digest::Digest, ledger::Account};

/// Makes an account. Returns true if it exists now, made by this call or by an earlier attempt of the same caller.
pub(crate) fn create(connection: &Connection, account: &NewAccount) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO accounts (id, name, credit, held, created_at) VALUES (?1, ?2, 0, 0, ?3)
               ON CONFLICT (name) DO NOTHING";
    let row = params![account.id.as_bytes(), account.name, account.created_at.millis()];
    connection.prepare_cached(sql)?.execute(row)?;
    let sql = "SELECT EXISTS (SELECT 1 FROM accounts WHERE name = ?1 AND id = ?2)";
    connection.prepare_cached(sql)?.query_row(params![account.name, account.id.as_bytes()], |row| row.get(0))
}

/// All accounts, oldest first.
pub(crate) fn list(connection: &Connection) -> rusqlite::Result<Vec<AccountSummary>> {
    let sql = "SELECT id, name, credit, held, created_at,
                      (SELECT count(*) FROM api_keys WHERE api_keys.account = accounts.id)
               FROM accounts ORDER BY id";
    let summary = |row: &rusqlite::Row<'_>| {
        Ok(AccountSummary {
            id: id(row, 0, AccountId::from_slice)?,
            name: row.get(1)?,
            credit: nano_usd(row, 2)?,
            held: nano_usd(row, 3)?,
            created_at: time(row, 4)?,
            keys: row.get::<_, i64>(5)?.unsigned_abs(),
        })
    };
    connection.prepare_cached(sql)?.query_map([], summary)?.collect()
}

/// The account of this name, by the index that keeps names unique.
pub(crate) fn named(connection: &Connection, name: &str) -> rusqlite::Result<Option<AccountId>> {
    let sql = "SELECT id FROM accounts WHERE name = ?1";
    connection.prepare_cached(sql)?.query_row([name], |row| id(row, 0, AccountId::from_slice)).optional()
}

/// The name and the money of an account.
pub(crate) fn funds(connection: &Connection, account: AccountId) -> rusqlite::Result<Option<Funds>> {
    let sql = "SELECT name, credit, held FROM accounts WHERE id = ?1";
    let funds = |row: &rusqlite::Row<'_>| {
        Ok(Funds { name: row.get(0)?, credit: nano_usd(row, 1)?, held: nano_usd(row, 2)? })
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes()], funds).optional()
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
    let sql = "SELECT credit, held, entries, tick FROM accounts WHERE id = ?1";
    let books_of = |row: &rusqlite::Row<'_>| {
        let tick = row.get::<_, i64>(3)?.unsigned_abs();
        let money = Account { credit: nano_usd(row, 0)?, held: nano_usd(row, 1)?, tick };
        Ok(Books { money, entries: row.get::<_, i64>(2)?.unsigned_abs() })
    };
    connection.prepare_cached(sql)?.query_row([account.as_bytes()], books_of).optional()
}

/// Writes an account's books.
pub(crate) fn put_books(connection: &Connection, account: AccountId, books: Books) -> rusqlite::Result<()> {
    let Books { money: Account { credit, held, tick }, entries } = books;
    let sql = "UPDATE accounts SET credit = ?2, held = ?3, entries = ?4, tick = ?5 WHERE id = ?1";
    let (entries, tick) = (entries.cast_signed(), tick.cast_signed());
    let row = params![account.as_bytes(), credit.nanos(), held.nanos(), entries, tick];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// The owner of the credential with this digest.
pub(crate) fn owner(connection: &Connection, digest: &Digest) -> rusqlite::Result<Option<Principal>> {
    let sql = "SELECT class, account, id FROM credentials WHERE digest = ?1";
    let owner = |row: &rusqlite::Row<'_>| {
        let account = id(row, 1, AccountId::from_slice)?;
        match row.get_ref(0)?.as_str()? {
            API => Ok(Principal::ApiKey(account, id(row, 2, KeyId::from_slice)?)),
            MANAGEMENT => Ok(Principal::ManagementKey(account, id(row, 2, ManagementKeyId::from_slice)?)),
            _ => Err(damaged(0, rusqlite::types::Type::Text, "a credential's class is not known")),
        }
    };
    connection.prepare_cached(sql)?.query_row([digest.as_bytes()], owner).optional()
}

/// Records the owner of a credential; repeating it changes nothing.
pub(crate) fn put_owner(connection: &Connection, digest: &Digest, owner: Principal) -> rusqlite::Result<()> {
    let (class, account, id) = match &owner {
        Principal::ApiKey(account, key) => (API, account.as_bytes(), key.as_bytes()),
        Principal::ManagementKey(account, key) => (MANAGEMENT, account.as_bytes(), key.as_bytes()),
    };
    let sql = "INSERT INTO credentials (digest, class, account, id) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (digest) DO NOTHING";
    connection.prepare_cached(sql)?.execute(params![digest.as_bytes(), class, account, id])?;
    Ok(())
}

const API: &str = "api";
const MANAGEMENT: &str = "management";
