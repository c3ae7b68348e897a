//! Files of earlier versions continue to work.

use rusqlite::Connection;
use shared::ids::GenerationId;

use super::{Folder, capture, used};
use crate::store::{
    Books, Ledger,
    sqlite::{Sqlite, file::APPLICATION_ID},
};
use domain::{
    audit::Audit,
    ledger::{
        Outcome,
        histories::{START, account, generation, key},
    },
    usage::Day,
};

/// Makes a file of version 2: an account with deposits of 1,000 and one key. Generation 1 was captured with 30,
/// generation 3 expired with 7, and 20 are held for generation 2.
fn version_2(folder: &Folder) {
    let connection = Connection::open(folder.file()).unwrap();
    for migration in [include_str!("../migrations/1.sql"), include_str!("../migrations/2.sql")] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    let (account, key) = (account(0), key(0));
    let run = |sql: &str, row: &[&dyn rusqlite::ToSql]| {
        connection.execute(sql, row).unwrap();
    };
    let (account, key) = (account.as_bytes().as_slice(), key.as_bytes().as_slice());
    run("INSERT INTO accounts VALUES (?1, 'Customer', 963, 20, 0, 2)", &[&account]);
    run("INSERT INTO deposits VALUES (?1, ?2, 1000, 0)", &[&account, &[7_u8; 16]]);
    run(
        "INSERT INTO api_keys VALUES (?1, ?2, 'Key', 'fg_api_…', 0, NULL, 37, 20, NULL, NULL, NULL)",
        &[&account, &key],
    );
    let entry = "INSERT INTO journal VALUES (?1, ?2, ?3, 'Model Flash', 3, 0, 4, ?4, ?4, ?5, 0, ?6, ?7)";
    let bytes = |generation: GenerationId| generation.as_bytes().to_vec();
    let at = START.millis();
    run(entry, &[&account, &bytes(generation(1)), &key, &30, &"captured", &at, &1]);
    run(entry, &[&account, &bytes(generation(3)), &key, &7, &"expired", &at, &2]);
    run(
        "INSERT INTO holds VALUES (?1, ?2, ?3, 'Model Flash', 20, 0, 0, 0, 0, ?4)",
        &[&account, &bytes(generation(2)), &key, &at],
    );
    run(
        "INSERT INTO usage VALUES (?1, ?2, ?3, 'Model Flash', 2, 6, 0, 8, 37)",
        &[&account, &Day::of(START).number(), &key],
    );
}

#[tokio::test]
async fn a_file_of_version_2_is_brought_up_to_date_and_loses_nothing() {
    let folder = Folder::new();
    version_2(&folder);
    let store = Sqlite::open(&folder.file()).unwrap();
    assert_eq!(used(&store, account(0)).await, 37);
    let page = store.journal(account(0), 0, 9).await.unwrap();
    let balances = page.entries.iter().map(|e| (e.number, e.entry.delta.nanos(), e.entry.used_after.nanos()));
    assert_eq!(balances.collect::<Vec<_>>(), [(1, 30, 30), (2, 7, 37)]);
    let sound = |entries| Some(Audit { entries, keys: 1, groups: 0, wrong: Vec::new() });
    assert_eq!(store.audit(account(0)).await.unwrap(), sound(2));

    // Settled generations are remembered, and expired ones can be corrected.
    let captures = vec![capture(generation(1), 99), capture(generation(3), 2)];
    let outcomes = store.execute(account(0), captures, START).await.unwrap();
    let charges = outcomes.into_iter().map(|outcome| match outcome {
        Ok(Outcome::Captured(settlement)) => settlement.charged.nanos(),
        other => panic!("{other:?}"),
    });
    assert_eq!(charges.collect::<Vec<_>>(), [30, 2]);
    assert_eq!(used(&store, account(0)).await, 32);
    let day = Day::of(START);
    let counters = store.usage(account(0), day..=day, None).await.unwrap();
    assert_eq!((counters[0].counts.requests, counters[0].counts.charged.nanos()), (2, 32));
    assert_eq!(store.spend(account(0), day..=day).await.unwrap()[0].charged.nanos(), 32);
    assert_eq!(store.audit(account(0)).await.unwrap(), sound(3));
}

#[tokio::test]
async fn open_holds_of_an_earlier_version_get_a_full_lease() {
    let folder = Folder::new();
    version_2(&folder);
    let store = Sqlite::open(&folder.file()).unwrap();
    crate::store::suite::tick(&store, account(0), 6).await;
    assert_eq!(crate::store::suite::due_holds(&store, account(0)).await, []);
    // The last tick of the lease.
    crate::store::suite::tick(&store, account(0), 1).await;
    assert_eq!(crate::store::suite::due_holds(&store, account(0)).await.len(), 1);
    drop(store);
    // Opened again, the file is unchanged.
    let store = Sqlite::open(&folder.file()).unwrap();
    assert_eq!(crate::store::suite::due_holds(&store, account(0)).await.len(), 1);
}
