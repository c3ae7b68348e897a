//! Audit of an account in a read transaction: of a single moment, and concurrent with all other work.

use rusqlite::Connection;
use shared::{ids::AccountId, money::NanoUsd};

use super::{
    Sqlite,
    file::{OpenError, open_reader},
    tables::{accounts, journal, keys, records},
};
use crate::store::{Order, Page, StoreError};
use domain::audit::{Audit, Auditor};

/// Keys read at a time.
const KEYS_AT_ONCE: usize = 500;

/// Audits a file on a separate connection and thread, since a long journal would block the readers. Until the end of the
/// audit the write-ahead log only grows. `None` if the account does not exist.
pub(super) async fn run(store: &Sqlite, account: AccountId) -> Result<Option<Audit>, StoreError> {
    let Some(file) = store.writer.file() else {
        return store.read(move |connection| audit(connection, account)).await;
    };
    let path = file.path().to_owned();
    let audited = tokio::task::spawn_blocking(move || {
        let connection = open_reader(&path).map_err(|e: OpenError| StoreError::Unavailable(e.to_string()))?;
        let moment = connection.unchecked_transaction();
        moment.and_then(|moment| audit(&moment, account)).map_err(|e| StoreError::from(&e))
    });
    audited.await.map_err(|e| StoreError::Unavailable(e.to_string()))?
}

fn audit(moment: &Connection, account: AccountId) -> rusqlite::Result<Option<Audit>> {
    let Some(books) = accounts::books(moment, account)? else { return Ok(None) };
    let mut auditor = Auditor::new(true);
    journal::audit(moment, account, &mut auditor)?;
    let holds = records::held(moment, account)?;
    let mut after = None;
    loop {
        let page = Page { after, order: Order::Ascending, status: None, limit: KEYS_AT_ONCE };
        let page = keys::list(moment, account, page)?;
        for key in &page {
            auditor.key(key.id, &key.spend, holds.get(&key.id).copied().unwrap_or_default());
        }
        after = page.last().map(|key| key.id);
        if page.len() < KEYS_AT_ONCE {
            break;
        }
    }
    let held = NanoUsd::from_nanos(holds.values().map(|held| held.nanos()).sum());
    let deposits = records::deposits(moment, account)?;
    Ok(Some(auditor.account(books.money, held, deposits.into_iter())))
}
