//! Fuzz targets of the ledger's records: any bytes are either a value that survives writing and reading, or no value.

use domain::ledger::Payer;
use prost::Message;
use records::{Record, Revision};
use shared::{
    ids::{DepositId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};
use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    copies::{
        GroupSum, ModelSum, PayerSum, PayersOf, RecordKind, TheAccount, TheEvents, TheTurn, ToldName, UserSum,
    },
    messages::{self, generation::State},
    names::{DueMoney, PayerName, read_due, spending_key},
};

const AT: i64 = 1_795_140_665_000;

fn examples() -> Examples {
    Examples::of(written_money().into_iter().chain(written_sums()))
}

fn at() -> Timestamp {
    Timestamp::from_millis(AT)
}

fn key() -> KeyId {
    KeyId::new(at(), [1; 10])
}

fn group() -> GroupId {
    GroupId::new(at(), [2; 10])
}

fn bounds() -> messages::Bounds {
    let missing = Some(messages::Missing { since: AT, part: 1 << 31 });
    let rate = messages::Rate { per_minute: 60, taken: 7, at: AT, missing };
    let raised = Some(messages::Raise { amount: 8, until: AT + 1 });
    messages::Bounds {
        windows: vec![messages::Window { per: 1, amount: 5, start: AT, used: 3, raised }],
        requests_per_minute: Some(rate),
        tokens_per_minute: Some(rate),
        max_in_flight: Some(4),
        in_flight: 2,
        models: Some(messages::Models { ids: vec!["m".into()] }),
        limit_raised: raised,
    }
}

fn progress() -> messages::Progress {
    messages::Progress {
        prompt: 12,
        cached: 4,
        completion: 5,
        cost: 3,
        upstream_cost: Some(2),
        ..Default::default()
    }
}

fn written_money() -> Vec<Vec<u8>> {
    let (key, group) = (key(), group());
    let budget = Some(messages::Budget { limit: Some(9), used: 4, held: 1, bounds: Some(bounds()) });
    let progress = progress();
    let payer = messages::Payer {
        key: key.as_bytes().to_vec(),
        model: "Model Flash".into(),
        group: group.as_bytes().to_vec(),
        parent: Vec::new(),
    };
    let generation = |state| {
        let (payer, progress) = (Some(payer.clone()), Some(progress.clone()));
        let origin = messages::Origin { api: 1, stream: true, user: "ann".into(), request: vec![4; 16] };
        messages::Generation { payer, progress, origin: Some(origin), state: Some(state) }.encode_to_vec()
    };
    let missing_of_key = Some(messages::Missing { since: AT, part: u32::MAX });
    let hold = messages::Hold {
        amount: 7,
        lease_until: 9,
        counted_levels: 5,
        counted_tokens: 12,
        missing_of_key,
        ..messages::Hold::default()
    };
    let bill = messages::Bill { charged: 3, expired: true, estimated: false, at: AT, late: false };
    let group_record = messages::Group {
        budget: budget.clone(),
        parent: group.as_bytes().to_vec(),
        archived_at: Some(AT),
        last_entry: 3,
    };
    let key_record = messages::Key {
        budget,
        group: group.as_bytes().to_vec(),
        credential: 2,
        previous_until: Some(AT),
        expires_at: Some(AT),
        last_used_at: Some(AT),
        last_entry: 3,
        ..messages::Key::default()
    };
    let account = messages::Account {
        credit: 9,
        held: 1,
        tick: 4,
        last_deposit: Some(messages::LastDeposit { credit: 5, at: AT }),
        entries: 3,
        events: 2,
        last_expiry: AT,
        billed_at: AT,
        ordered_since: AT,
        went_back: 2,
    };
    let deposit =
        messages::Deposit { amount: 5, credit: 9, note: "n".into(), payment_id: "pay_1".into(), at: AT };
    vec![
        account.encode_to_vec(),
        key_record.encode_to_vec(),
        group_record.encode_to_vec(),
        generation(State::Hold(hold)),
        generation(State::Bill(bill)),
        deposit.encode_to_vec(),
        messages::EventsKept { first: 3, bytes: 900 }.encode_to_vec(),
        messages::Turn { of: vec![7; 8] }.encode_to_vec(),
    ]
}

fn written_sums() -> [Vec<u8>; 4] {
    let (key, group) = (key(), group());
    let sums = messages::Sums {
        requests: 2,
        usage: Some(progress()),
        tokens: 7,
        charged: 3,
        hours: Some(messages::HourColumns { hours: vec![7, 23], counts: Some(columns(2)) }),
        ..Default::default()
    };
    let of_group = |below, parent| messages::GroupPartSums {
        model: "Model Flash".into(),
        below,
        parent,
        sums: Some(messages::Sums { usage: None, ..sums.clone() }),
    };
    let parts = vec![of_group(false, group.as_bytes().to_vec()), of_group(true, Vec::new())];
    let of_groups = messages::GroupSums { parts, last_entry: 4 };
    let name = PayerName::of(&Payer { key, model: "Model Flash".into(), groups: [Some(group), None] });
    let listed = messages::ListedPayer { name: name.to_vec(), first: 7, last: 9 };
    let of_users = messages::UserSums {
        users: vec!["ann".into(), "bob".into()],
        counts: Some(columns(3)),
        last_entry: 4,
    };
    [
        of_groups.encode_to_vec(),
        messages::KeyPayers { payers: vec![listed], whole_from: 3 }.encode_to_vec(),
        of_users.encode_to_vec(),
        sums.encode_to_vec(),
    ]
}

/// Columns of this many parts.
fn columns(parts: usize) -> messages::CountColumns {
    messages::CountColumns {
        requests: vec![2; parts],
        prompt: vec![300; parts],
        cached: vec![0; parts],
        completion: vec![5; parts],
        charged: vec![-7; parts],
    }
}

#[test]
fn records_of_money() {
    fuzz(&examples(), |input: &Input| {
        is_written_as_read::<TheAccount>(input.bytes());
        is_written_as_read::<TheTurn>(input.bytes());
        is_written_as_read::<TheEvents>(input.bytes());
        is_written_as_read::<KeyId>(input.bytes());
        is_written_as_read::<GroupId>(input.bytes());
        is_written_as_read::<GenerationId>(input.bytes());
        is_written_as_read::<DepositId>(input.bytes());
        is_written_as_read::<PayerSum>(input.bytes());
        is_written_as_read::<PayersOf>(input.bytes());
        is_written_as_read::<ModelSum>(input.bytes());
        is_written_as_read::<GroupSum>(input.bytes());
        is_written_as_read::<UserSum>(input.bytes());
        is_written_as_read::<ToldName>(input.bytes());
        if let Some(record) = Record::from_bytes(input.bytes().to_vec()) {
            let again = Record::new(record.revision(), record.form(), record.message());
            assert_eq!(
                (again.as_bytes(), record.message().len()),
                (input.bytes(), input.bytes().len() - Revision::SIZE - 1)
            );
        }
    });
}

fn is_written_as_read<K: RecordKind>(bytes: &[u8]) {
    let Some(value) = K::read(bytes) else { return };
    let Some(written) = K::write(&value).map(|message| message.encode_to_vec()) else {
        panic!("a value that was read has no record");
    };
    assert!(K::read(&written) == Some(value), "{bytes:?} is written as {written:?}");
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
