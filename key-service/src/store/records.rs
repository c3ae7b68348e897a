//! Byte formats that all stores share: bounds of a budget, details of a usage, and payers.
//!
//! Numbers are big-endian doubles, exact below 2^53, so that scripts inside Redis read and write them. Texts have a
//! length of two bytes in front.

use shared::{
    calendar::Per,
    ids::{GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::UsageDetails,
};

use domain::ledger::{Bounds, GroupChain, Payer, Rate, Window};

/// Largest number that doubles tell from its neighbours.
const EXACT: u64 = (1 << 53) - 1;

/// Flags of the parts that bounds have, in the order of the parts behind the windows.
const REQUESTS: u8 = 1;
const TOKENS: u8 = 1 << 1;
const IN_FLIGHT: u8 = 1 << 2;
const MODELS: u8 = 1 << 3;

/// Flags in front of the length of a payer's model: a group follows the model, and the group's parent follows.
const GROUP: u16 = 1 << 15;
const PARENT: u16 = 1 << 14;

/// Largest length of a model in bytes.
const MODEL: u16 = PARENT - 1;

/// Reads a record from the beginning.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn double(&mut self) -> Option<f64> {
        Some(f64::from_be_bytes(self.bytes()?))
    }

    /// A whole number.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that is far below 2^63")]
    pub(super) fn number(&mut self) -> Option<i64> {
        self.double().filter(|n| n.is_finite()).map(|n| n as i64)
    }

    pub(super) fn count(&mut self) -> Option<u64> {
        self.number().and_then(|n| u64::try_from(n).ok())
    }

    pub(super) fn money(&mut self) -> Option<NanoUsd> {
        self.number().map(NanoUsd::from_nanos)
    }

    pub(super) fn time(&mut self) -> Option<Timestamp> {
        self.number().map(Timestamp::from_millis)
    }

    pub(super) fn text(&mut self, length: u16) -> Option<String> {
        String::from_utf8(self.take(length.into())?.to_vec()).ok()
    }

    pub(super) fn key(&mut self) -> Option<KeyId> {
        KeyId::from_slice(self.take(16)?)
    }

    pub(super) fn group(&mut self) -> Option<GroupId> {
        GroupId::from_slice(self.take(16)?)
    }

    /// A payer as written by [`payer`].
    pub(super) fn payer(&mut self) -> Option<Payer> {
        let key = self.key()?;
        let length = u16::from_be_bytes(self.bytes()?);
        let model = self.text(length & MODEL)?;
        let mut group = |flag| if length & flag == 0 { Some(None) } else { self.group().map(Some) };
        let groups = [group(GROUP)?, group(PARENT)?];
        Some(Payer { key, model, groups })
    }

    pub(super) fn models(&mut self) -> Option<Vec<String>> {
        let models = u16::from_be_bytes(self.bytes()?);
        let model = |_| {
            let length = u16::from_be_bytes(self.bytes()?);
            self.text(length)
        };
        (0..models).map(model).collect()
    }

    pub(super) fn rate(&mut self) -> Option<Rate> {
        Some(Rate { per_minute: self.count()?, taken: self.number()?, at: self.time()? })
    }
}

/// Encodes a whole number.
#[expect(clippy::cast_precision_loss, reason = "callers keep to whole numbers below 2^53")]
pub(super) const fn double(n: i64) -> [u8; 8] {
    (n as f64).to_be_bytes()
}

/// Encodes a count, at most the largest that is exact.
fn count(n: u64) -> [u8; 8] {
    double(n.min(EXACT).cast_signed())
}

/// Encodes an amount. Amounts above the largest are cut to a nano-USD more than the largest, which keeps decisions.
pub(super) fn amount(amount: NanoUsd) -> [u8; 8] {
    double(amount.nanos().clamp(-1, NanoUsd::MAX.nanos() + 1))
}

/// Encodes bounds: flags (byte), number of windows (byte), requests in flight; of each window the length (byte: 0 hour,
/// 1 day, 2 week, 3 month), amount, start, used; of each rate that is set (requests, then tokens) the bound, taken
/// units, time; the largest number in flight, if set; the models, if set: their number (two bytes) and the texts.
pub(super) fn bounds(bounds: &Bounds) -> Vec<u8> {
    let Bounds { windows, requests_per_minute, tokens_per_minute, max_in_flight, in_flight, models } = bounds;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(requests_per_minute.is_some(), REQUESTS)
        | flag(tokens_per_minute.is_some(), TOKENS)
        | flag(max_in_flight.is_some(), IN_FLIGHT)
        | flag(models.is_some(), MODELS);
    let mut record = vec![flags, windows.len().to_be_bytes()[size_of::<usize>() - 1]];
    record.extend(count(*in_flight));
    for Window { per, amount: most, start, used } in windows {
        record.push(match per {
            Per::Hour => 0,
            Per::Day => 1,
            Per::Week => 2,
            Per::Month => 3,
        });
        record.extend([amount(*most), double(start.millis()), double(used.nanos())].concat());
    }
    for Rate { per_minute, taken, at } in requests_per_minute.iter().chain(tokens_per_minute) {
        record.extend([count(*per_minute), double(*taken), double(at.millis())].concat());
    }
    record.extend(max_in_flight.map(count).into_iter().flatten());
    if let Some(models) = models {
        record.extend(u16::try_from(models.len()).unwrap_or(u16::MAX).to_be_bytes());
        for model in models.iter().take(u16::MAX.into()) {
            record.extend(length(model).to_be_bytes());
            record.extend(&model.as_bytes()[..length(model).into()]);
        }
    }
    record
}

/// Decodes bounds.
pub(super) fn read_bounds(record: &[u8]) -> Option<Bounds> {
    let mut reader = Reader(record);
    let [flags, windows] = reader.bytes()?;
    let in_flight = reader.count()?;
    let window = |reader: &mut Reader<'_>| {
        let per = match reader.bytes()? {
            [0] => Per::Hour,
            [1] => Per::Day,
            [2] => Per::Week,
            [3] => Per::Month,
            [_] => return None,
        };
        Some(Window { per, amount: reader.money()?, start: reader.time()?, used: reader.money()? })
    };
    let windows = (0..windows).map(|_| window(&mut reader)).collect::<Option<_>>()?;
    let rate =
        |reader: &mut Reader<'_>, flag| if flags & flag == 0 { Some(None) } else { reader.rate().map(Some) };
    let (requests_per_minute, tokens_per_minute) = (rate(&mut reader, REQUESTS)?, rate(&mut reader, TOKENS)?);
    let max_in_flight = if flags & IN_FLIGHT == 0 { None } else { Some(reader.count()?) };
    let models = if flags & MODELS == 0 { None } else { Some(reader.models()?) };
    let bounds = Bounds { windows, requests_per_minute, tokens_per_minute, max_in_flight, in_flight, models };
    reader.0.is_empty().then_some(bounds)
}

/// Encodes the details of a usage: a byte with a flag for each part that is not zero, and these parts as integers of
/// eight bytes. Nothing where all are zero.
pub(super) fn details(details: UsageDetails) -> Vec<u8> {
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        details;
    let parts = [cache_write, cache_write_long, audio_input, images, reasoning, audio_output];
    let mut record = vec![0];
    for (place, part) in parts.into_iter().enumerate().filter(|(_, part)| *part > 0) {
        record[0] |= 1 << place;
        record.extend(part.to_be_bytes());
    }
    if record[0] == 0 { Vec::new() } else { record }
}

/// Decodes the details of a usage.
pub(super) fn read_details(record: &[u8]) -> Option<UsageDetails> {
    let Some((flags, rest)) = record.split_first() else { return Some(UsageDetails::default()) };
    let mut reader = Reader(rest);
    let mut part = |place: u8| {
        if flags & (1 << place) == 0 { Some(0) } else { reader.bytes().map(u64::from_be_bytes) }
    };
    let details = UsageDetails {
        cache_write: part(0)?,
        cache_write_long: part(1)?,
        audio_input: part(2)?,
        images: part(3)?,
        reasoning: part(4)?,
        audio_output: part(5)?,
    };
    (reader.0.is_empty() && *flags < 1 << 6).then_some(details)
}

/// Encodes a payer: the key, the length of the model with flags for groups, the model, and the groups.
pub(super) fn payer(Payer { key, model, groups }: &Payer) -> Vec<u8> {
    let length = length(model).min(MODEL);
    let [group, parent]: &GroupChain = groups;
    let flags = if group.is_some() { GROUP } else { 0 } | if parent.is_some() { PARENT } else { 0 };
    let mut record =
        [key.as_bytes(), &(length | flags).to_be_bytes()[..], &model.as_bytes()[..length.into()]].concat();
    record.extend(group.iter().chain(parent).flat_map(|group| *group.as_bytes()));
    record
}

fn length(text: &str) -> u16 {
    u16::try_from(text.len()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use domain::ledger::histories::{START, key};

    fn rates() -> impl Strategy<Value = Rate> {
        (1..EXACT, 0..domain::ledger::MOST_TAKEN, 0..1_i64 << 45).prop_map(|(per_minute, taken, at)| Rate {
            per_minute,
            taken,
            at: Timestamp::from_millis(at),
        })
    }

    fn windows() -> impl Strategy<Value = Window> {
        let nanos = || (0..=NanoUsd::MAX.nanos()).prop_map(NanoUsd::from_nanos);
        let per = prop_oneof![Just(Per::Hour), Just(Per::Day), Just(Per::Week), Just(Per::Month)];
        (per, nanos(), -5..1_i64 << 45, nanos()).prop_map(|(per, amount, start, used)| Window {
            per,
            amount,
            start: Timestamp::from_millis(start),
            used,
        })
    }

    fn some_bounds() -> impl Strategy<Value = Bounds> {
        let parts = (vec(windows(), 0..5), option::of(rates()), option::of(rates()));
        (parts, option::of(0..EXACT), 0..EXACT, option::of(vec("[a-zé/ -]{0,9}", 0..4))).prop_map(
            |((windows, requests_per_minute, tokens_per_minute), max_in_flight, in_flight, models)| Bounds {
                windows,
                requests_per_minute,
                tokens_per_minute,
                max_in_flight,
                in_flight,
                models,
            },
        )
    }

    proptest! {
        #[test]
        fn bounds_come_back_as_they_were_written(some in some_bounds(), cut in 0..400_usize) {
            let record = bounds(&some);
            prop_assert_eq!(read_bounds(&record), Some(some));
            prop_assert_eq!(read_bounds(&[&record[..], &[0]].concat()), None);
            if cut < record.len() {
                prop_assert_eq!(read_bounds(&record[..cut]), None);
            }
        }

        #[test]
        fn details_come_back_as_they_were_written(parts in proptest::array::uniform6(0..3_u64), far: bool) {
            let [cache_write, cache_write_long, audio_input, images, reasoning, audio_output] =
                parts.map(|part| if far && part > 1 { u64::MAX } else { part });
            let some =
                UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output };
            let record = details(some);
            prop_assert_eq!(record.is_empty(), some.is_empty());
            prop_assert_eq!(read_details(&record), Some(some));
        }

        #[test]
        fn payers_come_back_as_they_were_written(model in "[a-zé/ -]{0,40}", groups in 0..3_u8) {
            let group = |n: u8| (groups > n).then(|| GroupId::new(START, [n; 10]));
            let some = Payer { key: key(1), model, groups: [group(0), group(1)] };
            let record = payer(&some);
            let mut reader = Reader(&record);
            prop_assert_eq!(reader.payer(), Some(some.clone()));
            prop_assert!(reader.0.is_empty());
            prop_assert_eq!(record.len(), 18 + some.model.len() + 16 * usize::from(groups));
        }
    }
}
