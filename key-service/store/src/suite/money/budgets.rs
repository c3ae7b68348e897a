//! Cases about budgets of groups, windows and rates, with many concurrent callers.

use std::{sync::Arc, time::Duration};

use shared::{
    calendar::Per,
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    rates::{RateBound, TokenRoom},
    time::Timestamp,
    tokens::Usage,
    wire::Limit,
};

use crate::{
    store::{Ledger as _, Store},
    suite::{
        Subject, act, after, capture, execute_one, hold, make_key, nanos,
        nouns::groups::{make_bounded, make_key_in, to},
        open_account_with, spend, tick,
    },
};
use domain::{
    group::GroupPatch,
    key::KeyPatch,
    ledger::{
        BoundsPatch, Command, Holder, IN_FLIGHT, Level, NewHold, Outcome, Progress, Refused,
        histories::{KEY_LIMIT_REACHED, START, generation, key, new_hold},
    },
    usage::Day,
};

/// Number of keys in a group.
const KEYS: u8 = 20;
/// Number of concurrent requests.
const REQUESTS: u16 = 400;

fn limit(amount: i64) -> BoundsPatch {
    BoundsPatch { limit: Some(Some(nanos(amount))), ..BoundsPatch::default() }
}

fn windows(windows: &[(Per, i64)]) -> BoundsPatch {
    let windows = windows.iter().map(|(per, amount)| Limit::new(nanos(*amount), *per)).collect();
    BoundsPatch { windows: Some(windows), ..BoundsPatch::default() }
}

fn requests(per_minute: u64) -> BoundsPatch {
    BoundsPatch { requests_per_minute: Some(Some(per_minute)), ..BoundsPatch::default() }
}

async fn bound_key(store: &Store, account: AccountId, key: KeyId, bounds: BoundsPatch) {
    let patch = KeyPatch { bounds, ..KeyPatch::default() };
    store.update_key(account, key, patch, &act(START)).await.unwrap();
}

async fn bound_group(store: &Store, account: AccountId, group: GroupId, bounds: BoundsPatch) {
    let patch = GroupPatch { bounds, ..GroupPatch::default() };
    store.update_group(account, group, patch, &act(START)).await.unwrap();
}

/// Reads how much a group has used and how much is held.
async fn sums(store: &Store, account: AccountId, group: GroupId) -> (NanoUsd, NanoUsd) {
    let budget = store.group(account, group).await.unwrap().unwrap().spend.budget;
    (budget.used, budget.held)
}

async fn at(store: &Store, account: AccountId, command: Command, now: Timestamp) -> Result<Outcome, Refused> {
    store.execute(account, vec![command], now).await.unwrap().remove(0)
}

/// Returns the id of a numbered request.
fn request(n: u16) -> GenerationId {
    GenerationId::new(after(n.into()), [9; 10])
}

fn reached(level: Level) -> Result<Outcome, Refused> {
    Err(Refused::LimitReached { level, resets_at: None })
}

/// Requests with a group's keys hold and capture money until the limit of one level is used up. The sums of each level
/// must be exact.
pub(crate) async fn no_level_is_passed_by_many_at_once(subject: &mut impl Subject) {
    // Limits of each key, of the group and of its parent, and the level that is used up first.
    let cases = [
        (100, 30_000, 40_000, Level::Key),
        (1_000, 1_500, 3_000, Level::Group),
        (1_000, 3_000, 700, Level::Parent),
    ];
    for (n, (of_key, of_group, of_parent, level)) in (1..).zip(cases) {
        let store = subject.store();
        let account = open_account_with(store, n, 1_000_000).await;
        let parent = make_bounded(store, account, 1, None, &limit(of_parent)).await;
        let group = make_bounded(store, account, 2, Some(1), &windows(&[(Per::Month, of_group)])).await;
        for k in 0..KEYS {
            make_key_in(store, account, k, group).await;
            bound_key(store, account, key(k), limit(of_key)).await;
        }
        let callers = (0..REQUESTS).map(|n| {
            let (store, key) = (Arc::clone(store), key((n % u16::from(KEYS)).try_into().unwrap()));
            tokio::spawn(async move {
                loop {
                    match execute_one(&store, account, hold(key, request(n), 10, 7)).await {
                        Ok(_) => return execute_one(&store, account, capture(key, request(n), 10)).await,
                        Err(Refused::Reserved) => tokio::task::yield_now().await,
                        refused => return refused,
                    }
                }
            })
        });
        let (mut billed, mut refusals) = (0, Vec::new());
        for caller in callers.collect::<Vec<_>>() {
            match caller.await.unwrap() {
                Ok(Outcome::Captured(settlement)) => billed += settlement.charged.nanos(),
                Err(Refused::LimitReached { level, .. }) => refusals.push(level),
                other => panic!("{other:?}"),
            }
        }
        let expected = of_group.min(of_parent).min(of_key * i64::from(KEYS));
        assert_eq!(billed, expected);
        assert!(!refusals.is_empty() && refusals.iter().all(|refused| *refused == level), "{refusals:?}");
        for of in [group, parent] {
            assert_eq!(sums(subject.store(), account, of).await, (nanos(expected), nanos(0)));
        }
        assert_eq!(subject.store().audit(account).await.unwrap().unwrap().wrong, []);
    }
}

pub(crate) async fn refusals_come_whole(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let parent = make_bounded(store, account, 1, None, &BoundsPatch::default()).await;
    let group = make_bounded(store, account, 2, Some(1), &BoundsPatch::default()).await;
    make_key_in(store, account, 1, group).await;
    let check = Command::Check { key: key(1), credential: 0 };
    let midnight = Per::Day.end(START);
    bound_group(store, account, parent, windows(&[(Per::Day, 100), (Per::Hour, 200)])).await;
    let (mine, long) = (key(1), generation(1));
    store.execute(account, vec![hold(mine, long, 100, 7), capture(mine, long, 100)], START).await.unwrap();
    subject.interrupt().await;
    let store = &**subject.store();
    let of_parent = Err(Refused::LimitReached { level: Level::Parent, resets_at: Some(midnight) });
    assert_eq!(execute_one(store, account, check.clone()).await, of_parent);
    assert_eq!(at(store, account, check.clone(), midnight).await, Ok(Outcome::Allowed { models: None }));
    bound_group(store, account, group, limit(100)).await;
    assert_eq!(execute_one(store, account, check.clone()).await, reached(Level::Group));
    bound_key(store, account, mine, limit(0)).await;
    assert_eq!(execute_one(store, account, check.clone()).await, Err(KEY_LIMIT_REACHED));
    bound_key(store, account, mine, BoundsPatch { limit: Some(None), ..requests(7) }).await;
    bound_group(store, account, group, BoundsPatch { limit: Some(None), ..BoundsPatch::default() }).await;
    let models = |models: &[&str]| {
        let models = models.iter().map(ToString::to_string).collect();
        BoundsPatch { models: Some(Some(models)), ..BoundsPatch::default() }
    };
    bound_key(store, account, mine, models(&["Model Max", "Zoë’s model", "Model Flash"])).await;
    bound_group(store, account, parent, models(&["Model Mini", "Zoë’s model", "Model Max"])).await;
    let refused = at(store, account, hold(mine, generation(2), 1, 7), midnight).await;
    let both = vec!["Model Max".to_owned(), "Zoë’s model".to_owned()];
    assert_eq!(refused, Err(Refused::ModelNotAllowed { models: both }));
    store.archive_group(account, parent, &act(START)).await.unwrap();
    assert_eq!(execute_one(store, account, check).await, Err(Refused::GroupArchived));
}

pub(crate) async fn a_window_turns_between_two_commands(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100_000).await;
    let all = windows(&[(Per::Hour, 100), (Per::Day, 250), (Per::Week, 600), (Per::Month, 650)]);
    let group = make_bounded(store, account, 1, None, &all).await;
    make_key_in(store, account, 1, group).await;
    bound_key(store, account, key(1), windows(&[(Per::Hour, 80)])).await;
    let mut expected = store.group(account, group).await.unwrap().unwrap().spend.budget;
    let mut now = START;
    // Each bill arrives at the end of a window, or 40 s before it.
    let turns = [Per::Hour, Per::Hour, Per::Day, Per::Hour, Per::Week, Per::Month, Per::Day];
    for (n, per) in (1..).zip(turns) {
        let store = subject.store();
        now = per.end(now);
        let before = now.minus(Duration::from_secs(40));
        let (held, captured) = (hold(key(1), generation(n), 10, 7), capture(key(1), generation(n), 10));
        store.execute(account, vec![held], before).await.unwrap();
        store.execute(account, vec![captured], now).await.unwrap();
        // A bill with the time of a slow clock counts in the window that has already begun.
        let late = vec![hold(key(1), generation(n + 100), 1, 7), capture(key(1), generation(n + 100), 1)];
        store.execute(account, late, before).await.unwrap();
        subject.interrupt().await;
        let bounds = expected.bounds.as_mut().unwrap();
        for window in &mut bounds.windows {
            *window = window.at(now);
            window.used = window.used.checked_add(nanos(11)).unwrap();
        }
        let budget = subject.store().group(account, group).await.unwrap().unwrap().spend.budget;
        assert_eq!(budget.bounds, expected.bounds, "{per:?}");
    }
    let refused = at(subject.store(), account, hold(key(1), generation(99), 70, 7), now).await;
    let resets_at = Some(Per::Hour.end(now));
    assert_eq!(refused, Err(Refused::LimitReached { level: Level::Key, resets_at }));
    assert_eq!(subject.store().audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn a_reached_limit_is_told_until_it_is_raised_or_its_window_ends(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let group = make_bounded(store, account, 1, None, &limit(90)).await;
    make_key_in(store, account, 1, group).await;
    bound_key(
        store,
        account,
        key(1),
        BoundsPatch { limit: Some(Some(nanos(500))), ..windows(&[(Per::Day, 60)]) },
    )
    .await;
    let spent = vec![hold(key(1), generation(1), 50, 7), capture(key(1), generation(1), 50)];
    store.execute(account, spent, START).await.unwrap();
    subject.interrupt().await;
    let store = &**subject.store();
    let (of_key, of_group) = (Holder::Key(key(1), None), Holder::Group(group));
    let window = async |at| {
        let budget = store.key(account, key(1)).await.unwrap().unwrap().spend.budget;
        of_key.name_of_reached_window(&budget.bounds.unwrap().windows[0], at)
    };
    let told = async |at| {
        let names = vec![
            window(at).await,
            of_key.name_of_reached_limit(nanos(500)),
            of_group.name_of_reached_limit(nanos(90)),
        ];
        store.are_told(account, names).await.unwrap()
    };
    assert_eq!(told(START).await, [false; 3]);
    at(store, account, hold(key(1), generation(2), 20, 7), START).await.unwrap_err();
    assert_eq!(told(START).await, [true, false, false], "the day has ten left, too little for the request");
    assert_eq!(told(Per::Day.end(START)).await, [false; 3], "the next day has a new window");
    bound_key(store, account, key(1), windows(&[(Per::Day, 200)])).await;
    assert_eq!(told(START).await, [false; 3], "the limit was raised");
    assert_eq!(at(store, account, hold(key(1), generation(3), 45, 7), START).await, reached(Level::Group));
    assert_eq!(told(START).await, [false, false, true]);
    assert_eq!(store.are_told(account, Vec::new()).await.unwrap(), [false; 0]);
}

pub(crate) async fn a_rate_admits_exactly_its_number_at_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000_000).await;
    let group = make_bounded(store, account, 1, None, &requests(50)).await;
    for k in 0..KEYS {
        make_key_in(store, account, k, group).await;
    }
    for minute in 0..3 {
        let now = START.plus(Duration::from_mins(minute));
        let callers = (0..REQUESTS).map(|n| {
            let (store, key) = (Arc::clone(subject.store()), key((n % u16::from(KEYS)).try_into().unwrap()));
            let generation = GenerationId::new(now.plus(Duration::from_millis(n.into())), [8; 10]);
            tokio::spawn(async move { at(&store, account, hold(key, generation, 1, 99), now).await })
        });
        let mut admitted = 0;
        for caller in callers.collect::<Vec<_>>() {
            match caller.await.unwrap() {
                Ok(Outcome::Held { rates, .. }) => {
                    assert_eq!(rates.requests.unwrap().limit, 50);
                    admitted += 1;
                }
                Err(Refused::RateLimited { bound, retry_after, .. }) => {
                    let wait = Duration::from_millis(1_200);
                    assert_eq!((bound, retry_after), (RateBound::Requests, wait));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(admitted, 50, "minute {minute}");
    }
}

pub(crate) async fn requests_in_flight_are_free_again_when_they_end(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let most = BoundsPatch { max_in_flight: Some(Some(3)), ..BoundsPatch::default() };
    let group = make_bounded(store, account, 1, None, &most).await;
    make_key_in(store, account, 1, group).await;
    make_key_in(store, account, 2, group).await;
    let (first, second) = (key(1), key(2));
    let at_once = vec![
        hold(first, generation(1), 1, 1),
        hold(second, generation(2), 1, 1),
        hold(first, generation(3), 1, 1),
    ];
    store.execute(account, at_once, START).await.unwrap();
    let full = Err(IN_FLIGHT);
    assert_eq!(execute_one(store, account, hold(second, generation(4), 1, 1)).await, full);
    // When a key leaves a group, its requests in flight still count in the group.
    to(store, account, first, None).await.unwrap();
    assert_eq!(execute_one(store, account, hold(second, generation(4), 1, 1)).await, full);
    tick(store, account, 1).await;
    subject.interrupt().await;
    let store = &**subject.store();
    let ends = vec![
        Command::Expire { key: first, generation: generation(1) },
        Command::Release { key: second, generation: generation(2) },
        capture(first, generation(3), 1),
    ];
    store.execute(account, ends.clone(), START).await.unwrap();
    store.execute(account, ends, START).await.unwrap();
    let in_flight =
        async || store.group(account, group).await.unwrap().unwrap().spend.budget.bounds.unwrap().in_flight;
    assert_eq!(in_flight().await, 0);
    for n in 4..7 {
        assert!(execute_one(store, account, hold(second, generation(n), 1, 1)).await.is_ok(), "{n}");
    }
    assert_eq!(execute_one(store, account, hold(second, generation(7), 1, 1)).await, full);
}

pub(crate) async fn a_readmitted_request_counts_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let group = make_bounded(store, account, 1, None, &requests(1)).await;
    make_key_in(store, account, 1, group).await;
    let ask =
        |n, readmitted| Command::Hold(NewHold { readmitted, ..new_hold(key(1), generation(n), nanos(1)) });
    let left = |outcome| match outcome {
        Ok(Outcome::Held { rates, .. }) => rates.requests.unwrap().remaining,
        other => panic!("{other:?}"),
    };
    assert_eq!(left(execute_one(store, account, ask(1, false)).await), 0);
    let release = Command::Release { key: key(1), generation: generation(1) };
    execute_one(store, account, release).await.unwrap();
    subject.interrupt().await;
    let store = &**subject.store();
    let wait = Duration::from_mins(1);
    let limited =
        Err(Refused::RateLimited { bound: RateBound::Requests, retry_after: wait, token_room: None });
    assert_eq!(execute_one(store, account, ask(2, false)).await, limited);
    assert_eq!(left(execute_one(store, account, ask(2, true)).await), 0);
    let later = START.plus(wait);
    assert_eq!(left(at(store, account, ask(3, false), later).await), 0, "a minute later, one more");
}

pub(crate) async fn tokens_count_by_their_bound_until_they_are_known(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    make_key(store, account, 1, None).await;
    let bound = BoundsPatch { tokens_per_minute: Some(Some(1_000)), ..BoundsPatch::default() };
    bound_key(store, account, key(1), bound).await;
    let with = |n, prompt_tokens| {
        Command::Hold(NewHold { prompt_tokens, ..new_hold(key(1), generation(n), nanos(1)) })
    };
    let total = |prompt, completion| Progress {
        usage: Usage::of(prompt, 0, completion),
        cost: nanos(1),
        upstream_cost: None,
        course: None,
    };
    let left = async |store: &Store| {
        let bounds = spend(store, account, key(1)).await.budget.bounds.unwrap();
        bounds.tokens_per_minute.unwrap().status(START).remaining
    };
    execute_one(store, account, with(1, 900)).await.unwrap();
    let wait = Duration::from_secs(6);
    assert_eq!(
        execute_one(store, account, with(2, 200)).await,
        Err(Refused::RateLimited {
            bound: RateBound::Tokens,
            retry_after: wait,
            token_room: Some(TokenRoom { limit: 1_000, remaining: 100 }),
        })
    );
    subject.interrupt().await;
    let store = &**subject.store();
    let capture = Command::Capture {
        key: key(1),
        generation: generation(1),
        model: "Model Flash".into(),
        total: total(100, 200),
        chargeable: None,
        estimated: false,
    };
    execute_one(store, account, capture).await.unwrap();
    assert_eq!(left(store).await, 700);
    execute_one(store, account, with(2, 200)).await.unwrap();
    let (key, generation) = (key(1), generation(2));
    let progress = total(100, 1_900);
    let extend = Command::Extend { key, generation, most: nanos(1), progress, lease_ticks: 7 };
    execute_one(store, account, extend).await.unwrap();
    assert_eq!(left(store).await, 0);
    execute_one(store, account, Command::Release { key, generation }).await.unwrap();
    assert_eq!(left(store).await, 700);
}

pub(crate) async fn history_stays_with_the_groups_that_paid(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let parent = make_bounded(store, account, 1, None, &BoundsPatch::default()).await;
    let (from, later) = (
        make_bounded(store, account, 2, Some(1), &BoundsPatch::default()).await,
        make_bounded(store, account, 3, None, &BoundsPatch::default()).await,
    );
    make_key_in(store, account, 1, from).await;
    let key = key(1);
    store
        .execute(account, vec![hold(key, generation(1), 100, 7), hold(key, generation(2), 50, 1)], START)
        .await
        .unwrap();
    to(store, account, key, Some(later)).await.unwrap();
    store
        .execute(account, vec![hold(key, generation(3), 10, 7), capture(key, generation(3), 10)], START)
        .await
        .unwrap();
    subject.interrupt().await;
    let store = &**subject.store();
    assert_eq!(sums(store, account, from).await, (nanos(0), nanos(150)));
    tick(store, account, 1).await;
    let expire = Command::Expire { key, generation: generation(2) };
    store.execute(account, vec![capture(key, generation(1), 70), expire], START).await.unwrap();
    // The late capture of an expired generation is billed to the same groups.
    execute_one(store, account, capture(key, generation(2), 20)).await.unwrap();
    for group in [from, parent] {
        assert_eq!(sums(store, account, group).await, (nanos(90), nanos(0)));
    }
    assert_eq!(sums(store, account, later).await, (nanos(10), nanos(0)));
    let entries = store.journal(account, 0, 9).await.unwrap().entries;
    let groups: Vec<_> = entries.iter().map(|entry| entry.entry.settlement.payer.groups).collect();
    let before = [Some(from), Some(parent)];
    assert_eq!(groups, [[Some(later), None], before, before, before]);
    let lines = store.usage(account, Day::of(START)..=Day::of(START), None).await.unwrap();
    let payers: Vec<_> = lines.iter().map(|line| (line.payer.groups, line.counts.of.charged)).collect();
    let mut expected = [(before, nanos(90)), ([Some(later), None], nanos(10))];
    expected.sort();
    assert_eq!(payers, expected);
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}
