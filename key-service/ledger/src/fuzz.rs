//! Fuzz targets for the ledger's records: any bytes are either refused, or decode to a value that stays the same when
//! it is written and read again.

use std::sync::Arc;

use domain::{
    ledger::{
        Account, Bounds, Budget, Counted, Deposited, Ending, EntriesBefore, Entry, Group, Hold, Key,
        LastDeposit, Missing, Payer, Progress, Rate, Record as Generation, RefundAsked, Rotation, Settlement,
        Standing, Wallet, WalletChange, Window,
    },
    payment::{Payment, PaymentId},
    usage::{Counts, Day, DayTotal, GroupDay, GroupKeys, HoursOfDay, Margin, PartCounts, UserDay},
};
use records::{Record, Revision};
use shared::{
    calendar::Per,
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::{DepositId, GenerationId, GroupId, KeyId, RequestId},
    money::NanoUsd,
    stored,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
    wire::Raise,
};
use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    names::{self, DueMoney, PayerName, RecordName, read_due, spending_key},
    stored::{
        AccountRecord, Balance, EntryRecord, EventsKept, HeldPart, House, PayerSpan, PayersOfKey, Told, Turn,
    },
    view::Stored,
};

const AT: Timestamp = Timestamp::from_millis(1_795_140_665_000);

const fn nanos(nanos: i64) -> NanoUsd {
    NanoUsd::from_nanos(nanos)
}

fn key() -> KeyId {
    KeyId::new(AT, [1; 10])
}

fn group() -> GroupId {
    GroupId::new(AT, [2; 10])
}

fn payer() -> Payer {
    Payer { key: key(), model: "Model Flash".into(), groups: [Some(group()), None] }
}

fn budget() -> Budget {
    let missing = Missing { since: AT, part: 1 << 31 };
    let rate = Rate { per_minute: 60, taken: 7, at: AT, missing };
    let raised = Some(Raise { amount: nanos(8), until: AT });
    let bounds = Bounds {
        windows: vec![Window { per: Per::Day, amount: nanos(5), start: AT, used: nanos(3), raised }],
        requests_per_minute: Some(rate),
        tokens_per_minute: Some(rate),
        max_in_flight: Some(4),
        in_flight: 2,
        models: Some(vec!["m".into()]),
        limit_raised: raised,
    };
    Budget { limit: Some(nanos(9)), used: nanos(4), held: nanos(1), bounds: Some(Box::new(bounds)) }
}

fn usage() -> Usage {
    Usage { details: UsageDetails { reasoning: 3, ..UsageDetails::default() }, ..Usage::of(12, 4, 5) }
}

fn origin() -> Arc<Origin> {
    let request = Some(RequestId::new(AT, [4; 10]));
    Arc::new(Origin { api: ModelApi::Chat, stream: true, user: Some("ann".into()), request })
}

fn course() -> Arc<Course> {
    let (upstream, finish_reason) = (Some("a".into()), Some(FinishReason::Stop));
    Arc::new(Course { upstream, latency_ms: Some(900), finish_reason, ..Course::default() })
}

fn bill() -> Settlement {
    Settlement {
        payer: payer(),
        origin: Some(origin()),
        usage: usage(),
        cost: nanos(3),
        upstream_cost: Some(nanos(2)),
        charged: nanos(3),
        ending: Ending::Expired,
        estimated: false,
        at: AT,
        course: Some(course()),
    }
}

fn written_money() -> Vec<Vec<u8>> {
    let missing = [Some(Missing { since: AT, part: u32::MAX }), None, None];
    let hold = Hold {
        payer: payer(),
        origin: Some(origin()),
        amount: nanos(7),
        reported: Progress {
            usage: usage(),
            cost: nanos(3),
            upstream_cost: Some(nanos(2)),
            course: Some(course()),
        },
        lease_until: 9,
        counted: Counted { levels: [true, false, true], tokens: 12, missing },
    };
    let wallet = Some(Wallet { opening: nanos(4), paid: nanos(5) });
    let group_money = Group { budget: budget(), parent: Some(group()), archived_at: Some(AT), wallet };
    let key_money = Key {
        budget: budget(),
        group: Some(group()),
        rotation: Rotation { current: 2, previous_until: Some(AT) },
        expires_at: Some(AT),
        last_used_at: Some(AT),
        ..Key::default()
    };
    let money = Account {
        credit: nanos(9),
        held: nanos(1),
        tick: 4,
        last_deposit: Some(LastDeposit { credit: nanos(5), at: AT }),
        billed_at: Some(AT),
        standing: Some(Standing { suspended_at: AT, closed_at: None }),
    };
    let (last_expiry, ordered_since) = (Some(AT), Some(AT));
    let account = AccountRecord { money, entries: 3, events: 2, last_expiry, ordered_since, went_back: 2 };
    let payment = Some(Payment { id: PaymentId::parse("pay_1").unwrap(), at: AT });
    let deposited = Deposited {
        amount: nanos(-5),
        credit: Some(nanos(9)),
        note: "n".into(),
        payment,
        wallet: Some(WalletChange { group: group(), change: nanos(-5), limit: nanos(4), is_alone: false }),
        refund: Some(RefundAsked { amount: nanos(6), of: PaymentId::parse("pay_2") }),
    };
    let parts = vec![HeldPart { part: 5, held_at: AT }];
    vec![
        stored::write(&account),
        stored::write(&Balance { of: key_money, last_entry: 3 }),
        stored::write(&Balance { of: group_money, last_entry: 3 }),
        stored::write(&Generation::Open(hold)),
        stored::write(&Generation::Closed(bill())),
        stored::write(&Generation::Deposited(deposited)),
        stored::write(&EventsKept { first: 3, bytes: 900 }),
        stored::write(&Turn { of: [7; 8] }),
        stored::write(&Told { event: 7 }),
        stored::write(&House { generations: 9, held: parts, expired: 2, sums: 1, journal: 0 }),
    ]
}

fn part(requests: u64) -> PartCounts {
    PartCounts { requests, prompt: 300, cached: 0, completion: 5, charged: nanos(-7) }
}

fn written_sums() -> [Vec<u8>; 5] {
    let hours = HoursOfDay::read(vec![(7, part(2)), (23, part(1))]).unwrap();
    let counts = Counts { requests: 3, usage: usage(), charged: nanos(3), ..Counts::default() };
    let mut of_group = GroupDay::default();
    for keys in [GroupKeys::Own(Some(group())), GroupKeys::Below] {
        of_group.add("Model Flash", keys, 7, counts);
    }
    let span = PayerSpan { name: PayerName::of(&payer()), first: 7, last: 9 };
    let named = vec![("ann".into(), part(1)), ("bob".into(), part(2))];
    let model = DayTotal { of: Margin::from(counts), hours: hours.clone() };
    [
        stored::write(&Balance { of: DayTotal { of: counts, hours }, last_entry: 4 }),
        stored::write(&Balance { of: model, last_entry: 4 }),
        stored::write(&Balance { of: of_group, last_entry: 4 }),
        stored::write(&Balance { of: UserDay::of(named, part(9)), last_entry: 4 }),
        stored::write(&PayersOfKey { payers: vec![span], whole_from: 3 }),
    ]
}

fn examples() -> Examples {
    Examples::of(written_money().into_iter().chain(written_sums()))
}

#[test]
fn records_of_money() {
    fuzz(&examples(), |input: &Input| {
        let (bytes, generation, deposit) =
            (input.bytes(), GenerationId::new(AT, [3; 10]), DepositId::new(AT, [3; 10]));
        let day = Day::of(AT);
        is_written_as_read(names::account(), bytes);
        is_written_as_read(names::turn(), bytes);
        is_written_as_read(names::events(), bytes);
        is_written_as_read(names::house(), bytes);
        is_written_as_read(names::key(key()), bytes);
        is_written_as_read(names::group(group()), bytes);
        is_written_as_read(names::generation(generation), bytes);
        is_written_as_read(names::deposit(deposit), bytes);
        is_written_as_read(names::of_payer(day, &PayerName::of(&payer())), bytes);
        is_written_as_read(names::payers(key()), bytes);
        is_written_as_read(names::of_model(day, "m"), bytes);
        is_written_as_read(names::of_group(day, group()), bytes);
        is_written_as_read(names::of_users(day, 0), bytes);
        is_written_as_read(names::told(b"t"), bytes);
        if let Some(record) = Record::from_bytes(input.bytes().to_vec()) {
            let again = Record::new(record.revision(), record.form(), record.message());
            assert_eq!(
                (again.as_bytes(), record.message().len()),
                (input.bytes(), input.bytes().len() - Revision::SIZE - 1)
            );
        }
    });
}

fn is_written_as_read<T: Stored>(_: RecordName<T>, bytes: &[u8]) {
    let Ok(value) = stored::read::<T>(bytes) else { return };
    let written = stored::write(&value);
    assert!(stored::read(&written).is_ok_and(|read: T| read == value), "{bytes:?} is written as {written:?}");
}

#[test]
fn entries_of_the_journal() {
    let settlement = bill();
    let entry = Entry { settlement, delta: nanos(3), used_after: nanos(9) };
    let before = EntriesBefore { key: 3, groups: [2, 0] };
    let written = stored::write(&EntryRecord::of(GenerationId::new(AT, [5; 10]), &entry, before));
    assert_eq!(stored::read::<EntryRecord>(&written).unwrap().bill, entry.settlement);
    fuzz(&Examples::of([written]), |input: &Input| {
        let Ok(entry) = stored::read::<EntryRecord>(input.bytes()) else { return };
        assert_eq!(stored::read::<EntryRecord>(&stored::write(&entry)).ok(), Some(entry));
    });
}

#[test]
fn names_and_entries_of_indexes() {
    let payer = [&b"p"[..], &[1; 16], &[2; 16], &[0; 16], b"Model Flash"].concat();
    let due = [&9_u64.to_be_bytes()[..], &[1; 16], &[2; 16], &7_i64.to_be_bytes(), &[5], &[3; 16]].concat();
    fuzz(&Examples::of([payer, due]), |input: &Input| {
        let bytes = input.bytes();
        if let Some(payer) = PayerName::read(bytes) {
            assert_eq!(PayerName::of(&payer).to_vec(), bytes);
        }
        match DueMoney::read(bytes) {
            Some(money) => assert!(read_due(bytes).is_some_and(|(key, _)| key == money.key)),
            None => assert!(bytes.len() < 49),
        }
        assert_eq!(spending_key(bytes).is_some(), bytes.len() == 24);
    });
}
