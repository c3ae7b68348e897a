//! Files of earlier versions continue to work.

use crate::store::suite::act;
use rusqlite::Connection;
use shared::{
    ids::{GenerationId, ManagementKeyId, MemberId, SessionId},
    time::Timestamp,
    tokens::Usage,
};

use super::{Folder, capture, used};
use crate::store::{
    Accounts, Books, Expiring, GroupCreated, Groups, Keys, Ledger, RecordKind, UsageLine,
    sqlite::{Sqlite, file::APPLICATION_ID},
    suite::{make_key, nanos, new_group, open_account_with},
};
use domain::{
    access::{Access, Scope},
    audit::Audit,
    digest::Digest,
    key::KeyPatch,
    ledger::{
        Command, Outcome, Payer, Progress,
        histories::{START, account, generation, key},
    },
    member::{Link, LinkMaker, Session, SignInWay},
    usage::{Counts, Day},
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
    run(
        "INSERT INTO management_keys VALUES (?1, ?2, 'Ops', 'fg_mgmt_…', 0, NULL)",
        &[&account, &management_key().as_bytes().as_slice()],
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
async fn a_store_that_a_newer_program_took_over_is_not_written_any_more() {
    let folder = Folder::new();
    let store = folder.store().await;
    let newer = Connection::open(folder.file()).unwrap();
    newer.pragma_update(None, "user_version", 1_000).unwrap();
    let written = store.execute(account(0), vec![capture(generation(1), 1)], START).await;
    for refused in [written.map(drop), store.ping().await] {
        let reason = refused.unwrap_err().to_string();
        assert!(reason.contains("newer version"), "{reason}");
    }
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
    let spend = store.spend(account(0), day..=day).await.unwrap();
    let usage = counters[0].counts.usage;
    assert_eq!((spend[0].sums.requests, spend[0].sums.charged.nanos()), (2, 32));
    assert_eq!(
        spend[0].sums.tokens,
        usage.prompt + usage.completion,
        "those of the earlier version included"
    );
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

/// Makes a file of version 6: the file of version 2, with a member, a link, sessions and attempts.
fn version_6(folder: &Folder) {
    version_2(folder);
    let connection = Connection::open(folder.file()).unwrap();
    for migration in [
        include_str!("../migrations/3.sql"),
        include_str!("../migrations/4.sql"),
        include_str!("../migrations/5.sql"),
        include_str!("../migrations/6.sql"),
    ] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "user_version", 6).unwrap();
    let (account, member) = (account(0), member());
    let (account, member) = (account.as_bytes().as_slice(), member.as_bytes().as_slice());
    let digest = |of: &str| Digest::of(of.as_bytes()).as_bytes().to_vec();
    let run = |sql: &str, row: &[&dyn rusqlite::ToSql]| {
        assert_eq!(connection.execute(sql, row).unwrap(), 1);
    };
    run(
        "INSERT INTO members VALUES (?1, ?2, 'Ann', 'owner', '$argon2id$x', 0, NULL, NULL)",
        &[&account, &member],
    );
    let link = "INSERT INTO links VALUES (?1, ?2, ?3, ?4, 'owner Bob the owner', ?5)";
    run(link, &[&account, &digest("link"), &member, &LATER.millis(), &digest("password")]);
    let session = "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, 'Firefox \u{fc}', ?5, ?6, ?7, 'password')";
    let (seen, id) = (START.millis() + 7, SessionId::new(START, [8; 10]));
    let row: &[&dyn rusqlite::ToSql] = &[
        &account,
        &digest("session"),
        &id.as_bytes().as_slice(),
        &member,
        &START.millis(),
        &seen,
        &LATER.millis(),
    ];
    run(session, row);
    run("INSERT INTO attempts VALUES (?1, 4, ?2)", &[&digest("attempts"), &LATER.millis()]);
}

fn management_key() -> ManagementKeyId {
    ManagementKeyId::new(START, [2; 10])
}

#[tokio::test]
async fn management_keys_of_version_8_govern_the_account_for_good() {
    let folder = Folder::new();
    version_2(&folder);
    let store = Sqlite::open(&folder.file()).unwrap();
    let key = store.management_key(account(0), management_key()).await.unwrap().unwrap();
    assert_eq!((key.access, key.expires_at, key.last_used_at), (Access::default(), None, None));
    assert_eq!(key.access, Access { scope: Scope::Full, group: None });
    assert!(store.use_management_key(account(0), management_key(), START).await.unwrap());
}

fn member() -> MemberId {
    MemberId::new(START, [1; 10])
}

/// Expiry of links, sessions and attempts.
const LATER: Timestamp = Timestamp::from_millis(START.millis() + 3_600_000);

#[tokio::test]
async fn links_sessions_and_attempts_of_version_6_go_on() {
    let folder = Folder::new();
    version_6(&folder);
    let store = Sqlite::open(&folder.file()).unwrap();
    let (account, digest) = (account(0), |of: &str| Digest::of(of.as_bytes()));
    let (record, ann) =
        store.record(account, RecordKind::Link, digest("link"), START).await.unwrap().unwrap();
    assert_eq!((ann.id, ann.name.as_str()), (member(), "Ann"));
    let link = Link {
        digest: digest("link"),
        member: member(),
        expires_at: LATER,
        password: Some(digest("password")),
        maker: LinkMaker::Owner("Bob the owner".into()),
    };
    assert_eq!(Link::try_from(record).unwrap(), link);
    let records = store.records(account, RecordKind::Session, member(), START).await.unwrap();
    let sessions: Vec<_> = records.into_iter().map(|record| Session::try_from(record).unwrap()).collect();
    let session = Session {
        digest: digest("session"),
        id: SessionId::new(START, [8; 10]),
        member: member(),
        agent: "Firefox ü".into(),
        address: String::new(),
        created_at: START,
        seen_at: Timestamp::from_millis(START.millis() + 7),
        expires_at: LATER,
        way: SignInWay::Password,
    };
    assert_eq!(sessions, [session]);
    assert_eq!(store.count_attempt(digest("attempts"), START, LATER).await.unwrap(), 5);
}

#[tokio::test]
async fn keys_and_bills_of_version_6_have_no_groups_and_no_bounds_until_they_get_some() {
    let folder = Folder::new();
    version_6(&folder);
    let store = Sqlite::open(&folder.file()).unwrap();
    let alone = Payer::alone(key(0), "Model Flash".into());
    let found = store.key(account(0), key(0)).await.unwrap().unwrap();
    assert_eq!((found.spend.group, &found.spend.budget.bounds, found.metadata.len()), (None, &None, 0));
    let bills = store.journal(account(0), 0, 9).await.unwrap().entries;
    assert!(bills.iter().all(|bill| bill.entry.settlement.payer == alone));
    let costs = bills.iter().map(|bill| bill.entry.settlement.upstream_cost);
    assert_eq!(costs.collect::<Vec<_>>(), [None, None]);
    let day = Day::of(START);
    let line = store.usage(account(0), day..=day, None).await.unwrap().remove(0);
    let counts = Counts { requests: 2, usage: Usage::of(6, 0, 8), charged: nanos(37), ..Counts::default() };
    assert_eq!(line, UsageLine { day, payer: alone, counts });
    assert_eq!(store.top_spending(account(0), None, 9).await.unwrap(), [found]);
    // The open hold is billed to the key alone, though the key has a group by then.
    let mut group = new_group(account(0), 1);
    group.group.spend.budget.limit = Some(nanos(5));
    let GroupCreated::New(group) = store.create_group(group, None, &act(START)).await.unwrap() else {
        panic!("not made")
    };
    let patch = KeyPatch { group: Some(Some(group.id)), ..KeyPatch::default() };
    store.update_key(account(0), key(0), patch, &act(START)).await.unwrap();
    store.execute(account(0), vec![capture(generation(2), 9)], START).await.unwrap().remove(0).unwrap();
    assert_eq!(used(&store, account(0)).await, 46);
    assert_eq!(store.group(account(0), group.id).await.unwrap().unwrap().spend.budget.used, nanos(0));
    let sound = Audit { entries: 3, keys: 1, groups: 1, wrong: Vec::new() };
    assert_eq!(store.audit(account(0)).await.unwrap(), Some(sound));
}

#[tokio::test]
async fn margins_of_version_19_are_added_up_from_the_counters() {
    let folder = Folder::new();
    let store = Sqlite::open(&folder.file()).unwrap();
    let account = open_account_with(&store, 1, 1_000).await;
    let [alone, grouped] =
        [make_key(&store, account, 1, None).await, make_key(&store, account, 2, None).await];
    let group = new_group(account, 1);
    let to_group = KeyPatch { group: Some(Some(group.group.id)), ..KeyPatch::default() };
    store.create_group(group, None, &act(START)).await.unwrap();
    store.update_key(account, grouped, to_group, &act(START)).await.unwrap();
    let bill = |key, n, cost, upstream_cost: Option<i64>| {
        let (usage, upstream_cost) = (Usage::of(3, 1, 2), upstream_cost.map(nanos));
        let total = Progress { usage, cost: nanos(cost), upstream_cost };
        let model = "Model Flash".into();
        Command::Capture { key, generation: generation(n), model, total, chargeable: None, estimated: false }
    };
    let bills = vec![bill(alone, 1, 9, Some(4)), bill(grouped, 2, 8, Some(5)), bill(grouped, 3, 7, None)];
    store.execute(account, bills, START).await.unwrap();
    let days = Day::of(START)..=Day::of(START);
    let margins = async |store: &Sqlite| {
        let models = store.margins_by_model(account, days.clone()).await.unwrap();
        (models, store.margins_by_group(account, days.clone()).await.unwrap())
    };
    let before = margins(&store).await;
    assert_eq!((before.0["Model Flash"].amount(), before.1.len()), (Some(nanos(8)), 2));
    drop(store);
    let earlier = "DROP TABLE group_spend; ALTER TABLE spend DROP COLUMN upstream_cost;
                   ALTER TABLE spend DROP COLUMN charged_at_known_cost;
                   ALTER TABLE accounts DROP COLUMN event_bytes; ALTER TABLE deposits DROP COLUMN payment_id;
                   PRAGMA user_version = 19;";
    Connection::open(folder.file()).unwrap().execute_batch(earlier).unwrap();
    assert_eq!(margins(&Sqlite::open(&folder.file()).unwrap()).await, before);
}
