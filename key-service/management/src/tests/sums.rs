//! Tests sums of groups and users: which of them callers can reach, and what the sums omit.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    generation::{ModelApi, Origin},
    ids::{AccountId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    nouns::reach::AccountReach,
    reports::{
        local_days::LocalDays,
        spend::{ChartStep, SpendBy, SpendPart, SpendParts, SpendSearch},
        top::Depth,
        usage::{Grouping, UsageSearch, UserPart},
    },
    testing::Office,
};
use domain::{
    group::GroupPatch,
    ledger::{
        Command, NewHold,
        histories::{group, key, new_hold},
    },
    search::EntrySearch,
    usage::{Day, Hour, LocalHours, Sums},
};
use key_service_store::store::{
    Ledger as _,
    suite::{act, capture, nanos, new_group, new_key},
};

/// Number of users on a day: more than are counted separately.
const USERS: u32 = 600;

/// An account whose keys are billed.
pub(super) struct Billed {
    pub(super) office: Office,
    pub(super) account: AccountId,
    bills: u32,
}

impl Billed {
    pub(super) async fn open() -> Self {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        Self { office, account, bills: 0 }
    }

    pub(super) async fn group(&self, n: u8, parent: Option<GroupId>) {
        let mut new = new_group(self.account, n);
        new.group.spend.parent = parent;
        self.office.store.create_group(new, None, &act(self.office.management.now())).await.unwrap();
    }

    pub(super) async fn key(&self, n: u8, group: Option<GroupId>) {
        let mut new = new_key(self.account, n);
        new.key.spend.group = group;
        self.office.store.create_key(new, None, &act(self.office.management.now())).await.unwrap();
    }

    pub(super) async fn bill(&mut self, key: KeyId, user: Option<String>) {
        self.bills += 1;
        let mut chance = [0; 10];
        chance[..4].copy_from_slice(&self.bills.to_be_bytes());
        let now = self.office.management.now();
        let generation = GenerationId::new(now, chance);
        let origin =
            user.map(|user| Origin { api: ModelApi::Chat, stream: false, user: Some(user), request: None });
        let new = new_hold(key, generation, nanos(5));
        let hold = Command::Hold(NewHold { origin: origin.map(Arc::new), ..new });
        let outcomes = self
            .office
            .store
            .execute(self.account, vec![hold, capture(key, generation, 5)], now)
            .await
            .unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }

    pub(super) async fn set_parent(&self, id: GroupId, parent: Option<GroupId>) {
        let patch = GroupPatch { parent: Some(parent), ..GroupPatch::default() };
        let at = act(self.office.management.now());
        self.office.store.update_group(self.account, id, patch, &at).await.unwrap();
    }
}

fn requests(parts: &SpendParts) -> u64 {
    parts.values().flat_map(|times| times.values()).map(|sums| sums.requests).sum()
}

#[tokio::test]
async fn sums_of_a_group_are_those_of_the_lines_that_are_reached_wherever_the_group_was() {
    let mut billed = Billed::open().await;
    let [above, beside, child, outside] = [0, 1, 2, 3].map(group);
    for (n, parent) in [(0, None), (1, None), (2, Some(above)), (3, None)] {
        billed.group(n, parent).await;
    }
    for (n, of) in [(0, Some(above)), (1, Some(beside)), (2, Some(child)), (3, Some(outside)), (4, None)] {
        billed.key(n, of).await;
        billed.bill(key(n), None).await;
    }
    for parent in [Some(beside), None, Some(above)] {
        billed.set_parent(child, parent).await;
        billed.bill(key(2), None).await;
    }
    let (management, account) = (&billed.office.management, billed.account);
    let today = management.today();
    let days = today.plus(-1)..=today;
    let mut reached = Vec::new();
    for within in [None, Some(above), Some(beside), Some(child), Some(outside)] {
        let reach = AccountReach { account, group: within };
        for id in [above, beside, child, outside] {
            let by = BTreeSet::new();
            let search =
                UsageSearch { days: days.clone(), key: None, group: Some(id), within, by, top: None };
            let lines = management.sums_of_usage(account, &search).await.unwrap();
            let of_lines = lines.first().map_or_else(Sums::default, |(_, counts)| Sums::from(*counts));
            for (by, step) in [
                (SpendBy::Model, ChartStep::Day),
                (SpendBy::Model, ChartStep::Hour),
                (SpendBy::Key, ChartStep::Day),
                (SpendBy::Key, ChartStep::Hour),
            ] {
                let search =
                    SpendSearch { range: LocalDays::utc(days.clone()), by, step, depth: Depth::PAGE };
                let parts = management.spend_of_group(reach, id, search).await.unwrap();
                assert_eq!(requests(&parts), of_lines.requests, "{id} within {within:?} by {by:?}");
            }
            let search = EntrySearch { group: Some(id), ..EntrySearch::default() };
            let entries = management.sums_of_entries(reach, &search).await.unwrap().unwrap();
            assert_eq!(entries.sums, of_lines, "{id} within {within:?}");
            reached.push(of_lines.requests);
        }
    }
    let expected = [[3, 2, 4, 1], [3, 0, 2, 0], [0, 2, 1, 0], [2, 1, 4, 0], [0, 0, 0, 1]];
    assert_eq!(reached, expected.concat());
}

#[tokio::test]
async fn the_users_of_a_day_that_are_too_many_are_summed_up_together_and_nobody_reads_a_part_as_the_whole() {
    let mut billed = Billed::open().await;
    billed.key(0, None).await;
    for n in 0..USERS {
        billed.bill(key(0), Some(format!("user-{n}"))).await;
    }
    billed.bill(key(0), None).await;
    billed.bill(key(0), Some("user-0".into())).await;
    let (management, account) = (&billed.office.management, billed.account);
    let days = management.today()..=management.today();
    let whole = AccountReach::whole(account);

    let (by, step, depth) = (SpendBy::User, ChartStep::Day, Depth::PAGE);
    let search = SpendSearch { range: LocalDays::utc(days.clone()), by, step, depth };
    let parts = management.spend_parts(account, search).await.unwrap();
    let of =
        |part: &SpendPart| parts.get(part).map_or(0, |times| times.values().map(|sums| sums.requests).sum());
    let named = parts.keys().filter(|part| matches!(part, SpendPart::User(Some(_)))).count() as u64;
    assert_eq!((named, of(&SpendPart::OtherUsers)), (256, u64::from(USERS) - 256));
    assert_eq!((of(&SpendPart::User(None)), of(&SpendPart::User(Some("user-0".into())))), (1, 2));

    let sums = async |user: &str, reach: AccountReach, key: Option<KeyId>| {
        let search = EntrySearch { user: Some(user.to_owned()), key, ..EntrySearch::default() };
        management.sums_of_entries(reach, &search).await.unwrap().map(|sums| sums.sums.requests)
    };
    assert_eq!(sums("user-0", whole, None).await, Some(2));
    assert_eq!(sums(&format!("user-{}", USERS - 1), whole, None).await, None, "counted among others");
    assert_eq!(sums("user-0", whole, Some(key(0))).await, None);
    assert_eq!(sums("user-0", AccountReach { account, group: Some(group(0)) }, None).await, None);

    let by = BTreeSet::from([Grouping::User]);
    let search = UsageSearch { days, key: None, group: None, within: None, by, top: None };
    let all = management.sums_of_usage(account, &search).await.unwrap();
    assert_eq!(all.iter().map(|(_, counts)| counts.requests).sum::<u64>(), u64::from(USERS) + 2);
    let of =
        |part: UserPart| all.iter().find(|(parts, _)| parts.user.as_ref() == Some(&part)).unwrap().1.requests;
    assert_eq!((of(UserPart::Others), of(UserPart::Unnamed)), (u64::from(USERS) - 256, 1));
    let of_less = [
        UsageSearch { key: Some(key(0)), ..search.clone() },
        UsageSearch { group: Some(group(0)), ..search.clone() },
        UsageSearch { within: Some(group(0)), ..search.clone() },
        UsageSearch { by: BTreeSet::from([Grouping::User, Grouping::Model]), ..search.clone() },
    ];
    for search in of_less {
        assert!(!search.is_counted(), "{search:?}");
        assert_eq!(management.sums_of_usage(account, &search).await.unwrap(), [], "{search:?}");
    }
}

#[tokio::test]
async fn a_day_of_another_zone_is_summed_from_its_own_hours() {
    let mut billed = Billed::open().await;
    billed.group(0, None).await;
    billed.key(0, Some(group(0))).await;
    let at = |text: &str| Timestamp::parse(text).unwrap();
    let times =
        ["2026-11-20T22:59:00Z", "2026-11-20T23:01:00Z", "2026-11-21T22:58:00Z", "2026-11-21T23:02:00Z"];
    for time in times {
        billed.office.clock.set(time);
        billed.bill(key(0), None).await;
    }
    let (management, account) = (&billed.office.management, billed.account);
    let (day, reach) = (Day::of(at(times[2])), AccountReach::whole(account));
    let zurich = LocalDays { days: day..=day, hours: LocalHours::new(vec![(Hour(0), 1)]) };
    let search = |by, step| SpendSearch { range: zurich.clone(), by, step, depth: Depth::PAGE };
    for by in [SpendBy::Model, SpendBy::Key, SpendBy::Group, SpendBy::TopGroup, SpendBy::Upstream] {
        for step in [ChartStep::Day, ChartStep::Hour] {
            let parts = management.spend_parts(account, search(by, step)).await.unwrap();
            assert_eq!(requests(&parts), 2, "{by:?} {step:?}: {parts:?}");
            assert!(parts.values().flat_map(|times| times.keys()).all(|hour| hour.day() == day), "{parts:?}");
        }
    }
    let by_hour =
        management.spend_of_key(reach, key(0), search(SpendBy::Model, ChartStep::Hour)).await.unwrap();
    let hours: Vec<u8> = by_hour.values().flat_map(|times| times.keys()).map(|hour| hour.of_day()).collect();
    assert_eq!(hours, [0, 23], "the first and the last hour of the day in Zurich");
    let of_group =
        management.spend_of_group(reach, group(0), search(SpendBy::Model, ChartStep::Day)).await.unwrap();
    let of_keys = management.sums_of_keys(account, &zurich, &[key(0)]).await.unwrap();
    let charged = management.charged_in_group(reach, group(0), &zurich, &[key(0)]).await.unwrap();
    assert_eq!((requests(&of_group), of_keys[&key(0)].requests), (2, 2));
    assert_eq!(charged[&key(0)], of_keys[&key(0)].charged);
    let (begins, ends) = (Some(at("2026-11-20T23:00:00Z")), Some(at("2026-11-21T23:00:00Z")));
    for (key, group) in [(None, None), (Some(key(0)), None), (None, Some(group(0)))] {
        let search = EntrySearch { begins, ends, key, group, ..EntrySearch::default() };
        let sums = management.sums_of_entries(reach, &search).await.unwrap().unwrap();
        assert_eq!((sums.sums.requests, Some(sums.begins), Some(sums.ends)), (2, begins, ends));
    }
    // It is 23:02 in UTC, so the next day has begun in Zurich.
    let (begins, ends) = (Some(at("2026-11-21T23:00:00Z")), Some(at("2026-11-22T23:00:00Z")));
    let search = EntrySearch { begins, ends, ..EntrySearch::default() };
    let sums = management.sums_of_entries(reach, &search).await.unwrap().unwrap();
    assert_eq!((sums.sums.requests, Some(sums.begins), Some(sums.ends)), (1, begins, ends));
    let search = EntrySearch { user: Some("u-1".into()), ..search };
    let sums = management.sums_of_entries(reach, &search).await.unwrap().unwrap();
    assert_eq!(sums.ends, at("2026-11-22T00:00:00Z"), "users are counted by days in UTC");
}
