//! Tests the keys and groups with the largest sums of a range, and keys in trouble, complete or marked as incomplete.

use std::collections::HashSet;

use shared::ids::KeyId;

use crate::{
    history::reading::KeySearch,
    nouns::reach::AccountReach,
    reports::{
        local_days::LocalDays,
        spend::{ChartStep, SpendBy, SpendPart, SpendParts, SpendSearch},
        top::Depth,
    },
    tests::sums::Billed,
};
use domain::{
    key::Condition,
    ledger::histories::{group, key},
    usage::Hour,
};
use key_service_store::store::{
    RefusedLine,
    suite::{act, nanos, new_key},
};

const TODAY: &str = "2026-11-21T09:00:00Z";
/// Less than any account needs.
const FEW: Depth = Depth { key_sums: 0, group_sums: 1, bills: 1 };

async fn parts(billed: &Billed, by: SpendBy, before: i64, depth: Depth) -> SpendParts {
    let today = billed.office.management.today();
    let days = today.plus(-before)..=today;
    let search = SpendSearch { range: LocalDays::utc(days), by, step: ChartStep::Day, depth };
    billed.office.management.spend_parts(billed.account, search).await.unwrap()
}

fn requests(parts: &SpendParts, part: &SpendPart) -> u64 {
    parts.get(part).map_or(0, |times| times.values().map(|sums| sums.requests).sum())
}

fn all(parts: &SpendParts) -> u64 {
    parts.keys().map(|part| requests(parts, part)).sum()
}

/// Creates keys, each in a separate group. The last key was used today, and all others were used yesterday.
async fn with_a_new_key(keys: u8) -> Billed {
    let mut billed = Billed::open().await;
    for n in 0..keys {
        billed.group(n, None).await;
        billed.key(n, Some(group(n))).await;
    }
    for n in (0..keys - 1).flat_map(|n| [n, n]) {
        billed.bill(key(n), None).await;
    }
    billed.office.clock.set(TODAY);
    billed.bill(key(keys - 1), None).await;
    billed
}

#[tokio::test]
async fn a_key_that_spends_today_is_apart_however_little_it_spent_before() {
    let billed = with_a_new_key(60).await;
    let newest = SpendPart::Key(key(59));
    let today = parts(&billed, SpendBy::Key, 0, Depth::PAGE).await;
    assert_eq!(today.keys().collect::<Vec<_>>(), [&newest], "no other key spent anything today");
    let both = parts(&billed, SpendBy::Key, 1, Depth::PAGE).await;
    assert_eq!((both.len(), requests(&both, &newest), all(&both)), (60, 1, 119));
    let margins = billed.office.management.margins(
        billed.account,
        billed.office.management.today()..=billed.office.management.today(),
        SpendBy::Key,
    );
    let margins = margins.await.unwrap();
    assert_eq!((margins.parts.len(), margins.are_largest), (1, true));
}

#[tokio::test]
async fn where_not_all_can_be_compared_the_part_of_others_says_so_and_the_sum_is_whole() {
    let billed = with_a_new_key(75).await;
    for (by, newest, others) in [
        (SpendBy::Key, SpendPart::Key(key(74)), SpendPart::OtherKeys),
        (SpendBy::Group, SpendPart::Group(Some(group(74))), SpendPart::OtherGroups),
    ] {
        let today = parts(&billed, by, 0, FEW).await;
        assert_eq!(requests(&today, &newest), 1, "{by:?}: it is in the sample of today: {today:?}");
        let few = parts(&billed, by, 1, FEW).await;
        assert!(few.contains_key(&others) && few.len() < 75 && all(&few) == 149, "{by:?}: {few:?}");
        let every = parts(&billed, by, 1, Depth::LIST).await;
        assert!(!every.contains_key(&others) && every.len() == 75 && all(&every) == 149, "{by:?}: {every:?}");
    }
}

#[tokio::test]
async fn a_group_has_its_child_groups_spend_by_top_level_group_wherever_a_child_was() {
    let mut billed = Billed::open().await;
    let [above, beside, child] = [0, 1, 2].map(group);
    for (n, parent) in [(0, None), (1, None), (2, Some(above))] {
        billed.group(n, parent).await;
    }
    for (n, of) in [(0, Some(above)), (1, Some(beside)), (2, Some(child)), (3, None)] {
        billed.key(n, of).await;
        billed.bill(key(n), None).await;
    }
    for parent in [Some(beside), None] {
        billed.set_parent(child, parent).await;
        billed.bill(key(2), None).await;
    }
    let top = parts(&billed, SpendBy::TopGroup, 0, Depth::PAGE).await;
    let of = |part: Option<_>| requests(&top, &SpendPart::Group(part));
    assert_eq!((of(Some(above)), of(Some(beside)), of(Some(child)), of(None)), (2, 2, 1, 1));
    assert_eq!(all(&top), 6, "no bill counts twice");
}

#[tokio::test]
async fn sums_by_upstream_are_those_of_the_latest_bills_and_the_rest_is_one_part() {
    let mut billed = Billed::open().await;
    billed.key(0, None).await;
    for _ in 0..5 {
        billed.bill(key(0), None).await;
    }
    let whole = parts(&billed, SpendBy::Upstream, 0, Depth::PAGE).await;
    assert_eq!(whole.keys().collect::<Vec<_>>(), [&SpendPart::Upstream(None)]);
    assert_eq!(all(&whole), 5);
    let few = parts(&billed, SpendBy::Upstream, 0, Depth { bills: 2, ..Depth::PAGE }).await;
    assert_eq!((requests(&few, &SpendPart::Upstream(None)), requests(&few, &SpendPart::OtherBills)), (2, 3));
}

#[tokio::test]
async fn a_key_that_spends_many_times_its_usual_is_found() {
    let mut billed = Billed::open().await;
    billed.key(0, None).await;
    billed.key(1, None).await;
    for hour in 0..8 {
        billed.office.clock.set(&format!("2026-11-20T{:02}:30:00Z", 3 + hour));
        billed.bill(key(0), None).await;
        billed.bill(key(1), None).await;
    }
    billed.office.clock.set("2026-11-21T09:10:00Z");
    billed.bill(key(1), None).await;
    let jumps = async |billed: &Billed| billed.office.management.spend_jumps(billed.account).await.unwrap();
    assert_eq!(jumps(&billed).await, [], "nothing unusual");
    for _ in 0..30 {
        billed.bill(key(0), None).await;
    }
    let found = jumps(&billed).await;
    assert_eq!(found.iter().map(|of| of.key).collect::<Vec<_>>(), [key(0)]);
    // 30 bills in 70 minutes, where one an hour is usual.
    assert_eq!((found[0].jump.minutes, found[0].jump.times, found[0].jump.spent), (70, Some(25), nanos(150)));
    billed.office.clock.set("2026-11-21T11:00:00Z");
    assert_eq!(jumps(&billed).await, [], "the jump is over");
}

#[tokio::test]
async fn the_sums_of_few_keys_are_those_of_all_or_none() {
    let billed = with_a_new_key(60).await;
    let (store, today) = (&billed.office.store, billed.office.management.today());
    let days = today.plus(-3)..=today;
    let lines = store.usage(billed.account, days.clone(), None).await.unwrap();
    for (most, has_all) in [(0, false), (10, false), (59, false), (60, true), (10_000, true)] {
        let few = store.usage_of_few(billed.account, days.clone(), most).await.unwrap();
        assert_eq!(few, has_all.then(|| lines.clone()), "at most {most}");
    }
}

#[tokio::test]
async fn keys_in_trouble_are_as_many_on_the_first_page_in_a_group_and_in_the_list() {
    let mut billed = Billed::open().await;
    let account = billed.account;
    billed.group(0, None).await;
    for n in 0..53 {
        let mut new = new_key(account, n);
        new.key.spend.group = Some(group(0)).filter(|_| n < 45);
        new.key.spend.budget.limit = Some(nanos(5)).filter(|_| n < 51);
        billed.office.store.create_key(new, None, &act(billed.office.management.now())).await.unwrap();
        if n < 51 {
            billed.bill(key(n), None).await;
        }
    }
    let (store, management) = (&billed.office.store, &billed.office.management);
    store.revoke_key(account, key(51), &act(management.now())).await.unwrap();
    let hour = Hour::of(management.now());
    let line = RefusedLine { key: key(51), hour, reason: "invalid_api_key", count: 4 };
    store.add_refused(account, vec![line]).await.unwrap();

    let whole = AccountReach::whole(account);
    let trouble = management.trouble(whole).await.unwrap();
    assert_eq!((trouble.limited.len(), trouble.ended.len(), trouble.has_all), (51, 1, true));
    assert_eq!(trouble.ended[0].refused, 4);
    let of_group = management.trouble(AccountReach { group: Some(group(0)), ..whole }).await.unwrap();
    assert_eq!((of_group.limited.len(), of_group.has_all, of_group.group), (45, true, Some(group(0))));
    let listed = async |reach, of| {
        let condition = Some(Condition::Trouble);
        let search = KeySearch { condition, group: of, limit: 100, ..KeySearch::default() };
        let found = management.find_keys(reach, &search).await.unwrap().found;
        found.into_iter().map(|key| key.id).collect::<HashSet<KeyId>>()
    };
    assert_eq!(listed(whole, None).await, (0..52).map(key).collect());
    assert_eq!(listed(whole, Some(group(0))).await, (0..45).map(key).collect());

    // With many keys, `trouble` does not check all of them, and reports that it has not.
    for n in 53..=255 {
        billed.key(n, None).await;
    }
    let mut new = new_key(account, 0);
    for n in 0..100_u8 {
        new.key.id = KeyId::new(management.now(), [9, 9, 9, 9, 9, 9, 9, 9, 9, n]);
        new.digest = domain::digest::Digest::of(&[n, 9]);
        store.create_key(new.clone(), None, &act(management.now())).await.unwrap();
    }
    let trouble = management.trouble(whole).await.unwrap();
    assert_eq!((trouble.has_all, trouble.ended.len()), (false, 1));
    assert!(trouble.limited.len() <= 51, "{trouble:?}");
    let of_group = management.trouble(AccountReach { group: Some(group(0)), ..whole }).await.unwrap();
    assert_eq!(
        (of_group.limited.len(), of_group.has_all),
        (45, true),
        "a group with few keys is checked completely"
    );
}
