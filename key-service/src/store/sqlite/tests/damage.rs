//! Full disks and damaged rows.

use std::fs;

use rusqlite::{Connection, params};
use shared::money::NanoUsd;

use super::{Folder, audit, capture, hold, hold_up, numbered, used};
use crate::store::{Accounts, Keys, Ledger, NewAccount, StoreError};
use domain::ledger::{
    Outcome, Refused,
    histories::{self, START, account, generation, key},
};

#[tokio::test]
async fn a_full_disk_is_unavailable_and_heals() {
    let folder = Folder::new();
    let store = folder.store().await;
    let grow_to = |pages: i64| {
        store.writer.write(move |connection| {
            connection.pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
        })
    };
    // SQLite does not go below the file's current size, so no page can be added.
    grow_to(1).await.unwrap();
    let (mut spent, mut failed) = (0, 0);
    for n in 0..2_000 {
        let commands = vec![hold(numbered(n), 10), capture(numbered(n), 10)];
        match store.execute(account(0), commands, START).await {
            Ok(_) => spent += 10,
            Err(StoreError::Unavailable(reason)) => {
                assert!(reason.contains("full"), "{reason}");
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(spent > 0 && failed > 0, "{spent} {failed}");
    assert_eq!(used(&store, account(0)).await, spent);
    grow_to(1_000_000).await.unwrap();
    let commands = vec![hold(numbered(9_999), 10), capture(numbered(9_999), 10)];
    store.execute(account(0), commands, START).await.unwrap();
    assert_eq!(used(&store, account(0)).await, spent + 10);
    drop(store);
    assert_eq!(audit(&folder.file()), spent / 10 + 1);
}

#[tokio::test]
async fn a_file_that_was_removed_or_replaced_is_unavailable_until_it_is_back() {
    let folder = Folder::new();
    let store = folder.store().await;
    let away = folder.file().with_extension("away");
    let spend = |n| store.execute(account(0), vec![hold(numbered(n), 10), capture(numbered(n), 10)], START);
    spend(1).await.unwrap();
    fs::rename(folder.file(), &away).unwrap();
    for _ in ["removed", "replaced"] {
        for unavailable in [spend(2).await.unwrap_err(), store.ping().await.unwrap_err()] {
            assert!(unavailable.to_string().contains("removed or replaced"), "{unavailable}");
        }
        fs::copy(&away, folder.file()).unwrap();
    }
    fs::rename(&away, folder.file()).unwrap();
    store.ping().await.unwrap();
    spend(2).await.unwrap();
    assert_eq!(used(&store, account(0)).await, 20);
    drop(store);
    assert_eq!(audit(&folder.file()), 2);
}

#[tokio::test]
async fn one_change_that_fails_harms_no_other_of_its_transaction() {
    let folder = Folder::new();
    let store = folder.store().await;
    store.execute(account(0), vec![hold(generation(1), 10)], START).await.unwrap();
    let damage = |connection: &Connection| {
        connection.pragma_update(None, "ignore_check_constraints", true)?;
        connection
            .execute("UPDATE accounts SET held = -999 WHERE id = ?1", params![account(0).as_bytes()])?;
        connection.pragma_update(None, "ignore_check_constraints", false)
    };
    store.writer.write(damage).await.unwrap();

    let go_on = hold_up(&store).await;
    let another = NewAccount { id: account(7), name: "Another".into(), created_at: START };
    let (damaged, sound, nonsense, created, ()) = tokio::join!(
        store.execute(account(0), vec![hold(generation(2), 10)], START),
        store.execute(account(1), vec![hold(generation(2), 10)], START),
        store.writer.write(|connection| connection.execute("no such statement", [])),
        store.create_account(another),
        async { drop(go_on) },
    );
    assert!(matches!(&damaged, Err(StoreError::Damaged(cause)) if cause.contains("CHECK")));
    nonsense.unwrap_err();
    assert_eq!(sound.unwrap(), [Ok(histories::held(NanoUsd::from_nanos(10)))]);
    assert!(created.unwrap());
    // The failed change left nothing behind.
    let count = |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(store.read(count).await.unwrap(), 2);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_damaged_and_harms_no_other() {
    let folder = Folder::new();
    let store = folder.store().await;
    let settled = vec![hold(generation(1), 10), capture(generation(1), 10), hold(generation(2), 10)];
    store.execute(account(0), settled, START).await.unwrap();
    let damage = |connection: &Connection| {
        connection.pragma_update(None, "ignore_check_constraints", true)?;
        connection.execute("UPDATE journal SET ending = 'nonsense'", [])?;
        connection.pragma_update(None, "ignore_check_constraints", false)
    };
    store.writer.write(damage).await.unwrap();
    let commands = vec![capture(generation(1), 10), capture(generation(2), 7)];
    let outcomes = store.execute(account(0), commands, START).await.unwrap();
    assert_eq!(outcomes[0], Err(Refused::Damaged));
    assert!(matches!(outcomes[1], Ok(Outcome::Captured(_))), "{outcomes:?}");
    assert_eq!(used(&store, account(0)).await, 17);
}

#[tokio::test]
async fn bounds_that_cannot_be_read_refuse_their_key_and_harm_no_other() {
    let folder = Folder::new();
    let store = folder.store().await;
    let damage = |connection: &Connection| {
        connection
            .execute("UPDATE api_keys SET bounds = x'ff' WHERE account = ?1", params![account(0).as_bytes()])
    };
    store.writer.write(damage).await.unwrap();
    let outcomes = store.execute(account(0), vec![hold(generation(1), 10)], START).await.unwrap();
    assert_eq!(outcomes, [Err(Refused::Damaged)]);
    let outcomes = store.execute(account(1), vec![hold(generation(1), 10)], START).await.unwrap();
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    assert!(matches!(store.key(account(0), key(0)).await, Err(StoreError::Damaged(_))));
}
