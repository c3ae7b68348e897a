//! Cases about imports of keys and groups from another gateway.

use std::sync::Arc;

use shared::{
    calendar::Per,
    ids::{AccountId, Principal},
    wire::Limit,
};

use crate::{
    store::{Credential, Error, Ledger as _, NumberedEvent, Order, Page, Store},
    suite::{
        Subject, act, after, capture, digest, hold, nanos, new_group, new_key,
        nouns::{events::each_key_and_group_has_its_events, steps::kept},
        open_account, open_account_with, spend,
    },
};
use domain::{
    group::{BadGroup, Group},
    key::{ApiKey, Status},
    ledger::{
        BoundsPatch, Budget,
        histories::{START, generation, group, key},
    },
};
use key_service_moving::{Import, ImportRefused, ImportedKey, Plan};

/// Number of concurrent callers.
const CALLERS: u8 = 8;
/// Number of keys: more than a store writes in one part.
const MANY: u16 = 260;

/// Returns a group with this external id that has spent this much.
fn team(account: AccountId, n: u8, used: i64) -> Group {
    let mut group = new_group(account, n).group;
    group.external_id = Some(format!("team {n}"));
    group.spend.budget.used = nanos(used);
    group
}

/// Returns a key that has spent this much.
fn imported(account: AccountId, n: u8, used: i64, team: Option<u8>) -> ImportedKey {
    let mut key = new_key(account, n).key;
    key.spend.budget.used = nanos(used);
    ImportedKey { key, digest: digest(&format!("imported {n}")), group: team.map(|n| format!("team {n}")) }
}

fn import(account: AccountId, groups: Vec<Group>, keys: Vec<ImportedKey>) -> Import {
    Import { account, groups, keys, most_keys: 1000, most_groups: 100 }
}

/// Returns an import of a group and three keys: one that has spent 40 of 100, one in the group, and a revoked one.
fn small(account: AccountId) -> Import {
    let mut first = imported(account, 1, 40, None);
    first.key.spend.budget.limit = Some(nanos(100));
    let second = imported(account, 2, 7, Some(1));
    let mut third = imported(account, 3, 0, None);
    third.key = third.key.revoked(after(3));
    import(account, vec![team(account, 1, 9)], vec![first, second, third])
}

async fn make(store: &Store, import: Import) -> Plan {
    store.import(import, false, &act(START)).await.unwrap()
}

async fn assert_sound(store: &Store, account: AccountId) {
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

async fn listed(store: &Store, account: AccountId, status: Option<Status>) -> Vec<ApiKey> {
    let status = status.map(|status| (status, after(9)));
    let page = Page { after: None, order: Order::Ascending, status, limit: 1000 };
    store.keys(account, page).await.unwrap()
}

pub(crate) async fn an_import_makes_groups_and_keys_that_are_found_and_listed_like_others(
    subject: &mut impl Subject,
) {
    let account = open_account(subject.store(), 1).await;
    // This read before the import would make a stale list visible.
    assert_eq!(subject.store().top_spending(account, None, 10).await.unwrap(), []);
    let act = act(START);
    let plan = subject.store().import(small(account), false, &act).await.unwrap();
    assert_eq!((plan.groups.len(), plan.keys.len()), (1, 3));
    subject.interrupt().await;
    let store = &**subject.store();
    let told = (1..).zip(plan.events(&act, 0)).map(|(number, event)| NumberedEvent { number, event });
    assert_eq!(kept(store, account).await, told.collect::<Vec<_>>());
    each_key_and_group_has_its_events(store, account, 2).await;
    for (made, digest) in &plan.keys {
        assert_eq!(store.key(account, made.id).await.unwrap().as_ref(), Some(made));
        let owner = store.find_credential(*digest).await.unwrap();
        assert_eq!(owner, Some(Credential::first(Principal::ApiKey(account, made.id))));
    }
    let made: Vec<ApiKey> = plan.keys.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(listed(store, account, None).await, made);
    assert_eq!(listed(store, account, Some(Status::Revoked)).await, made[2..]);
    let top = store.top_spending(account, None, 10).await.unwrap();
    assert_eq!(top, made[..2], "largest spend first");
    let group = store.group_with_external_id(account, "team 1").await.unwrap().unwrap();
    assert_eq!((group.keys, group.spend.budget.used), (1, nanos(9)));
    assert_eq!(made[1].spend.group, Some(group.id));
    assert_eq!(store.accounts().await.unwrap()[0].keys, 3);
    assert_sound(store, account).await;
}

pub(crate) async fn an_imported_key_spends_on_from_what_it_spent_elsewhere(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000).await;
    let mut import = small(account);
    let windows =
        BoundsPatch { windows: Some(vec![Limit::new(nanos(80), Per::Day)]), ..BoundsPatch::default() };
    let used = import.keys[1].key.spend.budget.used;
    import.keys[1].key.spend.budget = Budget { used, ..Budget::new(&windows, START) };
    make(subject.store(), import).await;
    subject.interrupt().await;
    let store = &**subject.store();
    let beyond = store.execute(account, vec![hold(key(1), generation(1), 61, 9)], START).await.unwrap();
    assert!(beyond[0].is_err(), "40 of 100 are used");
    for (n, key) in [(2, key(1)), (3, key(2))] {
        let commands = vec![hold(key, generation(n), 60, 9), capture(key, generation(n), 60)];
        let outcomes = store.execute(account, commands, START).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    assert_eq!(spend(store, account, key(1)).await.budget.used, nanos(100));
    let in_window = spend(store, account, key(2)).await.budget.bounds.unwrap().windows[0].used;
    assert_eq!(in_window, nanos(60), "windows begin with the import");
    assert_eq!(
        store.funds(account).await.unwrap().unwrap().credit,
        nanos(880),
        "money spent elsewhere does not reduce the credit"
    );
    assert_eq!(store.group(account, group(1)).await.unwrap().unwrap().spend.budget.used, nanos(69));
    assert_sound(store, account).await;
}

pub(crate) async fn a_repeated_import_changes_nothing(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000).await;
    make(subject.store(), small(account)).await;
    let store = &**subject.store();
    let commands = vec![hold(key(1), generation(1), 5, 9), capture(key(1), generation(1), 5)];
    store.execute(account, commands, START).await.unwrap();
    store.revoke_key(account, key(2), &act(after(20))).await.unwrap();
    let (before, events) = (listed(store, account, None).await, kept(store, account).await);
    // A second run generates new ids.
    let mut again = small(account);
    again.groups[0].id = group(9);
    for (n, imported) in (10..).zip(&mut again.keys) {
        imported.key.id = key(n);
    }
    subject.interrupt().await;
    let store = &**subject.store();
    let plan = make(store, again).await;
    assert_eq!(kept(store, account).await, events);
    assert_eq!((plan.existing_keys, plan.existing_groups), (vec![0, 1, 2], vec![0]));
    assert_eq!((plan.keys.len(), plan.groups.len()), (0, 0));
    assert_eq!(listed(store, account, None).await, before);
    assert_eq!(store.group(account, group(9)).await.unwrap(), None);
    assert_sound(store, account).await;
}

pub(crate) async fn an_import_is_made_whole_or_not_at_all(subject: &mut impl Subject) {
    let store = &**subject.store();
    let (account, other) = (open_account(store, 1).await, open_account(store, 2).await);
    make(store, import(other, Vec::new(), vec![imported(other, 3, 0, None)])).await;
    store.create_group(new_group(account, 5), None, &act(START)).await.unwrap();
    let mut archived = new_group(account, 4);
    archived.group.external_id = Some("team 4".into());
    store.create_group(archived, None, &act(START)).await.unwrap();
    store.archive_group(account, group(4), &act(START)).await.unwrap();
    let in_team =
        |n| Import { groups: Vec::new(), keys: vec![imported(account, 8, 0, Some(n))], ..small(account) };
    let cases = [
        (small(account), ImportRefused::Taken(2)),
        (in_team(4), ImportRefused::BadGroup(0, BadGroup::Archived)),
        (in_team(6), ImportRefused::BadGroup(0, BadGroup::Unknown)),
        (
            Import { keys: vec![imported(account, 8, 0, None)], most_keys: 0, ..small(account) },
            ImportRefused::TooManyKeys,
        ),
        (Import { keys: Vec::new(), most_groups: 2, ..small(account) }, ImportRefused::TooManyGroups),
    ];
    for (import, refused) in cases {
        assert_eq!(store.import(import, false, &act(START)).await.unwrap_err(), Error::Refused(refused));
    }
    assert_eq!(listed(store, account, None).await, []);
    assert_eq!(store.group_with_external_id(account, "team 1").await.unwrap(), None);
    assert_eq!(store.find_credential(digest("imported 1")).await.unwrap(), None);
    let told = kept(store, account).await;
    assert_eq!(told.len(), 3, "only thresholds of groups that existed before: {told:?}");
    assert_sound(store, account).await;
}

pub(crate) async fn a_dry_run_says_what_would_be_made_and_makes_nothing(subject: &mut impl Subject) {
    let store = &**subject.store();
    let account = open_account(store, 1).await;
    let plan = store.import(small(account), true, &act(START)).await.unwrap();
    assert_eq!((plan.groups.len(), plan.keys.len()), (1, 3));
    assert_eq!(listed(store, account, None).await, []);
    assert_eq!(store.group(account, group(1)).await.unwrap(), None);
    assert_eq!(store.find_credential(digest("imported 1")).await.unwrap(), None);
}

pub(crate) async fn imports_at_once_make_each_key_once(subject: &mut impl Subject) {
    let store = Arc::clone(subject.store());
    let account = open_account(&store, 1).await;
    let imports: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let mut import = small(account);
            import.groups[0].id = group(100 + caller);
            for (n, imported) in (0..).zip(&mut import.keys) {
                imported.key.id = key(10 * (caller + 1) + n);
            }
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.import(import, false, &act(START)).await })
        })
        .collect();
    for import in imports {
        import.await.unwrap().unwrap();
    }
    assert_eq!(listed(&store, account, None).await.len(), 3);
    assert_eq!(store.accounts().await.unwrap()[0].keys, 3);
    let team = store.group_with_external_id(account, "team 1").await.unwrap().unwrap();
    assert_eq!(team.keys, 1);
    for n in 1..4 {
        let owner = store.find_credential(digest(&format!("imported {n}"))).await.unwrap();
        let Some(Credential { owner: Principal::ApiKey(_, id), .. }) = owner else { panic!("{owner:?}") };
        assert!(store.key(account, id).await.unwrap().is_some());
    }
    assert_sound(&store, account).await;
}

pub(crate) async fn an_import_of_many_keys_is_complete(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let keys = (0..MANY).map(|n| {
        let mut imported = imported(account, 0, i64::from(n), (n % 2 == 0).then_some(1));
        let [high, low] = n.to_be_bytes();
        imported.key.id = shared::ids::KeyId::new(START, [0, 0, 0, 0, 0, 0, 0, 0, high, low]);
        imported.digest = digest(&format!("many {n}"));
        imported
    });
    let import = import(account, vec![team(account, 1, 0)], keys.collect());
    let plan = make(subject.store(), import).await;
    assert_eq!(plan.keys.len(), usize::from(MANY));
    subject.interrupt().await;
    let store = &**subject.store();
    assert_eq!(listed(store, account, None).await.len(), usize::from(MANY));
    let team = store.group_with_external_id(account, "team 1").await.unwrap().unwrap();
    assert_eq!(team.keys, u64::from(MANY / 2));
    assert_sound(store, account).await;
}
