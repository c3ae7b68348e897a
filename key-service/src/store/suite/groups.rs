//! Groups: their life, their keys, and the rules of who may be in which.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    calendar::Per,
    ids::{AccountId, GroupId, KeyId},
};

use super::{Subject, after, make_key, nanos, new_key, open_account};
use crate::store::{Created, GroupCreated, GroupPage, GroupUpdated, Order, Page, Store, Updated};
use domain::{
    group::{BadGroup, DefaultsPatch, Group, GroupNotChanged, GroupPatch, KeyDefaults, NewGroup},
    key::KeyPatch,
    ledger::{
        self, BoundsPatch, Budget,
        histories::{self, START, account, key},
    },
    settings::MetadataPatch,
};

/// Number of concurrent callers.
const CALLERS: u8 = 24;

/// Id of the group of this number.
fn id(n: u8) -> GroupId {
    histories::group(n)
}

/// The group of this number, not yet made.
pub(super) fn new_group(account: AccountId, n: u8) -> NewGroup {
    let group = Group {
        id: id(n),
        name: format!("Group {n}"),
        external_id: None,
        metadata: BTreeMap::new(),
        key_defaults: KeyDefaults::default(),
        created_at: after(n.into()),
        keys: 0,
        spend: ledger::Group::default(),
    };
    NewGroup { account, group, most: u64::MAX >> 11 }
}

/// Makes a group with these bounds under a parent.
pub(super) async fn make_group(
    store: &dyn Store,
    account: AccountId,
    n: u8,
    parent: Option<u8>,
    bounds: &BoundsPatch,
) -> GroupId {
    let mut new = new_group(account, n);
    new.group.spend =
        ledger::Group { budget: Budget::new(bounds, START), parent: parent.map(id), archived_at: None };
    assert_eq!(store.create_group(new.clone()).await.unwrap(), GroupCreated::New(new.group));
    id(n)
}

async fn plain(store: &dyn Store, account: AccountId, n: u8, parent: Option<u8>) -> GroupId {
    make_group(store, account, n, parent, &BoundsPatch::default()).await
}

/// Makes a key in a group.
pub(super) async fn make_key_in(store: &dyn Store, account: AccountId, n: u8, group: GroupId) -> Created {
    let mut new = new_key(account, n);
    new.key.spend.group = Some(group);
    store.create_key(new, None).await.unwrap()
}

pub(super) fn moved_to(group: Option<GroupId>) -> KeyPatch {
    KeyPatch { group: Some(group), ..KeyPatch::default() }
}

fn every_bound() -> BoundsPatch {
    BoundsPatch {
        limit: Some(Some(nanos(25))),
        windows: Some(vec![
            (Per::Month, nanos(9_000_000_000_000_000)),
            (Per::Hour, nanos(0)),
            (Per::Week, nanos(7)),
        ]),
        models: Some(Some(vec!["Model Max".into(), "Zoë’s \u{0} \"model\"".into()])),
        requests_per_minute: Some(Some(1_000_000_000)),
        tokens_per_minute: Some(Some(1)),
        max_in_flight: Some(Some(3)),
    }
}

fn metadata(pairs: &[(&str, Option<&str>)]) -> MetadataPatch {
    let changes = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
    MetadataPatch { is_cleared: false, changes: changes.collect() }
}

pub(super) async fn a_group_comes_back_as_it_was_made(subject: &mut impl Subject) {
    let mine = open_account(&**subject.store(), 1).await;
    let mut bounded = new_group(mine, 1);
    bounded.group.external_id = Some("Zoë’s 🔑 \u{1} \"quoted\"".into());
    bounded.group.metadata = [("a name".to_owned(), "ä value".to_owned())].into();
    bounded.group.spend.budget = Budget::new(&every_bound(), after(5));
    bounded.group.key_defaults = KeyDefaults {
        budget: Budget::new(&every_bound(), after(6)),
        expires_in_seconds: Some(86_400),
        metadata: [("made in".to_owned(), "group 1".to_owned())].into(),
    };
    let plain = new_group(mine, 2);
    for new in [&bounded, &plain] {
        let created = subject.store().create_group(new.clone()).await.unwrap();
        assert_eq!(created, GroupCreated::New(new.group.clone()));
    }
    subject.interrupt().await;
    for new in [bounded, plain] {
        assert_eq!(subject.store().group(mine, new.group.id).await.unwrap(), Some(new.group));
    }
    assert_eq!(subject.store().group(mine, id(3)).await.unwrap(), None);
}

pub(super) async fn a_key_comes_back_with_its_bounds(subject: &mut impl Subject) {
    let mine = open_account(&**subject.store(), 1).await;
    let mut new = new_key(mine, 1);
    new.key.metadata = [("customer".to_owned(), "Zoë".to_owned())].into();
    new.key.spend.budget = Budget::new(&every_bound(), after(5));
    assert_eq!(subject.store().create_key(new.clone(), None).await.unwrap(), Created::New(new.key.clone()));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.key(mine, key(1)).await.unwrap().as_ref(), Some(&new.key));
    let patch = KeyPatch {
        bounds: BoundsPatch {
            windows: Some(vec![(Per::Day, nanos(5)), (Per::Week, nanos(8))]),
            models: Some(None),
            tokens_per_minute: Some(None),
            ..BoundsPatch::default()
        },
        metadata: metadata(&[("customer", None), ("plan", Some("gold"))]),
        ..KeyPatch::default()
    };
    let changed = new.key.updated(&patch, after(9)).unwrap();
    let updated = store.update_key(mine, key(1), patch, after(9)).await.unwrap();
    assert_eq!(updated, Updated::Key(changed.clone()));
    subject.interrupt().await;
    assert_eq!(subject.store().key(mine, key(1)).await.unwrap(), Some(changed));
}

pub(super) async fn an_external_id_makes_one_group(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(&**store, 1).await, open_account(&**store, 2).await);
    let named = |account, n| {
        let mut new = new_group(account, n);
        new.group.external_id = Some("customer 7".into());
        new
    };
    let first = named(mine, 1);
    assert_eq!(store.create_group(first.clone()).await.unwrap(), GroupCreated::New(first.group.clone()));
    let other = named(theirs, 1);
    assert_eq!(store.create_group(other.clone()).await.unwrap(), GroupCreated::New(other.group.clone()));
    subject.interrupt().await;
    let store = subject.store();
    let again = store.create_group(named(mine, 2)).await.unwrap();
    assert_eq!(again, GroupCreated::Existing(first.group.clone()));
    assert_eq!(store.group(mine, id(2)).await.unwrap(), None);
    let found = store.group_with_external_id(mine, "customer 7").await.unwrap();
    assert_eq!(found, Some(first.group));
    assert_eq!(store.group_with_external_id(mine, "customer 8").await.unwrap(), None);
    // A creation sent again makes nothing more, with an external id or without.
    let nameless = new_group(mine, 3);
    for _ in 0..2 {
        let created = store.create_group(nameless.clone()).await.unwrap();
        assert_eq!(created, GroupCreated::New(nameless.group.clone()));
    }
}

pub(super) async fn a_race_for_an_external_id_makes_one_group(subject: &mut impl Subject) {
    let mine = open_account(&**subject.store(), 1).await;
    let callers = (0..CALLERS).map(|n| {
        let store = Arc::clone(subject.store());
        tokio::spawn(async move {
            let mut new = new_group(mine, n);
            new.group.external_id = Some("customer 7".into());
            match store.create_group(new).await.unwrap() {
                GroupCreated::New(group) | GroupCreated::Existing(group) => group.id,
                other => panic!("{other:?}"),
            }
        })
    });
    let mut made = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        made.push(caller.await.unwrap());
    }
    assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
    let page = GroupPage { after: None, order: Order::Ascending, limit: usize::MAX };
    assert_eq!(subject.store().groups(mine, page).await.unwrap().len(), 1);
}

pub(super) async fn an_account_has_no_more_groups_than_it_may(subject: &mut impl Subject) {
    let mine = open_account(&**subject.store(), 1).await;
    let at_most_two = |n| NewGroup { most: 2, ..new_group(mine, n) };
    let create = async |store: &dyn Store, n| store.create_group(at_most_two(n)).await.unwrap();
    for n in [1, 2] {
        assert!(matches!(create(&**subject.store(), n).await, GroupCreated::New(_)), "{n}");
    }
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(create(&**store, 3).await, GroupCreated::TooMany);
    store.archive_group(mine, id(1), START).await.unwrap();
    assert_eq!(create(&**store, 3).await, GroupCreated::TooMany);
    assert!(matches!(create(&**store, 2).await, GroupCreated::New(_)));
}

pub(super) async fn groups_are_listed_in_the_order_of_their_ids(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(&**store, 1).await, open_account(&**store, 2).await);
    for n in [4, 1, 3, 0, 2] {
        plain(&**store, mine, n, None).await;
        plain(&**store, theirs, n + 10, None).await;
    }
    store.archive_group(mine, id(2), START).await.unwrap();
    subject.interrupt().await;
    let page = |after: Option<u8>, order, limit| GroupPage { after: after.map(id), order, limit };
    let cases: [(GroupPage, &[u8]); 8] = [
        (page(None, Order::Ascending, 9), &[0, 1, 2, 3, 4]),
        (page(None, Order::Descending, 9), &[4, 3, 2, 1, 0]),
        (page(None, Order::Ascending, 2), &[0, 1]),
        (page(Some(1), Order::Ascending, 2), &[2, 3]),
        (page(Some(4), Order::Ascending, 2), &[]),
        (page(Some(3), Order::Descending, 2), &[2, 1]),
        (page(Some(7), Order::Descending, 1), &[4]),
        (page(None, Order::Ascending, 0), &[]),
    ];
    for (page, expected) in cases {
        let listed = subject.store().groups(mine, page).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|group| group.id).collect();
        assert_eq!(listed, expected.iter().copied().map(id).collect::<Vec<_>>(), "{page:?}");
    }
}

pub(super) async fn a_patch_of_a_group_changes_what_it_names(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(&**store, 1).await;
    plain(&**store, mine, 1, None).await;
    let group = make_group(&**store, mine, 2, None, &every_bound()).await;
    let patches = [
        GroupPatch { name: Some("Renamed".into()), ..GroupPatch::default() },
        GroupPatch { parent: Some(Some(id(1))), ..GroupPatch::default() },
        GroupPatch {
            bounds: BoundsPatch { limit: Some(None), max_in_flight: Some(Some(9)), ..BoundsPatch::default() },
            ..GroupPatch::default()
        },
        GroupPatch {
            metadata: metadata(&[("plan", Some("gold")), ("x", Some("y"))]),
            ..GroupPatch::default()
        },
        GroupPatch { metadata: metadata(&[("x", None)]), parent: Some(None), ..GroupPatch::default() },
        GroupPatch {
            key_defaults: DefaultsPatch { expires_in_seconds: Some(Some(60)), ..DefaultsPatch::default() },
            ..GroupPatch::default()
        },
        GroupPatch::default(),
    ];
    let mut expected = store.group(mine, group).await.unwrap().unwrap();
    for (n, patch) in (1..).zip(patches) {
        let store = subject.store();
        expected = expected.updated(&patch, Ok(()), after(n)).unwrap();
        let updated = store.update_group(mine, group, patch, after(n)).await.unwrap();
        assert_eq!(updated, GroupUpdated::Group(expected.clone()));
        subject.interrupt().await;
        assert_eq!(subject.store().group(mine, group).await.unwrap().as_ref(), Some(&expected));
    }
}

pub(super) async fn an_archived_group_stays_as_it_is(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(&**store, 1).await;
    let group = plain(&**store, mine, 1, None).await;
    let archived = store.archive_group(mine, group, after(7)).await.unwrap().unwrap();
    assert_eq!(archived.spend.archived_at, Some(after(7)));
    assert_eq!(store.archive_group(mine, group, after(9)).await.unwrap().as_ref(), Some(&archived));
    subject.interrupt().await;
    let store = subject.store();
    let patch = GroupPatch { name: Some("New".into()), ..GroupPatch::default() };
    let refused = store.update_group(mine, group, patch, after(9)).await.unwrap();
    assert_eq!(refused, GroupUpdated::NotChanged(GroupNotChanged::Archived));
    assert_eq!(store.group(mine, group).await.unwrap(), Some(archived));
    assert_eq!(store.archive_group(mine, id(5), START).await.unwrap(), None);
}

pub(super) async fn another_accounts_group_is_out_of_reach(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(&**store, 1).await, open_account(&**store, 2).await);
    let group = plain(&**store, theirs, 1, None).await;
    assert_eq!(store.group(mine, group).await.unwrap(), None);
    let patch = GroupPatch { name: Some("Mine".into()), ..GroupPatch::default() };
    let updated = store.update_group(mine, group, patch, START).await.unwrap();
    assert_eq!(updated, GroupUpdated::NotFound);
    assert_eq!(store.archive_group(mine, group, START).await.unwrap(), None);
    assert_eq!(make_key_in(&**store, mine, 1, group).await, Created::BadGroup(BadGroup::Unknown));
    let mut child = new_group(mine, 2);
    child.group.spend.parent = Some(group);
    assert_eq!(store.create_group(child).await.unwrap(), GroupCreated::BadParent(BadGroup::Unknown));
    assert_eq!(store.group(theirs, group).await.unwrap().unwrap().name, "Group 1");
    assert!(store.create_group(new_group(account(9), 1)).await.is_err());
}

pub(super) async fn there_are_two_levels_of_groups(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(&**store, 1).await;
    plain(&**store, mine, 1, None).await;
    plain(&**store, mine, 2, Some(1)).await;
    plain(&**store, mine, 3, None).await;
    let mut third = new_group(mine, 4);
    third.group.spend.parent = Some(id(2));
    assert_eq!(store.create_group(third).await.unwrap(), GroupCreated::BadParent(BadGroup::TooDeep));
    let move_to = async |store: &dyn Store, n, parent: u8| {
        let patch = GroupPatch { parent: Some(Some(id(parent))), ..GroupPatch::default() };
        store.update_group(mine, id(n), patch, START).await.unwrap()
    };
    let bad = |why| GroupUpdated::NotChanged(GroupNotChanged::Parent(why));
    subject.interrupt().await;
    let store = &**subject.store();
    // A child cannot be a parent, a parent no child, and no group its own parent.
    assert_eq!(move_to(store, 3, 2).await, bad(BadGroup::TooDeep));
    assert_eq!(move_to(store, 1, 3).await, bad(BadGroup::TooDeep));
    assert_eq!(move_to(store, 3, 3).await, bad(BadGroup::TooDeep));
    assert_eq!(move_to(store, 3, 9).await, bad(BadGroup::Unknown));
    // A group without children any more may move.
    assert!(matches!(move_to(store, 2, 3).await, GroupUpdated::Group(_)));
    assert!(matches!(move_to(store, 1, 3).await, GroupUpdated::Group(_)));
    store.archive_group(mine, id(3), START).await.unwrap();
    plain(store, mine, 5, None).await;
    assert_eq!(move_to(store, 5, 3).await, bad(BadGroup::Archived));
}

pub(super) async fn keys_are_made_in_and_moved_to_groups_that_take_them(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(&**store, 1).await;
    let (parent, child) = (plain(&**store, mine, 1, None).await, plain(&**store, mine, 2, Some(1)).await);
    let open = plain(&**store, mine, 3, None).await;
    make_key(&**store, mine, 1, None).await;
    store.archive_group(mine, parent, START).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    for (group, why) in
        [(parent, BadGroup::Archived), (child, BadGroup::Archived), (id(9), BadGroup::Unknown)]
    {
        assert_eq!(make_key_in(&**store, mine, 2, group).await, Created::BadGroup(why));
        let moved = store.update_key(mine, key(1), moved_to(Some(group)), START).await.unwrap();
        assert_eq!(moved, Updated::BadGroup(why));
    }
    assert_eq!(store.key(mine, key(2)).await.unwrap(), None);
    assert_eq!(store.key(mine, key(1)).await.unwrap().unwrap().spend.group, None);
    let moved = store.update_key(mine, key(1), moved_to(Some(open)), START).await.unwrap();
    assert!(matches!(&moved, Updated::Key(key) if key.spend.group == Some(open)), "{moved:?}");
}

pub(super) async fn keys_of_a_group_are_listed_and_counted(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(&**store, 1).await;
    let (first, second) = (plain(&**store, mine, 1, None).await, plain(&**store, mine, 2, None).await);
    for n in [5, 1, 3] {
        make_key_in(&**store, mine, n, first).await;
    }
    make_key_in(&**store, mine, 2, second).await;
    make_key(&**store, mine, 4, None).await;
    store.revoke_key(mine, key(3), START).await.unwrap();
    // A key that is made twice is counted once, and so is a move to the same group.
    make_key_in(&**store, mine, 5, first).await;
    store.update_key(mine, key(5), moved_to(Some(first)), START).await.unwrap();
    subject.interrupt().await;
    let listed = async |store: &dyn Store, group, after: Option<u8>, order, limit| {
        let page = Page { after: after.map(key), order, status: None, limit };
        let keys = store.keys_of_group(mine, group, page).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<KeyId>>()
    };
    let store = &**subject.store();
    let counted = async |group| store.group(mine, group).await.unwrap().unwrap().keys;
    assert_eq!(listed(store, first, None, Order::Ascending, 9).await, [1, 3, 5].map(key));
    assert_eq!(listed(store, first, Some(1), Order::Ascending, 1).await, [key(3)]);
    assert_eq!(listed(store, first, Some(5), Order::Descending, 9).await, [3, 1].map(key));
    assert_eq!(listed(store, id(9), None, Order::Ascending, 9).await, []);
    assert_eq!((counted(first).await, counted(second).await), (3, 1));
    store.update_key(mine, key(1), moved_to(Some(second)), START).await.unwrap();
    store.update_key(mine, key(4), moved_to(Some(second)), START).await.unwrap();
    store.update_key(mine, key(5), moved_to(None), START).await.unwrap();
    assert_eq!(listed(store, first, None, Order::Ascending, 9).await, [key(3)]);
    assert_eq!(listed(store, second, None, Order::Descending, 9).await, [4, 2, 1].map(key));
    assert_eq!((counted(first).await, counted(second).await), (1, 3));
}
