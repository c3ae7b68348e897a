//! Holds, settlements, entries of the journal, and counters.

use shared::{
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    tokens::Usage,
};

use super::{Reader, amount, damaged, double, sum};
use crate::store::{JournalEntry, StoreError, records};
use domain::{
    ledger::{Ending, Entry, GroupChain, Progress, Settlement},
    usage::Counts,
};

/// Codes of a bill's ending, and flags beside the ending: the further parts that follow the payer
/// (`scripts/constants.lua`).
const CAPTURED: u8 = 0;
const ESTIMATED: u8 = 1;
const EXPIRED: u8 = 2;
const UPSTREAM_COST: u8 = 16;
const DETAILS: u8 = 32;

/// Bytes of an encoded bill: ending, cost and usage.
pub(in crate::store::redis) const BILL_SIZE: usize = 33;

/// Encodes a bill for the ledger.
pub(in crate::store::redis) fn write_bill(
    progress: Progress,
    ending: Ending,
    estimated: bool,
) -> [u8; BILL_SIZE] {
    let Progress { usage: Usage { prompt, cached, completion, details }, cost, upstream_cost } = progress;
    let mut bill = [0; BILL_SIZE];
    bill[0] = match (ending, estimated) {
        (Ending::Expired, _) => EXPIRED,
        (Ending::Captured, true) => ESTIMATED,
        (Ending::Captured, false) => CAPTURED,
    };
    bill[0] |= if upstream_cost.is_some() { UPSTREAM_COST } else { 0 };
    bill[0] |= if details.is_empty() { 0 } else { DETAILS };
    bill[1..9].copy_from_slice(&double(amount(cost)));
    bill[9..17].copy_from_slice(&prompt.to_be_bytes());
    bill[17..25].copy_from_slice(&cached.to_be_bytes());
    bill[25..].copy_from_slice(&completion.to_be_bytes());
    bill
}

/// Encodes the parts that the flags of a bill announce: the cost to the operator, the details of the usage. Empty for
/// most bills.
pub(in crate::store::redis) fn further_parts(progress: &Progress) -> Vec<u8> {
    let mut parts: Vec<u8> =
        progress.upstream_cost.map(|cost| double(amount(cost))).into_iter().flatten().collect();
    parts.extend(records::details(progress.usage.details));
    parts
}

/// Fields of an open hold that are needed outside the ledger.
pub(in crate::store::redis) struct HoldSummary {
    pub(in crate::store::redis) key: KeyId,
    pub(in crate::store::redis) groups: GroupChain,
    pub(in crate::store::redis) amount: NanoUsd,
    /// Tick of the hold's end.
    pub(in crate::store::redis) lease_until: u64,
}

/// Reads an open hold.
pub(in crate::store::redis) fn read_hold(record: &[u8]) -> Option<HoldSummary> {
    let mut reader = Reader(record);
    let (b"H" | b"h", amount, lease_until) = (reader.take(1)?, reader.money()?, reader.count()?) else {
        return None;
    };
    reader.take(BILL_SIZE)?;
    let payer = reader.payer()?;
    Some(HoldSummary { key: payer.key, groups: payer.groups, amount, lease_until })
}

/// Reads a settlement with the effect on the key's balance. An entry of the journal ends with these fields.
pub(in crate::store::redis) fn read_settlement(reader: &mut Reader<'_>) -> Option<Entry> {
    let (b"S" | b"s") = reader.take(1)? else { return None };
    let (at, charged, delta) = (reader.time()?, reader.money()?, reader.money()?);
    let (used_after, [ending], cost) = (sum(reader)?, reader.bytes()?, reader.money()?);
    let mut tokens = || Some(u64::from_be_bytes(reader.bytes()?));
    let mut usage = Usage::of(tokens()?, tokens()?, tokens()?);
    let payer = reader.payer()?;
    let upstream_cost = if ending & UPSTREAM_COST == 0 { None } else { Some(reader.money()?) };
    if ending & DETAILS != 0 {
        let flags = *reader.0.first()?;
        usage.details = records::read_details(reader.take(1 + 8 * flags.count_ones() as usize)?)?;
    }
    let (ending, estimated) = match ending & !(UPSTREAM_COST | DETAILS) {
        CAPTURED => (Ending::Captured, false),
        ESTIMATED => (Ending::Captured, true),
        EXPIRED => (Ending::Expired, true),
        _ => return None,
    };
    let settlement = Settlement { payer, usage, cost, upstream_cost, charged, ending, estimated, at };
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

/// Reads a counter. Costs to the operator and details of usage follow where any were counted.
pub(in crate::store::redis) fn read_counts(record: &[u8]) -> Option<Counts> {
    let mut reader = Reader(record);
    let mut counts = Counts {
        requests: reader.count()?,
        usage: Usage::of(reader.count()?, reader.count()?, reader.count()?),
        charged: reader.money()?,
        ..Counts::default()
    };
    if !reader.0.is_empty() {
        (counts.upstream_cost, counts.charged_at_known_cost) = (reader.money()?, reader.money()?);
        let details = &mut counts.usage.details;
        details.cache_write = reader.count()?;
        details.cache_write_long = reader.count()?;
        details.audio_input = reader.count()?;
        details.images = reader.count()?;
        details.reasoning = reader.count()?;
        details.audio_output = reader.count()?;
    }
    Some(counts)
}
