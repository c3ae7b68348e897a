//! Imports of keys and groups, each in one transaction.

use async_trait::async_trait;
use rusqlite::Connection;
use shared::rpc::Principal;

use super::{accounts, events::ActLog, groups, keys};
use crate::store::{Credential, Imports, StoreError, sqlite::Sqlite};
use domain::{
    event::Act,
    moving::{Import, ImportRefused, Owner, Plan, Present},
};

#[async_trait]
impl Imports for Sqlite {
    async fn import(
        &self,
        new: Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Result<Plan, ImportRefused>, StoreError> {
        self.govern(act, move |connection, log| import(connection, &new, is_dry_run, log)).await
    }
}

/// Plans an import and, unless it is a dry run, writes all of it.
fn import(
    connection: &Connection,
    import: &Import,
    is_dry_run: bool,
    log: &ActLog,
) -> rusqlite::Result<Result<Plan, ImportRefused>> {
    let present = present(connection, import)?;
    let plan = match import.plan(&present) {
        Ok(plan) => plan,
        Err(refused) => return Ok(Err(refused)),
    };
    if is_dry_run {
        return Ok(Ok(plan));
    }
    for group in &plan.groups {
        groups::insert(connection, import.account, group)?;
    }
    for (key, digest) in &plan.keys {
        keys::insert(connection, import.account, key)?;
        let owner = Principal::ApiKey(import.account, key.id);
        accounts::put_credential(connection, digest, Credential::first(owner))?;
    }
    for (n, event) in (0..).zip(plan.events(log.act.at)) {
        log.write_nth(connection, import.account, n, event)?;
    }
    Ok(Ok(plan))
}

fn present(connection: &Connection, import: &Import) -> rusqlite::Result<Present> {
    let account = import.account;
    let accounts::Numbers { keys, groups } = accounts::numbers(connection, account)?;
    let mut present = Present { keys, groups, ..Present::default() };
    for imported in &import.keys {
        present.owners.push(
            match accounts::credential(connection, &imported.digest)?.map(|found| found.owner) {
                None => Owner::None,
                Some(Principal::ApiKey(of, _)) if of == account => Owner::Key,
                Some(Principal::ApiKey(..) | Principal::ManagementKey(..)) => Owner::Other,
            },
        );
    }
    for name in import.group_names() {
        if present.named.contains_key(name) {
            continue;
        }
        if let Some(group) = groups::with_external_id(connection, account, name)? {
            let judged = keys::takes_key(connection, account, Some(group.id))?;
            present.named.insert(name.to_owned(), (group.id, judged));
        }
    }
    Ok(present)
}
