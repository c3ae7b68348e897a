//! Names of payers, and the stored lists of the payers of keys.

use domain::{ledger::Payer, usage::Day};
use minicbor::{Decode, Encode, decode, encode};
use records::NameBytes;
use serde::{Serialize, Serializer};
use shared::ids::{GroupId, KeyId};

/// Maximum number of payers in a key's list. A key has several if it uses several models or moves between groups.
const MOST_LISTED: usize = 200;

/// A payer's key, groups and model as bytes; the parts of fixed length come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayerName(NameBytes);

impl<C> Encode<C> for PayerName {
    fn encode<W: encode::Write>(
        &self,
        encoder: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        encoder.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for PayerName {
    fn decode(decoder: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let name = decoder.bytes()?;
        let is_payer = Self::read(name).is_some();
        is_payer.then(|| Self(name.into())).ok_or_else(|| decode::Error::message("not a payer"))
    }
}

impl Serialize for PayerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl PayerName {
    /// Encodes the name of a payer among the sums of payers.
    pub fn of(Payer { key, model, groups }: &Payer) -> Self {
        let [group, parent] =
            groups.each_ref().map(|group| group.as_ref().map_or(&[0; 16], GroupId::as_bytes));
        Self(NameBytes::concat([b"p", key.as_bytes(), group, parent, model.as_bytes()]))
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) const fn bytes(&self) -> &NameBytes {
        &self.0
    }

    /// Decodes a payer's name; `None` for any other bytes.
    pub fn read(name: &[u8]) -> Option<Payer> {
        let (ids, model) = name.strip_prefix(b"p")?.split_at_checked(48)?;
        let group = |id: &[u8]| match id {
            [0, ..] if id.iter().all(|byte| *byte == 0) => Some(None),
            id => GroupId::from_slice(id).map(Some),
        };
        let groups = [group(&ids[16..32])?, group(&ids[32..])?];
        Some(Payer {
            key: KeyId::from_slice(&ids[..16])?,
            model: String::from_utf8(model.to_vec()).ok()?,
            groups,
        })
    }
}

/// Returns the number of the part that contains a day. Days before 1970 are in the first part.
pub fn day_part(day: Day) -> u32 {
    u32::try_from(day.number()).unwrap_or_default()
}

/// The payers of a key, so that its sums are found without reading other keys' sums. Set `payers`, name `k` and the
/// key's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PayersOfKey {
    #[n(0)]
    pub payers: Vec<PayerSpan>,
    /// From this day on, all payers are listed. Stored as a part number, as in the names of sets.
    #[n(1)]
    pub whole_from: u32,
}

/// A payer, with the first and last part in which it has sums.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PayerSpan {
    #[n(0)]
    pub name: PayerName,
    #[n(1)]
    pub first: u32,
    #[n(2)]
    pub last: u32,
}

impl PayersOfKey {
    /// Adds a payer's sums of a day to the list. Drops payers without sums since the day `kept`, and the oldest payers
    /// if there are too many.
    pub(crate) fn list(&mut self, name: &PayerName, day: Day, kept: Option<Day>) {
        let day = day_part(day);
        self.payers.retain(|payer| kept.is_none_or(|kept| payer.last >= day_part(kept)));
        match self.payers.iter_mut().find(|payer| payer.name == *name) {
            Some(payer) => (payer.first, payer.last) = (payer.first.min(day), payer.last.max(day)),
            None => self.payers.push(PayerSpan { name: name.clone(), first: day, last: day }),
        }
        if self.payers.len() > MOST_LISTED
            && let Some((place, oldest)) = self.payers.iter().enumerate().min_by_key(|(_, payer)| payer.last)
        {
            self.whole_from = self.whole_from.max(oldest.last + 1);
            self.payers.swap_remove(place);
        }
    }

    /// Returns whether the list includes this payer's sums for the day.
    pub fn finds(&self, name: &[u8], day: Day) -> bool {
        let day = day_part(day);
        let is_it =
            |payer: &PayerSpan| payer.name.as_bytes() == name && (payer.first..=payer.last).contains(&day);
        day < self.whole_from || self.payers.iter().any(is_it)
    }
}
