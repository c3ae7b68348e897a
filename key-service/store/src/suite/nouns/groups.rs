//! Cases about groups of API keys: how they are created once, listed, changed and archived, and what they pay.

use std::sync::Arc;

use shared::{
    calendar::Per,
    ids::{AccountId, GroupId, KeyId},
    tokens::{Usage, UsageDetails},
    wire::{Limit, Noun, Raise},
};

use crate::{
    store::{Error, GroupPage, Ledger as _, Made, Order, Page, Store},
    suite::{
        Subject, act, after, hold, make_key, nanos, new_group, new_key,
        nouns::{keys::attempt, steps::kept},
        open_account, open_account_with,
    },
};
use domain::{
    governed::{self, BadGroup},
    group::{DefaultsPatch, Group, GroupPatch},
    key::{ApiKey, KeyPatch, Status},
    ledger::{
        self, BoundsPatch, Budget, Command, Progress, Refused,
        histories::{START, account, generation, group, key},
    },
    settings::{Metadata, MetadataPatch},
    usage::Day,
};

/// Number of concurrent callers.
const CALLERS: u8 = 24;

/// Creates a group with this parent.
async fn make(store: &Store, account: AccountId, n: u8, parent: Option<u8>) -> GroupId {
    make_bounded(store, account, n, parent, &BoundsPatch::default()).await
}

async fn get(store: &Store, account: AccountId, id: GroupId) -> Group {
    store.group(account, id).await.unwrap().unwrap()
}

/// Moves a key to a group, or out of its group.
pub(crate) async fn to(
    store: &Store,
    account: AccountId,
    key: KeyId,
    group: Option<GroupId>,
) -> Result<ApiKey, Error<governed::Refused>> {
    let patch = KeyPatch { group: Some(group), ..KeyPatch::default() };
    store.update_key(account, key, patch, &act(START)).await
}

fn bad_parent(bad: BadGroup) -> Error<governed::Refused> {
    governed::Refused::BadGroup("parent_id", bad).into()
}

/// Creates a group with these limits under a parent.
pub(crate) async fn make_bounded(
    store: &Store,
    account: AccountId,
    n: u8,
    parent: Option<u8>,
    bounds: &BoundsPatch,
) -> GroupId {
    let mut new = new_group(account, n);
    let budget = Budget::new(bounds, START);
    new.group.spend = ledger::Group { budget, parent: parent.map(group), archived_at: None, wallet: None };
    assert_eq!(store.create_group(new.clone(), None, &act(START)).await.unwrap(), Made::New(new.group));
    group(n)
}

/// Creates a key in a group.
pub(crate) async fn make_key_in(store: &Store, account: AccountId, n: u8, group: GroupId) {
    let mut new = new_key(account, n);
    new.key.spend.group = Some(group);
    assert!(matches!(store.create_key(new, None, &act(START)).await.unwrap(), Made::New(_)));
}

/// Returns one limit of every kind.
fn bounds() -> BoundsPatch {
    BoundsPatch {
        limit: Some(Some(nanos(900))),
        limit_raised: Some(Some(Raise { amount: nanos(950), until: after(60) })),
        windows: Some(vec![Limit::new(nanos(500), Per::Hour), Limit::new(nanos(800), Per::Month)]),
        models: Some(Some(vec!["Model Flash".into(), "Modell Ünï".into()])),
        requests_per_minute: Some(Some(60)),
        tokens_per_minute: Some(Some(9_000)),
        max_in_flight: Some(Some(3)),
    }
}

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn changes(pairs: &[(&str, Option<&str>)]) -> MetadataPatch {
    let changes = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)));
    MetadataPatch { is_cleared: false, changes: changes.collect() }
}

pub(crate) async fn a_group_is_made_once_and_found_by_both_of_its_ids(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let mut new = new_group(mine, 1);
    new.group.external_id = Some("customer ünï".into());
    new.group.metadata = metadata(&[("plan", "gold"), ("ünï", "")]);
    new.group.key_defaults.budget.update(&bounds(), START);
    new.group.key_defaults.expires_in_seconds = Some(3_600);
    new.group.key_defaults.metadata = metadata(&[("from", "group")]);
    new.group.spend.budget.update(&bounds(), START);
    let made = new.group.clone();
    assert_eq!(store.create_group(new.clone(), None, &act(START)).await.unwrap(), Made::New(made.clone()));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.group(mine, made.id).await.unwrap(), Some(made.clone()));
    assert_eq!(store.group_with_external_id(mine, "customer ünï").await.unwrap(), Some(made.clone()));
    assert_eq!(store.group_with_external_id(theirs, "customer ünï").await.unwrap(), None);
    assert_eq!(store.group_with_external_id(mine, "customer").await.unwrap(), None);
    assert_eq!(store.group(theirs, made.id).await.unwrap(), None);
    // A group is found by its external id. Any number of groups may have no external id.
    let mut again = new_group(mine, 2);
    again.group.external_id.clone_from(&made.external_id);
    assert_eq!(store.create_group(again.clone(), None, &act(START)).await.unwrap(), Made::Existing(made));
    again.account = theirs;
    assert_eq!(store.create_group(again.clone(), None, &act(START)).await.unwrap(), Made::New(again.group));
    make(store, mine, 3, None).await;
    make(store, mine, 4, None).await;
    // A caller that has not received the answer repeats the call.
    make(store, mine, 4, None).await;
    store.create_group(new_group(account(9), 1), None, &act(START)).await.unwrap_err();
}

pub(crate) async fn groups_are_listed_in_the_order_of_their_ids(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    for n in [3, 1, 5, 2, 4] {
        make(store, mine, n, None).await;
    }
    make(store, theirs, 6, None).await;
    subject.interrupt().await;
    let store = subject.store();
    let ids = async |account, after: Option<u8>, order, limit| -> Vec<GroupId> {
        let page = GroupPage { after: after.map(group), order, limit };
        store.groups(account, page).await.unwrap().into_iter().map(|group| group.id).collect()
    };
    assert_eq!(ids(mine, None, Order::Ascending, 9).await, [1, 2, 3, 4, 5].map(group));
    assert_eq!(ids(mine, Some(2), Order::Ascending, 2).await, [3, 4].map(group));
    assert_eq!(ids(mine, None, Order::Descending, 2).await, [5, 4].map(group));
    assert_eq!(ids(mine, Some(4), Order::Descending, 9).await, [3, 2, 1].map(group));
    assert_eq!(ids(mine, Some(9), Order::Ascending, 9).await, []);
    assert_eq!(ids(theirs, None, Order::Ascending, 9).await, [group(6)]);
    assert_eq!(ids(account(9), None, Order::Ascending, 9).await, []);
}

pub(crate) async fn groups_have_two_levels(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let (parent, child) = (make(store, mine, 1, None).await, make(store, mine, 2, Some(1)).await);
    let other = make(store, theirs, 3, None).await;
    let refused = async |of: Option<GroupId>| {
        let mut new = new_group(mine, 9);
        new.group.spend.parent = of;
        store.create_group(new, None, &act(START)).await.unwrap_err()
    };
    assert_eq!(refused(Some(child)).await, bad_parent(BadGroup::TooDeep));
    assert_eq!(refused(Some(other)).await, bad_parent(BadGroup::Unknown));
    let below = async |id, parent| {
        let patch = GroupPatch { parent: Some(parent), ..GroupPatch::default() };
        store.update_group(mine, id, patch, &act(START)).await
    };
    let too_deep = Err(bad_parent(BadGroup::TooDeep));
    let alone = make(store, mine, 4, None).await;
    assert_eq!(below(parent, Some(alone)).await, too_deep, "it has a child");
    assert_eq!(below(alone, Some(child)).await, too_deep);
    assert_eq!(below(alone, Some(alone)).await, too_deep);
    below(alone, Some(parent)).await.unwrap();
    assert_eq!(store.child_groups(mine, parent).await.unwrap(), [child, alone]);
    below(child, None).await.unwrap();
    for (of, children) in [(parent, vec![alone]), (alone, Vec::new()), (other, Vec::new())] {
        assert_eq!(store.child_groups(mine, of).await.unwrap(), children);
    }
    assert_eq!(store.child_groups(theirs, parent).await.unwrap(), []);
    assert_eq!(get(store, mine, alone).await.spend.parent, Some(parent));
    assert_eq!(get(store, mine, child).await.spend.parent, None);
}

pub(crate) async fn an_archived_group_takes_nothing(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 1_000).await;
    let (parent, child) = (make(store, mine, 1, None).await, make(store, mine, 2, Some(1)).await);
    let (inside, outside) = (make_key(store, mine, 1, None).await, make_key(store, mine, 2, None).await);
    to(store, mine, inside, Some(child)).await.unwrap();
    let archived = store.archive_group(mine, parent, &act(after(5))).await.unwrap();
    assert_eq!(archived.spend.archived_at, Some(after(5)));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.archive_group(mine, parent, &act(after(6))).await, Ok(archived));
    let unknown = Err(governed::Refused::NotFound(Noun::Group).into());
    assert_eq!(store.archive_group(mine, group(9), &act(after(6))).await, unknown);
    let bad_group = |bad| governed::Refused::BadGroup("group_id", bad).into();
    assert_eq!(to(store, mine, outside, Some(child)).await, Err(bad_group(BadGroup::Archived)));
    assert_eq!(to(store, mine, outside, Some(group(9))).await, Err(bad_group(BadGroup::Unknown)));
    let mut new = new_key(mine, 3);
    new.key.spend.group = Some(parent);
    let refused = store.create_key(new, None, &act(START)).await;
    assert_eq!(refused, Err(bad_group(BadGroup::Archived)));
    assert_eq!(store.key(mine, key(3)).await.unwrap(), None);
    let patch = GroupPatch { name: Some("New".into()), ..GroupPatch::default() };
    let refused = store.update_group(mine, parent, patch, &act(START)).await;
    assert_eq!(refused, Err(governed::Refused::GroupArchived.into()));
    let outcomes =
        store.execute(mine, vec![Command::Check { key: inside, credential: 0 }], START).await.unwrap();
    assert_eq!(outcomes, [Err(Refused::GroupArchived)]);
}

pub(crate) async fn keys_of_a_group_are_counted_and_listed(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let (one, two) = (make(store, mine, 1, None).await, make(store, mine, 2, Some(1)).await);
    make(store, theirs, 1, None).await;
    for n in 1..=6 {
        let mut new = new_key(mine, n);
        new.key.spend.group = [None, Some(one), Some(two)][usize::from(n % 3)];
        new.key.spend.expires_at = (n == 4).then(|| after(10));
        store.create_key(new, None, &act(START)).await.unwrap();
    }
    let mut other = new_key(theirs, 9);
    other.key.spend.group = Some(group(1));
    store.create_key(other, None, &act(START)).await.unwrap();
    // Keys 1 and 4 are in the first group, 2 and 5 in the second, 3 and 6 in no group.
    to(store, mine, key(6), Some(one)).await.unwrap();
    to(store, mine, key(2), Some(one)).await.unwrap();
    to(store, mine, key(5), None).await.unwrap();
    store.revoke_key(mine, key(1), &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let (of_one, of_two) = (get(store, mine, one).await, get(store, mine, two).await);
    assert_eq!((of_one.keys, of_two.keys), (4, 0), "revoked keys are counted");
    let listed = async |group, page: Page| -> Vec<KeyId> {
        store.keys_of_group(mine, group, page).await.unwrap().into_iter().map(|key| key.id).collect()
    };
    let all = Page { after: None, order: Order::Ascending, status: None, limit: 9 };
    assert_eq!(listed(one, all).await, [1, 2, 4, 6].map(key));
    assert_eq!(listed(two, all).await, []);
    assert_eq!(listed(one, Page { after: Some(key(1)), limit: 2, ..all }).await, [2, 4].map(key));
    assert_eq!(listed(one, Page { order: Order::Descending, limit: 2, ..all }).await, [6, 4].map(key));
    for (status, expected) in
        [(Status::Revoked, vec![1]), (Status::Expired, vec![4]), (Status::Active, vec![2, 6])]
    {
        let expected: Vec<_> = expected.into_iter().map(key).collect();
        assert_eq!(listed(one, Page { status: Some((status, after(10))), ..all }).await, expected);
    }
}

pub(crate) async fn an_account_has_no_more_groups_than_it_may(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let limited = async |account, n| {
        let mut new = new_group(account, n);
        new.most = 2;
        store.create_group(new, None, &act(START)).await
    };
    for n in [1, 2] {
        assert!(matches!(limited(mine, n).await, Ok(Made::New(_))));
    }
    assert_eq!(limited(mine, 3).await, Err(governed::Refused::TooMany(Noun::Group, 2).into()));
    assert!(matches!(limited(mine, 2).await, Ok(Made::New(_))), "asked again");
    assert!(matches!(limited(theirs, 3).await, Ok(Made::New(_))));
    assert_eq!(store.group(mine, group(3)).await.unwrap(), None);
}

pub(crate) async fn usage_has_its_parts_and_the_cost_to_the_operator(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 1_000).await;
    let payer = make_key(store, mine, 1, None).await;
    let details = UsageDetails {
        cache_write: 1,
        cache_write_long: 2,
        audio_input: 3,
        images: 4,
        reasoning: 5,
        audio_output: 6,
    };
    let progress = |cost, upstream_cost: Option<i64>| Progress {
        usage: Usage { details, ..Usage::of(50, 7, 60) },
        cost: nanos(cost),
        upstream_cost: upstream_cost.map(nanos),
        course: None,
    };
    let extend = |n, progress| Command::Extend {
        key: payer,
        generation: generation(n),
        most: nanos(200),
        progress,
        lease_ticks: 0,
    };
    for (n, upstream_cost) in [(1, Some(30)), (2, None)] {
        let report = extend(n, progress(40, upstream_cost));
        store.execute(mine, vec![hold(payer, generation(n), 100, 0), report], START).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    // When the hold expires, its last report is billed.
    let expire = |n| Command::Expire { key: payer, generation: generation(n) };
    store.execute(mine, vec![expire(1), expire(2)], after(1)).await.unwrap();
    let bills = store.journal(mine, 0, 9).await.unwrap().entries;
    let bills: Vec<_> = bills.into_iter().map(|entry| entry.entry.settlement).collect();
    assert_eq!(bills.iter().map(|bill| bill.usage.details).collect::<Vec<_>>(), [details; 2]);
    assert_eq!(bills.iter().map(|bill| bill.upstream_cost).collect::<Vec<_>>(), [Some(nanos(30)), None]);
    let day = Day::of(START);
    let counts = store.usage(mine, day..=day, None).await.unwrap().remove(0).counts.of;
    assert_eq!((counts.usage.details.images, counts.usage.details.audio_output), (8, 12));
    let money = (counts.charged, counts.upstream_cost, counts.charged_at_known_cost);
    assert_eq!(money, (nanos(80), nanos(30), nanos(40)));
}

pub(crate) async fn changes_of_one_object_at_once_all_take_effect(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    let (parent, team) = (make(store, account, 1, None).await, make(store, account, 2, None).await);
    make_key(store, account, 1, None).await;
    // There are more concurrent changes than a call makes attempts without a turn.
    let changes = (10..110).map(|n: u8| async move {
        let name = GroupPatch { name: Some(n.to_string()), ..GroupPatch::default() };
        let label = KeyPatch { label: Some(n.to_string()), ..KeyPatch::default() };
        let mut child = new_group(account, n);
        (child.group.spend.parent, child.most) = (Some(parent), 1_000);
        let acts = [0, 1, 2].map(|of| act(START).nth(3 * u32::from(n) + of));
        let (name, label, child) = tokio::join!(
            store.update_group(account, team, name, &acts[0]),
            store.update_key(account, key(1), label, &acts[1]),
            store.create_group(child, None, &acts[2]),
        );
        name.unwrap();
        label.unwrap();
        assert!(matches!(child, Ok(Made::New(_))), "{child:?}");
    });
    futures_util::future::join_all(changes).await;
    subject.interrupt().await;
    assert_eq!(subject.store().child_groups(account, parent).await.unwrap().len(), 100);
}

pub(crate) async fn an_idempotency_key_makes_one_group(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let create = async |store: &Store, n: u8, request: &str| {
        let mut new = new_group(account, n);
        new.group.external_id = Some("customer-7".into());
        store.create_group(new, Some(attempt("once", request, START)), &act(START)).await
    };
    let store = subject.store();
    let Ok(Made::New(made)) = create(store, 1, "a").await else { panic!("it is the first") };
    assert_eq!(create(store, 1, "a").await, Ok(Made::New(made.clone())), "the call is repeated");
    assert_eq!(create(store, 2, "a").await, Ok(Made::Replayed(made.clone())));
    assert_eq!(create(store, 2, "b").await, Err(governed::Refused::IdempotencyKeyReused.into()));
    subject.interrupt().await;
    let store = subject.store();
    let archived = store.archive_group(account, group(1), &act(START)).await.unwrap();
    assert_eq!(create(store, 3, "a").await, Ok(Made::Replayed(archived)), "the group in its current state");
    let mut other = new_group(account, 4);
    other.group.spend.parent = Some(group(9));
    let refused = store.create_group(other, Some(attempt("other", "a", START)), &act(START)).await;
    assert_eq!(refused, Err(bad_parent(BadGroup::Unknown)));
    let again =
        store.create_group(new_group(account, 4), Some(attempt("other", "b", START)), &act(START)).await;
    assert!(matches!(again.unwrap(), Made::New(_)), "a refused call does not use up its idempotency key");
    assert_eq!(kept(store, account).await.len(), 3);
}

pub(crate) async fn a_race_for_an_external_id_makes_one_group(subject: &mut impl Subject) {
    let mine = open_account(subject.store(), 1).await;
    let callers = (0..CALLERS).map(|n| {
        let store = Arc::clone(subject.store());
        tokio::spawn(async move {
            let mut new = new_group(mine, n);
            new.group.external_id = Some("customer 7".into());
            match store.create_group(new, None, &act(START)).await.unwrap() {
                Made::New(group) | Made::Existing(group) => group.id,
                other @ Made::Replayed(_) => panic!("{other:?}"),
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

pub(crate) async fn a_patch_of_a_group_changes_what_it_names(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    make(store, mine, 1, None).await;
    let changed = make_bounded(store, mine, 2, None, &bounds()).await;
    let patches = [
        GroupPatch { name: Some("Renamed".into()), ..GroupPatch::default() },
        GroupPatch { parent: Some(Some(group(1))), ..GroupPatch::default() },
        GroupPatch {
            bounds: BoundsPatch { limit: Some(None), max_in_flight: Some(Some(9)), ..BoundsPatch::default() },
            ..GroupPatch::default()
        },
        GroupPatch {
            metadata: changes(&[("plan", Some("gold")), ("x", Some("y"))]),
            ..GroupPatch::default()
        },
        GroupPatch { metadata: changes(&[("x", None)]), parent: Some(None), ..GroupPatch::default() },
        GroupPatch {
            key_defaults: DefaultsPatch { expires_in_seconds: Some(Some(60)), ..DefaultsPatch::default() },
            ..GroupPatch::default()
        },
        GroupPatch::default(),
    ];
    let mut expected = store.group(mine, changed).await.unwrap().unwrap();
    for (n, patch) in (1..).zip(patches) {
        let store = subject.store();
        expected = expected.updated(&patch, Ok(()), after(n)).unwrap();
        let updated = store.update_group(mine, changed, patch, &act(after(n))).await.unwrap();
        assert_eq!(updated, expected);
        subject.interrupt().await;
        assert_eq!(subject.store().group(mine, changed).await.unwrap().as_ref(), Some(&expected));
    }
}

pub(crate) async fn a_key_comes_back_with_its_bounds(subject: &mut impl Subject) {
    let mine = open_account(subject.store(), 1).await;
    let mut new = new_key(mine, 1);
    new.key.metadata = [("customer".to_owned(), "Zoë".to_owned())].into();
    new.key.spend.budget = Budget::new(&bounds(), after(5));
    assert_eq!(
        subject.store().create_key(new.clone(), None, &act(START)).await.unwrap(),
        Made::New(new.key.clone())
    );
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.key(mine, key(1)).await.unwrap().as_ref(), Some(&new.key));
    let patch = KeyPatch {
        bounds: BoundsPatch {
            windows: Some(vec![Limit::new(nanos(5), Per::Day), Limit::new(nanos(8), Per::Week)]),
            models: Some(None),
            tokens_per_minute: Some(None),
            ..BoundsPatch::default()
        },
        metadata: changes(&[("customer", None), ("plan", Some("gold"))]),
        ..KeyPatch::default()
    };
    let changed = new.key.updated(&patch, after(9)).unwrap();
    let updated = store.update_key(mine, key(1), patch, &act(after(9))).await.unwrap();
    assert_eq!(updated, changed);
    subject.interrupt().await;
    assert_eq!(subject.store().key(mine, key(1)).await.unwrap(), Some(changed));
}
