//! Holds, settlements, entries of the journal, and counters.

use shared::{
    ids::{GenerationId, KeyId},
    time::Timestamp,
    tokens::Usage,
};

use super::{Reader, amount, damaged, double};
use crate::store::{JournalEntry, StoreError};
use domain::{
    ledger::{Ending, Entry, Payer, Progress, Settlement},
    usage::Counts,
};

/// Codes of a bill's ending, as in `scripts/ledger/arguments.lua`.
const CAPTURED: u8 = 0;
const ESTIMATED: u8 = 1;
const EXPIRED: u8 = 2;

/// The id of a key and a model: the end of every hold and settlement, and the name of a counter.
pub(in crate::store::redis) fn write_payer(key: KeyId, model: &str) -> Vec<u8> {
    let length = u16::try_from(model.len()).unwrap_or(u16::MAX);
    [key.as_bytes(), &length.to_be_bytes()[..], &model.as_bytes()[..length.into()]].concat()
}

/// Bytes of an encoded bill: ending, cost and usage.
pub(in crate::store::redis) const BILL_SIZE: usize = 33;

/// Encodes a bill for the ledger.
pub(in crate::store::redis) fn write_bill(
    progress: Progress,
    ending: Ending,
    estimated: bool,
) -> [u8; BILL_SIZE] {
    let Progress { usage: Usage { prompt, cached, completion, .. }, cost, upstream_cost: _ } = progress;
    let mut bill = [0; BILL_SIZE];
    bill[0] = match (ending, estimated) {
        (Ending::Expired, _) => EXPIRED,
        (Ending::Captured, true) => ESTIMATED,
        (Ending::Captured, false) => CAPTURED,
    };
    bill[1..9].copy_from_slice(&double(amount(cost)));
    bill[9..17].copy_from_slice(&prompt.to_be_bytes());
    bill[17..25].copy_from_slice(&cached.to_be_bytes());
    bill[25..].copy_from_slice(&completion.to_be_bytes());
    bill
}

/// Reads the fields of an open hold that are needed outside the ledger: the key, and the tick of the hold's end.
pub(in crate::store::redis) fn read_hold(record: &[u8]) -> Option<(KeyId, u64)> {
    let mut reader = Reader(record);
    let (b"H", _amount, lease_until) = (reader.take(1)?, reader.money()?, reader.count()?) else {
        return None;
    };
    reader.take(BILL_SIZE)?;
    Some((reader.payer()?.0, lease_until))
}

/// Reads a settlement with the effect on the key's balance. An entry of the journal ends with these fields.
pub(in crate::store::redis) fn read_settlement(reader: &mut Reader<'_>) -> Option<Entry> {
    let b"S" = reader.take(1)? else { return None };
    let at = Timestamp::from_millis(reader.number()?);
    let (charged, delta, used_after) = (reader.money()?, reader.money()?, reader.sum()?);
    let ([ending], cost, usage) = (reader.bytes()?, reader.money()?, reader.usage()?);
    let (key, model) = reader.payer()?;
    let (ending, estimated) = match ending {
        CAPTURED => (Ending::Captured, false),
        ESTIMATED => (Ending::Captured, true),
        EXPIRED => (Ending::Expired, true),
        _ => return None,
    };
    let payer = Payer::alone(key, model);
    let settlement = Settlement { payer, usage, cost, upstream_cost: None, charged, ending, estimated, at };
    Some(Entry { settlement, delta, used_after })
}

/// Reads the entries of an addition to the journal; `number` is the number of the first entry.
pub(in crate::store::redis) fn read_entries(
    mut number: u64,
    text: &[u8],
) -> Result<Vec<JournalEntry>, StoreError> {
    let (mut reader, mut entries) = (Reader(text), Vec::new());
    while !reader.0.is_empty() {
        let generation = reader.take(16).and_then(GenerationId::from_slice);
        let entry = generation.zip(read_settlement(&mut reader));
        let (generation, entry) = entry.ok_or_else(|| damaged("an entry of a journal"))?;
        entries.push(JournalEntry { number, generation, entry });
        number += 1;
    }
    Ok(entries)
}

/// A counter.
pub(in crate::store::redis) fn read_counts(record: &[u8]) -> Option<Counts> {
    let mut reader = Reader(record);
    Some(Counts {
        requests: reader.count()?,
        usage: Usage::of(reader.count()?, reader.count()?, reader.count()?),
        charged: reader.money()?,
        ..Counts::default()
    })
}
