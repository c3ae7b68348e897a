//! Damages each record, entry and field of an account that has everything, and checks that an audit finds all damage
//! that moves or hides money.

mod wire;

use std::collections::BTreeSet;

use domain::{
    event::Actor,
    ledger::{PaidTo, Record as Generation},
    payment::PaymentId,
};
use key_service_ledger::{reading::value, stored::EntryRecord, view::FORM};
use records::{Answer, Index, Log, Name, Order, Place, Question, Record, Space};

use super::*;
use crate::store::{StoreError, layout};

/// Changes that neither move nor hide money. Each row has a prefix of the names of some changes, and why these changes
/// move no money. Fields are named by their numbers in the types of the records.
const NO_MONEY: &[(&str, &str)] = &[
    ("Account.0.2", "lease time: a hold expires earlier or later, and bills what it reported"),
    ("Account.0.4", "the earliest time of the next bill"),
    ("Account.3 changed", "the last expiry: bills are remembered for longer"),
    ("Account.4", "how far searches by time look back"),
    ("Account.5", "where searches by time begin anew"),
    ("EventsKept removed", "bounds how many events are kept"),
    ("EventsKept.0 removed", "is the first event all the same"),
    ("EventsKept.1", "bounds how many events are kept"),
    ("Key.0.0.0", "the limit, a setting"),
    ("Key.0.0.3 removed", "bounds, a setting"),
    ("Key.0.0.3.0 removed", "windows, a setting"),
    ("Key.0.0.3.0.0.0", "the length of a window, a setting"),
    ("Key.0.0.3.0.0.1", "the amount of a window, a setting"),
    ("Key.0.0.3.0.0.2", "the time at which the bound was set"),
    ("Key.0.0.3.0.0.3 changed", "no entry tells the window of money that a late capture gave back"),
    ("Key.0.0.3.0.0.3 removed", "may be of bills within ten minutes of the bound, which prove nothing"),
    ("Key.0.0.3.0.0.4 added", "a raise that has ended"),
    ("Key.0.0.3.6 added", "a raise that has ended"),
    ("Key.0.0.3.3", "most requests in flight, a setting"),
    ("Key.0.2", "which plaintext is accepted"),
    ("Key.0.3 added", "the expiry, a setting"),
    ("Key.0.4", "the time of a revocation, which stays one"),
    ("Key.0.5 set", "of a revoked key, which is refused all the same"),
    ("Key.0.6", "the last use is shown, and nothing else"),
    ("Group.0.0.0", "the limit, a setting"),
    ("Group.0.0.3.0 removed", "windows, a setting"),
    ("Group.0.0.3.0.0.0", "the length of a window, a setting"),
    ("Group.0.0.3.0.0.1", "the amount of a window, a setting"),
    ("Group.0.0.3.0.0.2", "the time at which the bound was set"),
    ("Group.0.0.3.0.0.3 changed", "no entry tells the window of money that a late capture gave back"),
    ("Group.0.0.3.0.0.4 added", "a raise that has ended"),
    ("Group.0.0.3.6 added", "a raise that has ended"),
    ("Group.0.0.3.3", "most requests in flight, a setting"),
    ("Group.0.2", "the time of archiving, a setting"),
    ("Open.1.0.1", "the model, of which an open hold has no second copy"),
    ("Open.1.1", "how the caller asked"),
    ("Open.1.3", "what a hold reported, of which there is no second copy"),
    ("Open.1.5.1", "tokens, given back to a bound of tokens per minute"),
    ("Replaced.1.1", "how the caller asked, of a bill that a later entry replaces"),
    ("Replaced.1.2", "usage of a bill that a later entry replaces; sums are found"),
    ("Replaced.1.3", "cost of a bill that a later entry replaces; amounts are found"),
    ("Replaced.1.4", "upstream cost of a bill that a later entry replaces; amounts are found"),
    ("Replaced.1.6", "how a bill ended that a later entry replaces"),
    ("Replaced.1.7", "whether a bill was estimated that a later entry replaces"),
    ("Replaced.1.8 changed", "a millisecond of a bill that a later entry replaces"),
    ("Entry.4.1.0 added", "the last entry of a group, not read without one"),
    ("Entry.4.1.1 added", "the last entry of a parent, not read without one"),
    ("Entry.5 added", "not read where times did not go back"),
    ("Replaced.5 added", "not read where times did not go back"),
    ("Holder.0", "when the account was listed"),
    ("Deposit.1.1", "shown in statements: the credit of that time"),
    ("Deposit.1.2", "a text"),
    ("Deposit.1.4.2", "shown: the limit of that time"),
    ("Deposit.1.5.0", "shown: what was asked, of which there is no second copy"),
    ("Deposit.1.5.1", "the payment that was refunded, which is shown"),
    ("KeyPayers.0.0.1 removed", "more days are searched"),
    ("KeyPayers.0.0.2 changed", "more days are searched"),
    ("KeyPayers.1", "more days are searched"),
    ("AccountProfile.1", "the time of creation is shown, and nothing else"),
    ("AccountName.1", "the time of creation is shown, and nothing else"),
    ("AccountName.2", "who may finish an account without a profile"),
    ("KeyProfile.2", "the time of creation is shown, and nothing else"),
    ("GroupProfile.0", "a name"),
    ("GroupProfile.1", "a label"),
    ("GroupProfile.3", "settings of keys"),
    ("GroupProfile.4", "the time of creation is shown, and nothing else"),
];

/// A change that is made without the store, and the writes that undo it.
struct Damage {
    name: String,
    space: Space,
    writes: Vec<Write>,
    undo: Vec<Write>,
}

impl Damage {
    fn of_record(space: &Space, name: &Name, record: &Record) -> Vec<Self> {
        let label = label(name, record);
        let undo = vec![Write::Put(name.clone(), record.clone())];
        let damage = |of: String, write| Self {
            name: of,
            space: space.clone(),
            writes: vec![write],
            undo: undo.clone(),
        };
        let changed = |(of, bytes): (String, Vec<u8>)| {
            damage(of, Write::Put(name.clone(), Record::new(record.revision(), FORM, &bytes)))
        };
        let all = wire::changes(label, record.message()).into_iter().map(changed);
        let removed = damage(format!("{label} removed"), Write::Remove(name.clone()));
        all.chain([removed]).collect()
    }

    fn of_entry(space: &Space, index: Index, entry: &[u8]) -> Vec<Self> {
        let mut other = entry.to_vec();
        if let Some(last) = other.last_mut() {
            // The changed entry is far from all existing entries.
            *last ^= 0x40;
        }
        let (leave, enter) = (Write::Leave(index, entry.to_vec()), Write::Enter(index, entry.to_vec()));
        let name = index_name(index);
        let damage =
            |act, writes, undo| Self { name: format!("{name} {act}"), space: space.clone(), writes, undo };
        vec![
            damage("removed", vec![leave.clone()], vec![enter.clone()]),
            damage(
                "changed",
                vec![leave, Write::Enter(index, other.clone())],
                vec![Write::Leave(index, other), enter],
            ),
        ]
    }

    /// Returns all changes to one value in a log.
    fn of_value(space: &Space, log: Log, all: &[(u64, Vec<u8>)], place: usize) -> Vec<Self> {
        let (number, value) = &all[place];
        let rewrite = |with: Option<Vec<u8>>| {
            let values = all.iter().filter_map(|(of, value)| match &with {
                None => (of != number).then(|| (*of, value.clone())),
                Some(with) => Some((*of, if of == number { with.clone() } else { value.clone() })),
            });
            let append = |(first, value)| Write::Append { log, first, values: vec![value], kept: u64::MAX };
            std::iter::once(Write::Trim { log, first: u64::MAX }).chain(values.map(append)).collect()
        };
        let damage = |name: String, with| Self {
            name,
            space: space.clone(),
            writes: rewrite(with),
            undo: rewrite(Some(value.clone())),
        };
        match log {
            names::JOURNAL => {
                let generation =
                    |value: &[u8]| shared::stored::read::<EntryRecord>(value).unwrap().generation;
                let is_last =
                    all[place + 1..].iter().all(|(_, later)| generation(later) != generation(value));
                let label = if is_last { "Entry" } else { "Replaced" };
                let changes = wire::changes(label, value).into_iter();
                let removed = damage(format!("{label} removed"), None);
                changes.map(|(name, bytes)| damage(name, Some(bytes))).chain([removed]).collect()
            }
            names::EVENTS => {
                let mut other = value.clone();
                other[0] ^= 1;
                vec![damage("Event removed".into(), None), damage("Event.id changed".into(), Some(other))]
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the label for the value of a record.
fn label(name: &Name, record: &Record) -> &'static str {
    match (name.set.table, name.key.first()) {
        (names::GENERATIONS, _) if matches!(value(record), Ok(Generation::Open(_))) => "Open",
        (names::GENERATIONS | names::EXPIRED, _) => "Bill",
        (names::SUMS, _) => "PayerSums",
        (names::SPEND, _) => "ModelSums",
        (names::MONEY, Some(b'a')) => "Account",
        (names::MONEY, Some(b'e')) => "EventsKept",
        (names::MONEY, Some(b'k')) => "Key",
        (names::MONEY, Some(b'g')) => "Group",
        (names::DEPOSITS, _) => "Deposit",
        (names::GROUP_SPEND, _) => "GroupSums",
        (names::USERS, _) => "UserSums",
        (names::PAYERS, _) => "KeyPayers",
        (names::TOLD, _) => "Told",
        (layout::PROFILES, Some(b'a')) => "AccountProfile",
        (layout::PROFILES, Some(b'k')) => "KeyProfile",
        (layout::PROFILES, Some(b'g')) => "GroupProfile",
        (layout::ACCOUNT_NAMES, _) => "AccountName",
        (layout::HOLDERS, _) => "Holder",
        other => panic!("the records {other:?} have no label here"),
    }
}

fn index_name(index: Index) -> &'static str {
    match index {
        names::DUE => "entry of open holds",
        names::SPENDERS => "entry of keys by spend",
        names::EVENTS_OF => "entry of events by subject",
        names::DEPOSITED => "entry of deposits",
        names::EVENT_IDS => "entry of events by id",
        names::TOLD_AT => "entry of thresholds",
        layout::KEYS => "entry of keys",
        layout::KEYS_BY_STATUS => "entry of keys by status",
        layout::KEYS_EXPIRING => "entry of expiring keys",
        layout::KEYS_OF_GROUPS => "entry of keys of groups",
        layout::GROUPS => "entry of groups",
        layout::CHILD_GROUPS => "entry of groups of groups",
        other => panic!("the index {other:?} has no name here"),
    }
}

/// Opens an account with keys of every status, two levels of groups, limits, crossed thresholds, deposits with and
/// without a payment id, a wallet with refunds, bills of every ending, a correction, and an open hold.
async fn open_rich(store: &Store) {
    let mine = open_account_with(store, 1, 10_000).await;
    let window =
        Window { per: Per::Day, amount: nanos(9_000), raised: None, start: START, used: NanoUsd::ZERO };
    let bounds = || Bounds { windows: vec![window], max_in_flight: Some(100), ..Bounds::default() };
    let budget = |limit| Budget { limit, bounds: Some(Box::new(bounds())), ..Budget::default() };
    for n in [0, 1] {
        let mut new = new_group(mine, n);
        new.group.spend.parent = (n == 1).then_some(group(0));
        new.group.spend.budget = budget(Some(nanos(200)));
        store.create_group(new, None, &act(START)).await.unwrap();
    }
    let expires_at = Some(LATER.plus(std::time::Duration::from_hours(99)));
    let settings = [
        Key { group: Some(group(1)), ..Key::default() },
        Key { group: Some(group(1)), expires_at, ..Key::default() },
        Key { disabled: true, ..Key::default() },
        Key { revoked_at: Some(START), ..Key::default() },
        Key::default(),
    ];
    for (n, settings) in (0..).zip(settings) {
        let mut new = new_key(mine, n);
        let opening = if n == 4 { 3 } else { 0 };
        new.key.spend =
            Key { budget: Budget { used: nanos(opening), ..budget(Some(nanos(150))) }, ..settings };
        store.create_key(new, None, &act(START)).await.unwrap();
    }
    let payment_id = Some(PaymentId::parse("pay_1").unwrap());
    let id = payment_id.as_ref().unwrap().deposit(mine);
    let deposit = Command::Deposit {
        id,
        amount: nanos(7),
        note: "paid".into(),
        payment_id,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    let id_of = |text| {
        let payment_id = PaymentId::parse(text).unwrap();
        (payment_id.deposit(mine), payment_id)
    };
    let (id, payment_id) = id_of("pay_2");
    let (note, actor) = (String::new(), Actor::System);
    let both = PaidTo::Both(group(1));
    let paid = Command::Deposit { id, amount: nanos(6), note, payment_id: Some(payment_id), to: both, actor };
    let refund = |text, from| {
        let (id, payment_id) = id_of(text);
        let (of, note, actor) = (PaymentId::parse("pay_2"), "too much".into(), Actor::System);
        Command::Refund { id, payment_id, amount: nanos(2), from, partial: true, of, note, actor }
    };
    let refunds = [refund("re_1", both), refund("re_2", PaidTo::Wallet(group(1)))];
    execute(store, [deposit, paid].into_iter().chain(refunds).collect(), START).await;
    for (key_of, n) in [(0, 0), (1, 1), (4, 2)] {
        execute(store, vec![hold(key(key_of), n, 140, 1), capture(key(key_of), n, 20)], START).await;
    }
    execute(store, vec![hold(key(0), 20, 40, 1), hold(key(1), 21, 40, 1), hold(key(0), 30, 5, 9)], START)
        .await;
    for (key_of, n) in [(0, 20), (1, 21)] {
        let usage =
            Usage { details: UsageDetails { images: 1, ..UsageDetails::default() }, ..Usage::of(2, 1, 1) };
        let progress = Progress { usage, cost: nanos(9), upstream_cost: Some(nanos(3)), course: None };
        let (generation, most) = (generation(n), nanos(40));
        let report = Command::Extend { key: key(key_of), generation, most, progress, lease_ticks: 1 };
        execute(store, vec![report], START).await;
    }
    for seen in [None, Some(0), Some(1)] {
        execute(store, vec![Command::Tick { seen }], START).await;
    }
    for (key_of, n) in [(0, 20), (1, 21)] {
        execute(store, vec![Command::Expire { key: key(key_of), generation: generation(n) }], START).await;
    }
    execute(store, vec![capture(key(0), 20, 7)], START).await;
    execute(store, vec![hold(key(0), 40, 110, 9), capture(key(0), 40, 95)], LATER).await;
}

/// Returns all changes to the account's records, and to the records by which the account is found.
async fn damages(records: &Maps) -> Vec<Damage> {
    let mut damages = Vec::new();
    for (space, place) in records.places().await.unwrap() {
        // The records of credentials lead to keys, but neither they nor the sums of upstreams contain money.
        if ["credentials/", "upstreams", "installation"].iter().any(|of| space.as_str().starts_with(of)) {
            continue;
        }
        let order = Order::Ascending;
        match place {
            Place::Set(set) => {
                let mut page = Some(None);
                while let Some(after) = page {
                    let mut answers = records.read(&space, vec![Question::Set(set, after)]).await.unwrap();
                    let Some(Answer::Set(found, next)) = answers.pop() else { panic!("a set") };
                    for (key, record) in found {
                        let name = Name { set, key: key.into() };
                        damages.extend(Damage::of_record(&space, &name, &record));
                    }
                    page = next.map(Some);
                }
            }
            Place::Index(index) => {
                let all = Question::Entries { index, from: Vec::new(), to: None, order, limit: usize::MAX };
                let mut answers = records.read(&space, vec![all]).await.unwrap();
                let Some(Answer::Entries(entries)) = answers.pop() else { panic!("entries") };
                damages.extend(entries.iter().flat_map(|entry| Damage::of_entry(&space, index, entry)));
            }
            Place::Log(log) => {
                let all = Question::Values { log, from: 0, to: u64::MAX, order, limit: usize::MAX };
                let mut answers = records.read(&space, vec![all]).await.unwrap();
                let Some(Answer::Values(values)) = answers.pop() else { panic!("values") };
                let of_value = |place| Damage::of_value(&space, log, &values, place);
                damages.extend((0..values.len()).flat_map(of_value));
            }
        }
    }
    damages
}

async fn write(records: &Maps, space: &Space, writes: Vec<Write>) {
    for write in writes {
        records.commit(space, Commit { guards: Vec::new(), writes: vec![write] }).await.unwrap();
    }
}

/// Returns whether an audit of all accounts finds something.
async fn is_found(records: &Arc<Maps>) -> bool {
    let store = store(records, None);
    let listed = match store.audited_accounts().await {
        Ok(listed) => listed,
        Err(StoreError::Damaged(_)) => return true,
        Err(e) => panic!("{e}"),
    };
    let mut is_audited = false;
    for (id, _) in listed {
        match store.audit(id).await {
            Ok(None) => {}
            Ok(Some(audit)) if audit.wrong.is_empty() => is_audited |= id == account(1),
            Ok(Some(_)) | Err(StoreError::Damaged(_)) => return true,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(is_audited, "the account is no longer audited");
    false
}

#[tokio::test]
async fn every_change_that_moves_or_hides_money_is_found() {
    let records = Arc::new(Maps::default());
    open_rich(&store(&records, None)).await;
    assert_eq!(audit(&store(&records, None)).await.wrong, []);
    let damages = damages(&records).await;
    assert!(damages.len() > 900, "{}", damages.len());
    for lost in [
        "Account",
        "AccountName",
        "AccountProfile",
        "Bill",
        "Deposit",
        "Entry",
        "Event",
        "Holder",
        "Key",
        "Open",
        "Told",
    ] {
        assert!(damages.iter().any(|damage| damage.name == format!("{lost} removed")), "{lost}");
    }
    let (mut used, mut missed) = (BTreeSet::new(), BTreeSet::new());
    for Damage { name, space, writes, undo } in damages {
        write(&records, &space, writes).await;
        if !is_found(&records).await {
            match NO_MONEY.iter().find(|(beginning, _)| name.starts_with(beginning)) {
                Some((beginning, _)) => drop(used.insert(*beginning)),
                None => drop(missed.insert(name)),
            }
        }
        write(&records, &space, undo).await;
    }
    assert_eq!(missed, BTreeSet::new());
    let unused: Vec<_> = NO_MONEY.iter().filter(|(of, _)| !used.contains(of)).collect();
    assert!(unused.is_empty(), "always found, so no reason is needed: {unused:?}");
    assert_eq!(audit(&store(&records, None)).await.wrong, [], "every change must be undone");
}
