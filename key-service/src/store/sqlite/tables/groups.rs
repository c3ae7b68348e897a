//! Groups of API keys.

use rusqlite::{Connection, OptionalExtension, Row, params};
use shared::ids::{AccountId, GroupId};

use super::{bounds, budget, group_if_any, time_if_any};
use domain::ledger;

/// The ledger's part of a group; `None` where the account does not have the group.
pub(crate) fn spend(
    connection: &Connection,
    account: AccountId,
    id: GroupId,
) -> rusqlite::Result<Option<ledger::Group>> {
    let sql = "SELECT spend_limit, used, held, bounds, parent, archived_at
               FROM groups WHERE account = ?1 AND id = ?2";
    let (account, id) = (account.as_bytes(), id.as_bytes());
    connection.prepare_cached(sql)?.query_row([account, id], |row| spend_from(row, 0)).optional()
}

/// Writes the fields that the ledger changes; the bounds have the settings of owners along with the ledger's state.
pub(crate) fn put_spend(
    connection: &Connection,
    account: AccountId,
    id: GroupId,
    ledger::Group { budget, .. }: &ledger::Group,
) -> rusqlite::Result<()> {
    let sql = "UPDATE groups SET used = ?3, held = ?4, bounds = ?5 WHERE account = ?1 AND id = ?2";
    let (used, held) = (budget.used.nanos(), budget.held.nanos());
    let row = params![account.as_bytes(), id.as_bytes(), used, held, bounds(budget)];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn spend_from(row: &Row<'_>, first: usize) -> rusqlite::Result<ledger::Group> {
    Ok(ledger::Group {
        budget: budget(row, first)?,
        parent: group_if_any(row, first + 4)?,
        archived_at: time_if_any(row, first + 5)?,
    })
}
