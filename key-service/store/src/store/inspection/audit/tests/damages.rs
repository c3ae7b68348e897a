//! Plants damage, and checks that each audit finds and locates it.

use domain::{
    audit::{BudgetOwner, Counter, DayPart, SumOwner},
    ledger::{Bounds, Budget, Deposited, Group, Hold, Key, Record as Generation},
    usage::{
        Counts, Day, DayTotal, GroupDay, GroupKeys, GroupPart, Hour, HoursOfDay, Margin, PartCounts, UserDay,
        part_of_user,
    },
};
use key_service_ledger::{
    names::{PayerName, RecordName},
    reading::value,
    stored::{AccountProfile, AccountRecord, Balance, EntryRecord, GroupProfile, KeyProfile, PayersOfKey},
    view::FORM,
};
use minicbor::{Decode, Encode};
use records::{Answer, Index, Log, Name, Order, Question, Record, Revision};

use super::*;
use crate::store::layout;

/// A change to one stored value, made without the ledger.
enum Damage {
    Account(fn(&mut AccountRecord)),
    Key(u8, fn(&mut Balance<Key>)),
    Group(u8, fn(&mut Balance<Group>)),
    Hold(fn(&mut Hold)),
    /// The hold's record cannot be decoded.
    NoHold,
    Deposit(fn(&mut Deposited)),
    PayerSums(fn(&mut DayTotal<Counts>)),
    ModelSums(fn(&mut DayTotal<Margin>)),
    GroupSums(u8, fn(&mut GroupPart)),
    /// Changes the first user and the sum of all others.
    UserSums(fn(&mut PartCounts, &mut PartCounts)),
    Payers(fn(&mut PayersOfKey)),
    AccountProfile(fn(&mut AccountProfile)),
    KeyProfile(u8, fn(&mut KeyProfile)),
    GroupProfile(u8, fn(&mut GroupProfile)),
    /// Changes the journal entry with this number.
    Entry(u64, fn(&mut EntryRecord)),
    /// Removes a record.
    Lost(fn() -> Name),
    /// Removes the first entry of an index.
    Unlisted(Index),
    /// Adds an index entry with the open hold's money for another generation.
    Phantom,
}

/// Returns the limits of a budget.
fn bounds(budget: &mut Budget) -> &mut Bounds {
    budget.bounds.as_mut().unwrap()
}

fn add(amount: &mut NanoUsd, nanos: i64) {
    *amount = NanoUsd::from_nanos(amount.nanos() + nanos);
}

fn a_key(n: u8) -> BudgetOwner {
    BudgetOwner::Key(key(n))
}

fn a_group(n: u8) -> BudgetOwner {
    BudgetOwner::Group(group(n))
}

fn of_key() -> RecordName<Balance<DayTotal<Counts>>> {
    let payer =
        domain::ledger::Payer { key: key(1), model: MODEL.into(), groups: [Some(group(1)), Some(group(0))] };
    names::of_payer(Day::of(START), &PayerName::of(&payer))
}

fn of_model() -> RecordName<Balance<DayTotal<Margin>>> {
    names::of_model(Day::of(START), MODEL)
}

fn of_group() -> RecordName<Balance<GroupDay>> {
    names::of_group(Day::of(START), group(1))
}

fn of_users() -> RecordName<Balance<UserDay>> {
    names::of_users(Day::of(START), part_of_user(USER))
}

/// Changes the only hour of a day.
fn change_hour(hours: &mut HoursOfDay, change: fn(&mut PartCounts)) {
    let mut all: Vec<_> = hours.iter().collect();
    change(&mut all[0].1);
    *hours = HoursOfDay::read(all).unwrap();
}

fn of_hold() -> RecordName<Generation> {
    names::generation(generation(30))
}

async fn read<T: for<'b> Decode<'b, ()>>(records: &Maps, name: &RecordName<T>) -> T {
    let questions = vec![Question::Records(vec![name.clone().into()])];
    let mut answers = records.read(&names::space(account(1)), questions).await.unwrap();
    let Some(Answer::Records(found)) = answers.pop() else { panic!("records were asked for") };
    value(found[0].as_ref().unwrap()).unwrap()
}

async fn changed<T: Encode<()> + for<'b> Decode<'b, ()>>(
    records: &Maps,
    name: RecordName<T>,
    change: impl FnOnce(&mut T),
) -> Vec<Write> {
    let mut value = read(records, &name).await;
    change(&mut value);
    vec![Write::Put(name.into(), Record::of(Revision([7; 8]), FORM, &value))]
}

async fn entry_changed(records: &Maps, number: u64, change: fn(&mut EntryRecord)) -> Vec<Write> {
    let log: Log = names::JOURNAL;
    let all = Question::Values { log, from: 0, to: u64::MAX, order: Order::Ascending, limit: 99 };
    let mut answers = records.read(&names::space(account(1)), vec![all]).await.unwrap();
    let Some(Answer::Values(mut values)) = answers.pop() else { panic!("values were asked for") };
    for (_, value) in values.iter_mut().filter(|(of, _)| *of == number) {
        let mut entry: EntryRecord = shared::stored::read(value).unwrap();
        change(&mut entry);
        *value = shared::stored::write(&entry);
    }
    let values = values.into_iter().map(|(_, value)| value).collect();
    vec![Write::Trim { log, first: u64::MAX }, Write::Append { log, first: 1, values, kept: u64::MAX }]
}

impl Damage {
    async fn plant(self, records: &Maps) {
        let space = names::space(account(1));
        let writes = match self {
            Self::Account(change) => changed(records, names::account(), change).await,
            Self::Key(n, change) => changed(records, names::key(key(n)), change).await,
            Self::Group(n, change) => changed(records, names::group(group(n)), change).await,
            Self::Hold(change) => {
                changed(records, of_hold(), |generation| match generation {
                    Generation::Open(hold) => change(hold),
                    other => panic!("{other:?}"),
                })
                .await
            }
            Self::NoHold => vec![Write::Put(of_hold().into(), Record::new(Revision([7; 8]), FORM, &[0xff]))],
            Self::Deposit(change) => {
                let name = names::deposit(domain::ledger::histories::deposit(0));
                changed(records, name, |deposit| match deposit {
                    Generation::Deposited(deposited) => change(deposited),
                    other => panic!("{other:?}"),
                })
                .await
            }
            Self::PayerSums(change) => {
                changed(records, of_key(), |sums: &mut Balance<_>| change(&mut sums.of)).await
            }
            Self::ModelSums(change) => {
                changed(records, of_model(), |sums: &mut Balance<_>| change(&mut sums.of)).await
            }
            Self::GroupSums(n, change) => {
                let change = |sums: &mut Balance<GroupDay>| {
                    let mut parts: Vec<_> = sums.of.parts().cloned().collect();
                    change(&mut parts[0]);
                    sums.of = GroupDay::read(parts).unwrap();
                };
                changed(records, names::of_group(Day::of(START), group(n)), change).await
            }
            Self::UserSums(change) => {
                let change = |sums: &mut Balance<UserDay>| {
                    let mut named: Vec<_> =
                        sums.of.named().map(|(user, counts)| (user.clone(), counts)).collect();
                    let mut others = sums.of.others();
                    change(&mut named[0].1, &mut others);
                    sums.of = UserDay::of(named, others);
                };
                changed(records, of_users(), change).await
            }
            Self::Payers(change) => changed(records, names::payers(key(1)), change).await,
            Self::AccountProfile(change) => changed(records, layout::account_profile(), change).await,
            Self::KeyProfile(n, change) => changed(records, layout::key_profile(key(n)), change).await,
            Self::GroupProfile(n, change) => changed(records, layout::group_profile(group(n)), change).await,
            Self::Entry(number, change) => entry_changed(records, number, change).await,
            Self::Lost(name) => vec![Write::Remove(name())],
            Self::Unlisted(index) => {
                let (from, order) = (Vec::new(), Order::Ascending);
                let first = Question::Entries { index, from, to: None, order, limit: 1 };
                let mut answers = records.read(&space, vec![first]).await.unwrap();
                let Some(Answer::Entries(mut entries)) = answers.pop() else { panic!("no entries") };
                vec![Write::Leave(index, entries.pop().unwrap())]
            }
            Self::Phantom => {
                let hold = read(records, &of_hold()).await;
                let Generation::Open(hold) = hold else { panic!("the hold is open") };
                vec![Write::Enter(names::DUE, names::due(generation(31), &hold))]
            }
        };
        for write in writes {
            records.commit(&space, Commit { guards: Vec::new(), writes: vec![write] }).await.unwrap();
        }
    }
}

/// Returns the finding of a wrong amount: recorded, and proven.
fn usd(figure: Figure, recorded: i64, proven: i64) -> Wrong {
    Wrong { figure, recorded: Quantity::Usd(nanos(recorded)), proven: Quantity::Usd(nanos(proven)) }
}

/// Returns the finding of a wrong number: recorded, and proven.
fn number(figure: Figure, recorded: u64, proven: u64) -> Wrong {
    Wrong { figure, recorded: Quantity::Count(recorded), proven: Quantity::Count(proven) }
}

fn key_count(counter: Counter, recorded: u64, proven: u64) -> Wrong {
    number(Figure::KeyCount(key(1), Day::of(START), MODEL.into(), counter), recorded, proven)
}

fn model_count(counter: Counter, recorded: u64, proven: u64) -> Wrong {
    number(Figure::ModelCount(Day::of(START), MODEL.into(), counter), recorded, proven)
}

fn part(part: DayPart, counter: Counter) -> Figure {
    Figure::Part(part, Day::of(START), counter)
}

/// Returns the hour of the day in which everything is billed.
fn hour() -> u8 {
    Hour::of(START).of_day()
}

/// Identifies the keys directly in the group, which has always had the same parent.
fn own() -> GroupKeys {
    GroupKeys::Own(Some(group(0)))
}

fn of_group_model(counter: Counter) -> Figure {
    part(DayPart::GroupModel(group(1), MODEL.into(), own()), counter)
}

/// Returns every counter of the group's day twice: recorded where nothing is proven, and missing where it is proven.
fn without_its_parent() -> Vec<Wrong> {
    let of = |keys, recorded: bool| {
        let of_model = DayPart::GroupModel(group(1), MODEL.into(), keys);
        let of_hour = DayPart::GroupHour(group(1), MODEL.into(), keys, hour());
        let usd = |of: &DayPart, counter, n: i64| {
            let (recorded, proven) = if recorded { (n, 0) } else { (0, n) };
            usd(part(of.clone(), counter), recorded, proven)
        };
        let number = |of: &DayPart, counter, n: u64| {
            let (recorded, proven) = if recorded { (n, 0) } else { (0, n) };
            number(part(of.clone(), counter), recorded, proven)
        };
        [
            usd(&of_model, Counter::Charged, 117),
            usd(&of_model, Counter::UpstreamCost, 48),
            usd(&of_model, Counter::ChargedAtKnownCost, 117),
            usd(&of_hour, Counter::Charged, 117),
            number(&of_model, Counter::Requests, 12),
            number(&of_model, Counter::Tokens, 60),
            number(&of_hour, Counter::Requests, 12),
            number(&of_hour, Counter::Prompt, 36),
            number(&of_hour, Counter::Cached, 12),
            number(&of_hour, Counter::Completion, 24),
        ]
    };
    [of(GroupKeys::Own(None), true), of(own(), false)].concat()
}

/// Applies each damage to fresh books and audits them.
async fn find(damages: Vec<(&str, Damage, Vec<Wrong>)>) {
    for (name, damage, mut expected) in damages {
        let records = Arc::new(Maps::default());
        let store = store(&records, None);
        open(&store).await;
        spend(&store).await;
        assert_eq!(audit(&store).await.wrong, [], "before: {name}");
        damage.plant(&records).await;
        // This store has no copies of records yet.
        let mut found = audit(&super::store(&records, None)).await.wrong;
        // `each_field` covers the records and index entries that such damage contradicts.
        found.retain(|wrong| !matches!(wrong.figure, Figure::Stored(_)));
        found.sort_by_key(|wrong| format!("{wrong:?}"));
        expected.sort_by_key(|wrong| format!("{wrong:?}"));
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn damaged_balances_are_found() {
    find(vec![
        ("a key used more", Damage::Key(1, |key| add(&mut key.of.budget.used, 1)), {
            vec![usd(Figure::Used(a_key(1)), 11, 10)]
        }),
        ("a key used less", Damage::Key(1, |key| key.of.budget.used = nanos(0)), {
            vec![usd(Figure::Used(a_key(1)), 0, 10)]
        }),
        ("a key holds more", Damage::Key(3, |key| add(&mut key.of.budget.held, 1)), {
            vec![usd(Figure::BudgetHeld(a_key(3)), 51, 50)]
        }),
        ("a key holds without a hold", Damage::Key(19, |key| key.of.budget.held = nanos(5)), {
            vec![usd(Figure::BudgetHeld(a_key(19)), 5, 0)]
        }),
        ("a key has a request more", Damage::Key(3, |key| bounds(&mut key.of.budget).in_flight += 1), {
            vec![number(Figure::InFlight(a_key(3)), 2, 1)]
        }),
        ("a key has a request less", Damage::Key(3, |key| bounds(&mut key.of.budget).in_flight = 0), {
            vec![number(Figure::InFlight(a_key(3)), 0, 1)]
        }),
        ("a group used more", Damage::Group(0, |group| add(&mut group.of.budget.used, 1)), {
            vec![usd(Figure::Used(a_group(0)), 118, 117)]
        }),
        ("a group holds less", Damage::Group(1, |group| group.of.budget.held = nanos(0)), {
            vec![usd(Figure::BudgetHeld(a_group(1)), 0, 50)]
        }),
        (
            "a group has a request more",
            Damage::Group(0, |group| bounds(&mut group.of.budget).in_flight = 9),
            { vec![number(Figure::InFlight(a_group(0)), 9, 1)] },
        ),
        ("a credit is more", Damage::Account(|account| add(&mut account.money.credit, 1)), {
            vec![usd(Figure::Credit, 9_884, 9_883)]
        }),
        ("an account holds more", Damage::Account(|account| add(&mut account.money.held, 1)), {
            vec![usd(Figure::Held, 51, 50)]
        }),
        ("an account has paid an entry less", Damage::Account(|account| account.entries -= 1), {
            vec![usd(Figure::Credit, 9_883, 9_893)]
        }),
        ("an account has paid an entry more", Damage::Account(|account| account.entries += 1), {
            vec![number(Figure::Entries, 14, 13)]
        }),
        ("a deposit is more", Damage::Deposit(|deposit| add(&mut deposit.amount, 1)), {
            vec![usd(Figure::Credit, 9_883, 9_884)]
        }),
        ("a deposit is lost", Damage::Unlisted(names::DEPOSITED), { vec![usd(Figure::Credit, 9_883, -117)] }),
        ("a key is made with use", Damage::KeyProfile(1, |profile| profile.opening = nanos(1)), {
            vec![usd(Figure::Entry(key(1), 2), 10, 11), usd(Figure::Credit, 9_883, 9_884)]
        }),
        ("a group is made with use", Damage::GroupProfile(1, |profile| profile.opening = nanos(1)), {
            vec![usd(Figure::Used(a_group(1)), 117, 118)]
        }),
        ("an entry says another balance", Damage::Entry(2, |entry| add(&mut entry.used_after, 1)), {
            vec![usd(Figure::Entry(key(1), 2), 11, 10), usd(Figure::Used(a_key(1)), 10, 11), {
                usd(Figure::Credit, 9_883, 9_882)
            }]
        }),
        (
            "a window used less",
            Damage::Key(5, |key| bounds(&mut key.of.budget).windows[0].used = nanos(9)),
            { vec![usd(Figure::Window(a_key(5), Per::Day), 9, 10)] },
        ),
        (
            "a window used more",
            Damage::Key(5, |key| bounds(&mut key.of.budget).windows[0].used = nanos(21)),
            { vec![usd(Figure::Window(a_key(5), Per::Day), 21, 20)] },
        ),
        (
            "a window used without use",
            Damage::Key(19, |key| bounds(&mut key.of.budget).windows[0].used = nanos(1)),
            { vec![usd(Figure::Window(a_key(19), Per::Day), 1, 0)] },
        ),
        (
            "a group's window used less",
            Damage::Group(0, |group| bounds(&mut group.of.budget).windows[0].used = nanos(0)),
            { vec![usd(Figure::Window(a_group(0), Per::Day), 0, 10)] },
        ),
        (
            "a window of an older bound used less",
            Damage::Key(5, |key| {
                let window = &mut bounds(&mut key.of.budget).windows[0];
                (window.start, window.used) = (Per::Day.beginning(START), nanos(19));
            }),
            vec![usd(Figure::Window(a_key(5), Per::Day), 19, 20)],
        ),
    ])
    .await;
}

#[tokio::test]
async fn damaged_numbers_of_entries_are_found() {
    let (of_key, of_group) = (BudgetOwner::Key(key(5)), |n| BudgetOwner::Group(group(n)));
    find(vec![
        ("an entry names another one of its key", Damage::Entry(13, |entry| entry.before.key = 1), {
            vec![number(Figure::Previous(of_key, 13), 1, 6)]
        }),
        ("an entry names none of its group", Damage::Entry(13, |entry| entry.before.groups[0] = 0), {
            vec![number(Figure::Previous(of_group(1), 13), 0, 12)]
        }),
        ("an entry names another one of its parent", Damage::Entry(2, |entry| entry.before.groups[1] = 2), {
            vec![number(Figure::Previous(of_group(0), 2), 2, 1)]
        }),
        ("a key without entries names one", Damage::Key(19, |key| key.last_entry = 4), {
            vec![number(Figure::Last(BudgetOwner::Key(key(19))), 4, 0)]
        }),
        ("a group names an entry that there is not", Damage::Group(0, |group| group.last_entry = 14), {
            vec![number(Figure::Last(of_group(0)), 14, 13)]
        }),
    ])
    .await;
}

#[tokio::test]
async fn damaged_holds_are_found() {
    let of_all = |nanos, in_flight| {
        vec![
            usd(Figure::Held, 50, nanos),
            usd(Figure::BudgetHeld(a_key(3)), 50, nanos),
            usd(Figure::BudgetHeld(a_group(0)), 50, nanos),
            usd(Figure::BudgetHeld(a_group(1)), 50, nanos),
            number(Figure::InFlight(a_key(3)), 1, in_flight),
            number(Figure::InFlight(a_group(0)), 1, in_flight),
            number(Figure::InFlight(a_group(1)), 1, in_flight),
        ]
    };
    let with = |wrong: Wrong, mut of_all: Vec<Wrong>| {
        of_all.push(wrong);
        of_all
    };
    let hold = |recorded, listed| usd(Figure::Hold(generation(30)), recorded, listed);
    find(vec![
        ("a hold is of more", Damage::Hold(|hold| add(&mut hold.amount, 1)), { vec![hold(51, 50)] }),
        ("a hold expires later", Damage::Hold(|hold| hold.lease_until += 1), {
            vec![number(Figure::HoldLease(generation(30)), 10, 9)]
        }),
        ("a hold counts nowhere", Damage::Hold(|hold| hold.counted.levels = [false; 3]), {
            vec![hold(50, 0)]
        }),
        ("a hold is of another key", Damage::Hold(|hold| hold.payer.key = key(99)), { vec![hold(50, 0)] }),
        ("a hold is of no group", Damage::Hold(|hold| hold.payer.groups[0] = None), { vec![hold(50, 0)] }),
        ("a hold cannot be read", Damage::NoHold, { vec![hold(0, 50)] }),
        ("a hold is lost", Damage::Lost(|| of_hold().into()), vec![hold(0, 50)]),
        ("a hold is not listed", Damage::Unlisted(names::DUE), with(hold(50, 0), of_all(0, 0))),
        ("a hold is listed that is not", Damage::Phantom, {
            with(usd(Figure::Hold(generation(31)), 0, 50), of_all(100, 2))
        }),
    ])
    .await;
}

#[tokio::test]
async fn damaged_sums_are_found() {
    let day = Day::of(START);
    let of_key_usd = |counter| Figure::KeyCount(key(1), day, MODEL.into(), counter);
    find(vec![
        ("a key was charged more", Damage::PayerSums(|sums| add(&mut sums.of.charged, 1)), {
            vec![usd(Figure::Sum(SumOwner::Payer(key(1), MODEL.into()), day), 11, 10)]
        }),
        ("a key had a request more", Damage::PayerSums(|sums| sums.of.requests += 1), {
            vec![key_count(Counter::Requests, 2, 1)]
        }),
        ("a key's prompts", Damage::PayerSums(|sums| sums.of.usage.prompt += 1), {
            vec![key_count(Counter::Prompt, 4, 3)]
        }),
        ("a key's cached tokens", Damage::PayerSums(|sums| sums.of.usage.cached = 0), {
            vec![key_count(Counter::Cached, 0, 1)]
        }),
        ("a key's completions", Damage::PayerSums(|sums| sums.of.usage.completion += 1), {
            vec![key_count(Counter::Completion, 3, 2)]
        }),
        ("a key's images", Damage::PayerSums(|sums| sums.of.usage.details.images = 9), {
            vec![key_count(Counter::Images, 9, 1)]
        }),
        ("a key's reasoning", Damage::PayerSums(|sums| sums.of.usage.details.reasoning = 9), {
            vec![key_count(Counter::Reasoning, 9, 0)]
        }),
        ("a key's upstream cost", Damage::PayerSums(|sums| add(&mut sums.of.upstream_cost, 1)), {
            vec![usd(of_key_usd(Counter::UpstreamCost), 5, 4)]
        }),
        (
            "a key's charges at known cost",
            Damage::PayerSums(|sums| sums.of.charged_at_known_cost = nanos(0)),
            { vec![usd(of_key_usd(Counter::ChargedAtKnownCost), 0, 10)] },
        ),
        ("sums of a key are lost", Damage::Lost(|| of_key().into()), {
            vec![usd(Figure::Sum(SumOwner::Payer(key(1), MODEL.into()), day), 0, 10)]
        }),
        ("a model was charged less", Damage::ModelSums(|sums| add(&mut sums.of.sums.charged, -1)), {
            vec![usd(Figure::Sum(SumOwner::Model(MODEL.into()), day), 116, 117)]
        }),
        ("a model had a request less", Damage::ModelSums(|sums| sums.of.sums.requests -= 1), {
            vec![model_count(Counter::Requests, 11, 12)]
        }),
        ("a model's tokens", Damage::ModelSums(|sums| sums.of.sums.tokens += 1), {
            vec![model_count(Counter::Tokens, 61, 60)]
        }),
        ("sums of a model are lost", Damage::Lost(|| of_model().into()), {
            vec![usd(Figure::Sum(SumOwner::Model(MODEL.into()), day), 0, 117)]
        }),
        ("a group was charged more", Damage::GroupSums(1, |part| add(&mut part.total.of.sums.charged, 1)), {
            vec![
                usd(Figure::Sum(SumOwner::Group(group(1)), day), 118, 117),
                usd(of_group_model(Counter::Charged), 118, 117),
            ]
        }),
        ("a group had a request more", Damage::GroupSums(1, |part| part.total.of.sums.requests += 1), {
            vec![number(of_group_model(Counter::Requests), 13, 12)]
        }),
        ("a group's tokens", Damage::GroupSums(1, |part| part.total.of.sums.tokens = 0), {
            vec![number(of_group_model(Counter::Tokens), 0, 60)]
        }),
        ("a group's upstream cost", Damage::GroupSums(1, |part| part.total.of.upstream_cost = nanos(0)), {
            vec![usd(of_group_model(Counter::UpstreamCost), 0, 48)]
        }),
        (
            "a group's parent",
            Damage::GroupSums(1, |part| part.keys = GroupKeys::Own(None)),
            without_its_parent(),
        ),
        ("a parent had a request more", Damage::GroupSums(0, |part| part.total.of.sums.requests += 1), {
            let below = DayPart::GroupModel(group(0), MODEL.into(), GroupKeys::Below);
            vec![number(part(below, Counter::Requests), 13, 12)]
        }),
        ("sums of a group are lost", Damage::Lost(|| of_group().into()), {
            vec![usd(Figure::Sum(SumOwner::Group(group(1)), day), 0, 117)]
        }),
    ])
    .await;
}

#[tokio::test]
async fn damaged_sums_of_hours_and_users_and_payers_that_are_not_listed_are_found() {
    let day = Day::of(START);
    let of_key_hour = |counter| part(DayPart::KeyHour(key(1), MODEL.into(), hour()), counter);
    let of_user = |counter| part(DayPart::User(USER.into()), counter);
    find(vec![
        (
            "an hour of a key was charged more",
            Damage::PayerSums(|sums| change_hour(&mut sums.hours, |of| add(&mut of.charged, 1))),
            { vec![usd(of_key_hour(Counter::Charged), 11, 10)] },
        ),
        (
            "an hour of a key had a request less",
            Damage::PayerSums(|sums| change_hour(&mut sums.hours, |of| of.requests = 0)),
            { vec![number(of_key_hour(Counter::Requests), 0, 1)] },
        ),
        (
            "an hour of a model's prompts",
            Damage::ModelSums(|sums| change_hour(&mut sums.hours, |of| of.prompt += 1)),
            { vec![number(part(DayPart::ModelHour(MODEL.into(), hour()), Counter::Prompt), 37, 36)] },
        ),
        (
            "an hour of a group's completions",
            Damage::GroupSums(1, |part| change_hour(&mut part.total.hours, |of| of.completion = 0)),
            {
                let of_hour = DayPart::GroupHour(group(1), MODEL.into(), own(), hour());
                vec![number(part(of_hour, Counter::Completion), 0, 24)]
            },
        ),
        ("a user was charged more", Damage::UserSums(|user, _| add(&mut user.charged, 1)), {
            vec![
                usd(Figure::Sum(SumOwner::Users(part_of_user(USER)), day), 118, 117),
                usd(of_user(Counter::Charged), 118, 117),
            ]
        }),
        ("a user had a request more", Damage::UserSums(|user, _| user.requests += 1), {
            vec![number(of_user(Counter::Requests), 13, 12)]
        }),
        ("a user's cached tokens", Damage::UserSums(|user, _| user.cached = 0), {
            vec![number(of_user(Counter::Cached), 0, 12)]
        }),
        ("other users had a request", Damage::UserSums(|_, others| others.requests = 1), {
            vec![number(part(DayPart::OtherUsers(part_of_user(USER)), Counter::Requests), 1, 0)]
        }),
        ("sums of users are lost", Damage::Lost(|| of_users().into()), {
            vec![usd(Figure::Sum(SumOwner::Users(part_of_user(USER)), day), 0, 117)]
        }),
        ("a payer is not listed", Damage::Payers(|payers| payers.payers.clear()), {
            vec![number(Figure::Listed(key(1), day, MODEL.into()), 0, 1)]
        }),
        ("a payer is listed from the next day", Damage::Payers(|payers| payers.payers[0].first += 1), {
            vec![number(Figure::Listed(key(1), day, MODEL.into()), 0, 1)]
        }),
        ("the list of a key is lost", Damage::Lost(|| names::payers(key(1)).into()), {
            vec![number(Figure::Listed(key(1), day, MODEL.into()), 0, 1)]
        }),
    ])
    .await;
}

#[tokio::test]
async fn damaged_numbers_of_keys_and_groups_are_found() {
    find(vec![
        ("an account has a key more", Damage::AccountProfile(|profile| profile.keys += 1), {
            vec![number(Figure::Keys, 21, 20)]
        }),
        ("an account has a group less", Damage::AccountProfile(|profile| profile.groups -= 1), {
            vec![number(Figure::Groups, 1, 2)]
        }),
        ("a group has a key more", Damage::GroupProfile(1, |profile| profile.keys += 1), {
            vec![number(Figure::KeysOfGroup(group(1)), 21, 20)]
        }),
        ("a group has a child more", Damage::GroupProfile(1, |profile| profile.children += 1), {
            vec![number(Figure::ChildGroups(group(1)), 1, 0)]
        }),
        ("a key is not listed", Damage::Unlisted(layout::KEYS), vec![number(Figure::Keys, 20, 19)]),
        ("a key of a group is not listed", Damage::Unlisted(layout::KEYS_OF_GROUPS), {
            vec![number(Figure::KeysOfGroup(group(1)), 20, 19)]
        }),
        ("a child group is not listed", Damage::Unlisted(layout::CHILD_GROUPS), {
            vec![number(Figure::ChildGroups(group(0)), 1, 0)]
        }),
        ("a group is not listed", Damage::Unlisted(layout::GROUPS), vec![number(Figure::Groups, 2, 1)]),
    ])
    .await;
}
