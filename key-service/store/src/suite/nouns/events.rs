//! Cases about events: they are written once for each act and in order, found with filters, and dropped when they are
//! old.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shared::{
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    store::{EVENTS_KEPT, EventBounds, EventSlice, Idempotency, Ledger as _, NumberedEvent, Order, Store},
    suite::{
        SUITE_EVENTS, Subject, after, capture, digest, hold, nanos, new_group, new_key,
        nouns::steps::{kept, member, new_management_key, session},
        open_account, open_account_with,
    },
};
use domain::{
    event::{Act, Actor, Event, EventKind, EventSearch},
    group::GroupPatch,
    key::{KeyPatch, NewCredential},
    ledger::{
        BoundsPatch, Holder,
        histories::{START, account, generation, group, key},
    },
    settings::MetadataPatch,
};

/// Finds the matching events in an order. Reads them in pages of this size.
async fn found(
    store: &Store,
    account: AccountId,
    search: &EventSearch,
    (order, limit): (Order, usize),
) -> Vec<NumberedEvent> {
    let (mut found, mut behind) = (Vec::new(), None);
    loop {
        let page = store.events(account, search.clone(), EventSlice { order, behind, limit }).await.unwrap();
        assert!(page.found.len() <= limit);
        found.extend(page.found);
        behind = page.next;
        if behind.is_none() {
            return found;
        }
    }
}

fn of_key(id: KeyId) -> EventSearch {
    EventSearch { key: Some(id), ..EventSearch::default() }
}

fn of_group(id: GroupId) -> EventSearch {
    EventSearch { group: Some(id), ..EventSearch::default() }
}

/// Asserts that searches for each key and each group find the kept events of this key or group, and no others. Reads
/// them in pages of this size.
pub(crate) async fn each_key_and_group_has_its_events(store: &Store, account: AccountId, limit: usize) {
    let kept = kept(store, account).await;
    let keys: BTreeSet<KeyId> = kept.iter().filter_map(|event| event.event.key).collect();
    let groups: BTreeSet<GroupId> = kept.iter().filter_map(|event| event.event.group).collect();
    for search in keys.into_iter().map(of_key).chain(groups.into_iter().map(of_group)) {
        let of_it = kept.iter().filter(|event| search.matches(&event.event));
        let mut expected: Vec<NumberedEvent> = of_it.cloned().collect();
        assert_eq!(found(store, account, &search, (Order::Ascending, limit)).await, expected, "{search:?}");
        expected.reverse();
        assert_eq!(found(store, account, &search, (Order::Descending, limit)).await, expected, "{search:?}");
    }
}

/// Returns the act with this number, by the member with the same number.
fn act(n: u8) -> Act {
    let name = format!("Ünï \"{n}\"");
    Act { actor: Actor::Member { id: member(n).id, name }, at: after(n.into()), chance: [n; 10] }
}

fn labelled(label: &str) -> KeyPatch {
    KeyPatch { label: Some(label.into()), ..KeyPatch::default() }
}

pub(crate) async fn each_act_leaves_one_event_and_a_repetition_none(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    let (made, parent, team) = (new_key(mine, 1), new_group(mine, 1), new_group(mine, 2));
    let (manager, member) = (new_management_key(mine, 1), member(1));
    let to_team = KeyPatch { group: Some(Some(group(2))), ..labelled("Ünï") };
    let into = GroupPatch { parent: Some(Some(group(1))), ..GroupPatch::default() };
    let session = session(1, member.id);
    for _ in 0..2 {
        store.create_group(parent.clone(), None, &act(1)).await.unwrap();
        store.create_group(team.clone(), None, &act(2)).await.unwrap();
        store.update_group(mine, group(2), into.clone(), &act(3)).await.unwrap();
        store.create_key(made.clone(), None, &act(4)).await.unwrap();
        store.update_key(mine, key(1), to_team.clone(), &act(5)).await.unwrap();
        store.create_management_key(manager.clone(), &act(6)).await.unwrap();
        store.create_member(mine, member.clone(), 9, &act(7)).await.unwrap();
        store.put_record(mine, session.clone(), &act(8)).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    for is_first in [true, false] {
        let removed = store.remove_member(mine, member.id, &act(9)).await;
        assert_eq!(removed.is_ok(), is_first);
        store.revoke_management_key(manager.key.id, &act(10)).await.unwrap();
        store.revoke_key(mine, key(1), &act(11)).await.unwrap();
        store.archive_group(mine, group(2), &act(12)).await.unwrap();
    }
    let (management_key_id, name) = (manager.key.id, || manager.key.name.clone());
    let blank = made.key.clone();
    let moved = blank.clone().with(&to_team, after(5)).change(&blank, after(5)).unwrap();
    let placed = team.group.clone().with(&into, after(3)).change(&team.group, after(3)).unwrap();
    let (in_team, of_team) = ((Some(key(1)), Some(group(2))), (None, Some(group(2))));
    let expected = [
        ((None, Some(group(1))), parent.group.creation(after(1))),
        (of_team, team.group.creation(after(2))),
        (of_team, placed),
        ((Some(key(1)), None), blank.creation(after(4))),
        (in_team, moved),
        ((None, None), manager.key.creation()),
        ((None, None), member.invitation()),
        ((None, None), EventKind::MemberSignedIn { member_id: member.id }),
        ((None, None), EventKind::MemberRemoved { member_id: member.id, name: member.name.clone() }),
        ((None, None), EventKind::ManagementKeyRevoked { management_key_id, name: name() }),
        (in_team, EventKind::KeyRevoked {}),
        (of_team, EventKind::GroupArchived {}),
    ];
    let expected = (1..).zip(expected).map(|(n, ((key, group), kind))| NumberedEvent {
        number: n.into(),
        event: act(n).event(0, key, group, kind),
    });
    assert_eq!(kept(store, mine).await, expected.collect::<Vec<_>>());
}

pub(crate) async fn an_act_that_changes_nothing_or_is_refused_leaves_no_event(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    store.create_key(new_key(mine, 1), None, &act(1)).await.unwrap();
    store.create_group(new_group(mine, 1), None, &act(2)).await.unwrap();
    store.archive_group(mine, group(1), &act(3)).await.unwrap();
    store.update_key(mine, key(1), KeyPatch::default(), &act(4)).await.unwrap();
    store.update_key(mine, key(1), labelled("Key 1"), &act(4)).await.unwrap();
    store
        .update_group(mine, group(1), GroupPatch { name: Some("x".into()), ..GroupPatch::default() }, &act(5))
        .await
        .unwrap_err();
    let archived = KeyPatch { group: Some(Some(group(1))), ..labelled("other") };
    store.update_key(mine, key(1), archived, &act(6)).await.unwrap_err();
    store.update_key(mine, key(2), labelled("other"), &act(6)).await.unwrap_err();
    let mut one_more = new_key(mine, 2);
    one_more.most = 1;
    store.create_key(one_more, None, &act(7)).await.unwrap_err();
    let once = |request: &str| Idempotency {
        key: digest("once"),
        request: digest(request),
        now: START,
        expires_at: after(9),
    };
    store.create_key(new_key(mine, 3), Some(once("a")), &act(8)).await.unwrap();
    store.create_key(new_key(mine, 4), Some(once("a")), &act(9)).await.unwrap();
    store.create_key(new_key(mine, 5), Some(once("b")), &act(10)).await.unwrap_err();
    store.revoke_key(mine, key(9), &act(11)).await.unwrap_err();
    store.create_member(mine, member(1), 0, &act(12)).await.unwrap_err();
    store.remove_member(mine, member(1).id, &act(13)).await.unwrap_err();
    let types: Vec<_> = kept(store, mine).await.iter().map(|event| event.event.kind.as_str()).collect();
    assert_eq!(types, ["key.created", "group.created", "group.archived", "key.created"]);
}

pub(crate) async fn events_are_found_by_type_key_and_group_page_by_page(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    store.create_key(new_key(theirs, 1), None, &act(0)).await.unwrap();
    store.create_group(new_group(mine, 1), None, &act(1)).await.unwrap();
    for n in 1..=3 {
        let mut new = new_key(mine, n);
        new.key.spend.group = (n < 3).then_some(group(1));
        store.create_key(new, None, &act(2 * n)).await.unwrap();
        store.update_key(mine, key(n), labelled("other"), &act(2 * n + 1)).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    let search = |kind, key, group| EventSearch { kind, key, group, by: None, within: None };
    for (search, numbers) in [
        (search(None, None, None), vec![7, 6, 5, 4, 3, 2, 1]),
        (search(Some("key.updated"), None, None), vec![7, 5, 3]),
        (search(None, Some(key(2)), None), vec![5, 4]),
        (search(None, None, Some(group(1))), vec![5, 4, 3, 2, 1]),
        (search(Some("key.created"), None, Some(group(1))), vec![4, 2]),
        (search(Some("key.created"), Some(key(3)), Some(group(1))), vec![]),
        (search(Some("key.created"), Some(key(3)), None), vec![6]),
        (
            EventSearch { within: Some(vec![group(2), group(1)]), ..EventSearch::default() },
            vec![5, 4, 3, 2, 1],
        ),
        (EventSearch { within: Some(vec![group(1)]), ..search(None, Some(key(3)), None) }, vec![]),
        (EventSearch { within: Some(Vec::new()), ..EventSearch::default() }, vec![]),
        (EventSearch { by: Some("ünï \"4".into()), ..EventSearch::default() }, vec![4]),
        (EventSearch { by: Some("ünï".into()), ..search(Some("key.created"), None, None) }, vec![6, 4, 2]),
        (EventSearch { by: Some("nobody".into()), ..EventSearch::default() }, vec![]),
    ] {
        for order in [Order::Descending, Order::Ascending] {
            let found = found(store, mine, &search, (order, 2)).await;
            let mut found: Vec<u64> = found.iter().map(|event| event.number).collect();
            if order == Order::Ascending {
                found.reverse();
            }
            assert_eq!(found, numbers, "{order:?} {search:?}");
        }
    }
    let all = kept(store, mine).await;
    for event in &all {
        assert_eq!(store.event_number(mine, event.event.id).await.unwrap(), Some(event.number));
        assert_eq!(store.event_number(theirs, event.event.id).await.unwrap(), None);
    }
    let page = store.events_after(mine, 3, 2).await.unwrap();
    assert_eq!((page.events, page.gone_until), (all[3..5].to_vec(), 0));
    assert_eq!(store.events_after(mine, 7, 2).await.unwrap().events, []);
}

pub(crate) async fn a_keys_and_a_groups_events_are_found_until_they_end(subject: &mut impl Subject) {
    let (mine, theirs) = (account(1), account(2));
    // Keys and groups of both accounts have the same ids.
    for (n, account) in [(1, mine), (2, theirs)] {
        let store = &**subject.store();
        open_account_with(store, n, 1_000).await;
        store.create_group(new_group(account, 1), None, &crate::suite::act(START)).await.unwrap();
        let limit = BoundsPatch { limit: Some(Some(nanos(20))), ..BoundsPatch::default() };
        let bounded = GroupPatch { bounds: limit, ..GroupPatch::default() };
        store.update_group(account, group(1), bounded, &crate::suite::act(START)).await.unwrap();
        let mut new = new_key(account, 1);
        (new.key.spend.group, new.key.spend.budget.limit) = (Some(group(1)), Some(nanos(10)));
        store.create_key(new, None, &crate::suite::act(START)).await.unwrap();
        let spent = vec![hold(key(1), generation(1), 10, 7), capture(key(1), generation(1), 10)];
        assert!(store.execute(account, spent, START).await.unwrap().iter().all(Result::is_ok));
    }
    subject.interrupt().await;
    let store = &**subject.store();
    let new = NewCredential {
        account: mine,
        key: key(1),
        digest: digest("rotated"),
        hint: "fg_api_rotated…".into(),
        grace: Duration::from_secs(9),
        is_forced: false,
    };
    store.rotate_key(new, None, &crate::suite::act(after(1))).await.unwrap();
    let out = KeyPatch { group: Some(None), ..KeyPatch::default() };
    store.update_key(mine, key(1), out, &crate::suite::act(after(2))).await.unwrap();
    store.revoke_key(mine, key(1), &crate::suite::act(after(3))).await.unwrap();
    store.archive_group(mine, group(1), &crate::suite::act(after(4))).await.unwrap();
    for account in [mine, theirs] {
        each_key_and_group_has_its_events(store, account, 1).await;
        each_key_and_group_has_its_events(store, account, 9).await;
    }
    let last = async |account, search| {
        let last = store.events(account, search, EventSlice::latest(4)).await.unwrap().found;
        last.iter().map(|event| event.event.kind.as_str()).collect::<Vec<_>>()
    };
    let kinds = ["key.revoked", "key.updated", "key.rotated", "key.limit_reached"];
    assert_eq!(last(mine, of_key(key(1))).await, kinds);
    let kinds = ["group.archived", "key.rotated", "group.threshold_reached", "key.limit_reached"];
    assert_eq!(last(mine, of_group(group(1))).await, kinds);
    let kinds =
        ["key.limit_reached", "key.threshold_reached", "key.threshold_reached", "key.threshold_reached"];
    assert_eq!(last(theirs, of_key(key(1))).await, kinds);
    assert_eq!(last(theirs, of_key(key(2))).await, [""; 0]);
}

pub(crate) async fn a_bound_that_is_lowered_tells_what_it_passes_once_with_the_act(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 100).await;
    store.create_group(new_group(mine, 1), None, &act(0)).await.unwrap();
    let mut new = new_key(mine, 1);
    new.key.spend.group = Some(group(1));
    store.create_key(new, None, &act(1)).await.unwrap();
    let spent = vec![hold(key(1), generation(1), 10, 7), capture(key(1), generation(1), 10)];
    assert!(store.execute(mine, spent, START).await.unwrap().iter().all(Result::is_ok));
    let limit = |n| BoundsPatch::of_limit(Some(nanos(n)));
    let bound = async |store: &Store, n, limit| {
        let patch = KeyPatch { bounds: limit, ..KeyPatch::default() };
        store.update_key(mine, key(1), patch, &act(n)).await.unwrap();
    };
    bound(store, 2, limit(20)).await;
    subject.interrupt().await;
    let store = &**subject.store();
    bound(store, 3, limit(100)).await;
    bound(store, 4, limit(20)).await;
    bound(store, 5, limit(11)).await;
    let patch = GroupPatch { bounds: limit(10), ..GroupPatch::default() };
    store.update_group(mine, group(1), patch, &act(6)).await.unwrap();
    let told = kept(store, mine).await;
    let told = told.iter().map(|told| {
        let kind = &told.event.kind;
        (told.number, kind.as_str(), kind.threshold().map_or(0, |threshold| threshold.percent))
    });
    let expected = [
        (4, "key.updated", 0),
        (5, "key.threshold_reached", 50),
        (6, "key.updated", 0),
        (7, "key.updated", 0),
        (8, "key.updated", 0),
        (9, "key.threshold_reached", 80),
        (10, "group.updated", 0),
        (11, "group.threshold_reached", 50),
        (12, "group.threshold_reached", 80),
        (13, "group.threshold_reached", 95),
        (14, "group.limit_reached", 100),
    ];
    assert_eq!(told.skip(3).collect::<Vec<_>>(), expected);
    each_key_and_group_has_its_events(store, mine, 3).await;
    let names = vec![Holder::Group(group(1)).name_of_reached_limit(nanos(10))];
    assert_eq!(store.are_told(mine, names).await.unwrap(), [true]);
}

pub(crate) async fn events_are_dropped_when_they_are_too_old(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    let at = |at: Timestamp, n| Act { at, ..act(n) };
    let label = async |store: &Store, act: Act, label: &str| {
        store.update_key(mine, key(1), labelled(label), &act).await.unwrap();
    };
    store.create_key(new_key(mine, 1), None, &at(START, 1)).await.unwrap();
    label(store, at(after(1), 2), "b").await;
    label(store, at(START.plus(EVENTS_KEPT), 3), "c").await;
    let page = store.events_after(mine, 0, 9).await.unwrap();
    assert_eq!(
        (page.events.len(), page.gone_until),
        (3, 0),
        "the first event is just within the maximum age"
    );
    each_key_and_group_has_its_events(store, mine, 2).await;
    let first: Event = page.events[0].event.clone();
    label(store, at(after(1).plus(EVENTS_KEPT), 4), "d").await;
    subject.interrupt().await;
    let store = subject.store();
    let page = store.events_after(mine, 0, 9).await.unwrap();
    assert_eq!(page.gone_until, 1);
    assert_eq!(page.events.iter().map(|event| event.number).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(store.event_number(mine, first.id).await.unwrap(), None);
    each_key_and_group_has_its_events(store, mine, 2).await;
    label(store, at(START.plus(3 * EVENTS_KEPT), 5), "e").await;
    let page = store.events_after(mine, 0, 9).await.unwrap();
    assert_eq!(
        (page.gone_until, page.events.len()),
        (4, 1),
        "numbers continue after all other events are dropped"
    );
    assert_eq!(page.events[0].number, 5);
    each_key_and_group_has_its_events(store, mine, 2).await;
}

pub(crate) async fn an_account_keeps_its_latest_events_within_their_number_and_bytes(
    subject: &mut impl Subject,
) {
    let EventBounds { count, bytes, .. } = SUITE_EVENTS;
    let store = subject.store();
    let mine = open_account(store, 1).await;
    store.create_key(new_key(mine, 1), None, &act(1)).await.unwrap();
    // Writes an event for each change, in order.
    let change = async |store: &Store, changes: std::ops::Range<u64>, metadata: usize| {
        for n in changes {
            let text = format!("{n} {}", "x".repeat(metadata));
            let metadata =
                MetadataPatch { is_cleared: false, changes: BTreeMap::from([("a".into(), Some(text))]) };
            let patch = KeyPatch { metadata, ..labelled(&n.to_string()) };
            let act = act(2).nth(u32::try_from(n).unwrap());
            store.update_key(mine, key(1), patch, &act).await.unwrap();
        }
    };
    change(store, 1..count, 0).await;
    assert_eq!(
        store.events_after(mine, 0, 1).await.unwrap().gone_until,
        0,
        "exactly the maximum number of events"
    );
    change(store, count..count + 9, 0).await;
    subject.interrupt().await;
    let store = subject.store();
    let all = kept(store, mine).await;
    assert_eq!((all[0].number, all.len() as u64), (10, count));
    let size = |event: &NumberedEvent| event.event.to_json().len() as u64;
    // Each long event displaces several others, until the total size is within the limit.
    change(store, 2_000..2_300, 450).await;
    let (page, all) = (store.events_after(mine, 0, 1).await.unwrap(), kept(store, mine).await);
    let (sum, first) = (all.iter().map(size).sum::<u64>(), all[0].number);
    assert!(sum <= bytes && sum + 2_000 > bytes, "{sum} of {bytes}");
    assert_eq!((all.last().unwrap().number, page.gone_until), (count + 309, first - 1));
    assert_eq!(all.len() as u64, count + 309 - first + 1, "no event in between is missing");
    each_key_and_group_has_its_events(store, mine, 100).await;
    let gone = store.event_number(mine, all[0].event.id).await.unwrap();
    assert_eq!(gone, Some(first));
}

pub(crate) async fn acts_at_once_leave_an_event_each(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    store.create_key(new_key(mine, 0), None, &act(0)).await.unwrap();
    let acts = (1..=20).map(|n| {
        let (store, label) = (store.clone(), n.to_string());
        async move { store.update_key(mine, key(0), labelled(&label), &act(n)).await.unwrap() }
    });
    futures_util::future::join_all(acts).await;
    // Each change begins with the label that the previous change set.
    let mut label = "\"Key 0\"".to_owned();
    let events = kept(store, mine).await;
    assert_eq!(events.len(), 21);
    for event in &events[1..] {
        let EventKind::KeyUpdated { changes } = &event.event.kind else { panic!("{event:?}") };
        assert_eq!((changes.len(), &changes[0].before), (1, &label));
        label.clone_from(&changes[0].after);
    }
}
