//! Kinds of the ledger's records, with their names and values.

use std::hash::Hash;

use domain::{
    ledger::{Group, Key, Record as GenerationRecord},
    usage::{Counts, Day, DayTotal, GroupDay, Margin, UserDay},
};
use minicbor::{Decode, Encode};
use records::Name;
use shared::ids::{DepositId, GenerationId, GroupId, KeyId};

use crate::{
    names::{self, PayerName},
    stored::{AccountRecord, Balance, EventsKept, House, PayersOfKey, Told, Turn},
};

/// A kind of ledger record. The implementing type is its id.
pub(crate) trait RecordKind: Clone + Eq + Hash {
    /// Type of the value. The default means that the record is absent, and is never written.
    type Value: Clone + PartialEq + Default + Encode<()> + for<'b> Decode<'b, ()>;

    fn name(&self) -> Name;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TheAccount;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TheTurn;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TheEvents;
/// The record of what housekeeping has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TheHouse;
/// The bill of an expired generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expired(pub(crate) GenerationId);
/// Sums of a payer on a day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PayerSum(pub(crate) Day, pub(crate) PayerName);
/// The payers of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PayersOf(pub(crate) KeyId);
/// Sums of a model on a day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModelSum(pub(crate) Day, pub(crate) String);
/// Sums of a group on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupSum(pub(crate) Day, pub(crate) GroupId);
/// Sums of a part of the users on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UserSum(pub(crate) Day, pub(crate) u8);
/// Name of a threshold, which is reported once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ToldName(pub(crate) Vec<u8>);

impl RecordKind for TheAccount {
    type Value = Option<AccountRecord>;

    fn name(&self) -> Name {
        names::account()
    }
}

impl RecordKind for TheTurn {
    type Value = Option<Turn>;

    fn name(&self) -> Name {
        names::turn()
    }
}

impl RecordKind for TheEvents {
    type Value = EventsKept;

    fn name(&self) -> Name {
        names::events()
    }
}

impl RecordKind for TheHouse {
    type Value = Option<House>;

    fn name(&self) -> Name {
        names::house()
    }
}

impl RecordKind for KeyId {
    type Value = Option<Balance<Key>>;

    fn name(&self) -> Name {
        names::key(*self)
    }
}

impl RecordKind for GroupId {
    type Value = Option<Balance<Group>>;

    fn name(&self) -> Name {
        names::group(*self)
    }
}

impl RecordKind for GenerationId {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::generation(*self)
    }
}

impl RecordKind for Expired {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::expired(self.0)
    }
}

impl RecordKind for DepositId {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::deposit(*self)
    }
}

impl RecordKind for PayerSum {
    type Value = Balance<DayTotal<Counts>>;

    fn name(&self) -> Name {
        names::of_payer(self.0, &self.1)
    }
}

impl RecordKind for PayersOf {
    type Value = PayersOfKey;

    fn name(&self) -> Name {
        names::payers(self.0)
    }
}

impl RecordKind for ModelSum {
    type Value = Balance<DayTotal<Margin>>;

    fn name(&self) -> Name {
        names::of_model(self.0, &self.1)
    }
}

impl RecordKind for GroupSum {
    type Value = Balance<GroupDay>;

    fn name(&self) -> Name {
        names::of_group(self.0, self.1)
    }
}

impl RecordKind for UserSum {
    type Value = Balance<UserDay>;

    fn name(&self) -> Name {
        names::of_users(self.0, self.1)
    }
}

impl RecordKind for ToldName {
    type Value = Option<Told>;

    fn name(&self) -> Name {
        names::told(&self.0)
    }
}
