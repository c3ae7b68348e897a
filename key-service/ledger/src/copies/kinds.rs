//! Kinds of the ledger's records, with their names and messages.

use std::hash::Hash;

use domain::{
    ledger::{Group, Key, Record as GenerationRecord},
    usage::{Counts, Day, DayTotal, GroupDay, Margin, UserDay},
};
use prost::Message;
use records::Name;
use shared::ids::{DepositId, GenerationId, GroupId, KeyId};

use super::super::{
    codec::{self, AccountRecord, Balance},
    names::{self, PayerName},
};
use crate::messages;

/// A kind of ledger record. The implementing type is its id.
pub(crate) trait RecordKind: Clone + Eq + Hash {
    /// Type of the value. The default means that the record is absent.
    type Value: Clone + PartialEq + Default;

    fn name(&self) -> Name;

    /// Encodes a value as a message; `None` for a default without one.
    fn write(value: &Self::Value) -> Option<impl Message>;

    /// Decodes a message; `None` if no program writes such a message.
    fn read(message: &[u8]) -> Option<Self::Value>;
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

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.as_ref().map(codec::write_account)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        Some(Some(codec::read_account(&messages::Account::decode(message).ok()?)))
    }
}

impl RecordKind for TheTurn {
    type Value = Option<[u8; 8]>;

    fn name(&self) -> Name {
        names::turn()
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.map(|of| messages::Turn { of: of.to_vec() })
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        Some(Some(messages::Turn::decode(message).ok()?.of.try_into().ok()?))
    }
}

impl RecordKind for TheEvents {
    type Value = codec::EventsKept;

    fn name(&self) -> Name {
        names::events()
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(messages::EventsKept { first: value.first, bytes: value.bytes })
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        let messages::EventsKept { first, bytes } = messages::EventsKept::decode(message).ok()?;
        Some(codec::EventsKept { first, bytes })
    }
}

impl RecordKind for TheHouse {
    type Value = Option<messages::House>;

    fn name(&self) -> Name {
        names::house()
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.clone()
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        messages::House::decode(message).ok().map(Some)
    }
}

impl RecordKind for KeyId {
    type Value = Option<Balance<Key>>;

    fn name(&self) -> Name {
        names::key(*self)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.as_ref().map(codec::write_key)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_key(messages::Key::decode(message).ok()?).map(Some)
    }
}

impl RecordKind for GroupId {
    type Value = Option<Balance<Group>>;

    fn name(&self) -> Name {
        names::group(*self)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.as_ref().map(codec::write_group)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_group(messages::Group::decode(message).ok()?).map(Some)
    }
}

impl RecordKind for GenerationId {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::generation(*self)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        codec::write_generation(value)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_generation(messages::Generation::decode(message).ok()?)
    }
}

impl RecordKind for Expired {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::expired(self.0)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        codec::write_generation(value)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_generation(messages::Generation::decode(message).ok()?)
    }
}

impl RecordKind for DepositId {
    type Value = GenerationRecord;

    fn name(&self) -> Name {
        names::deposit(*self)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        codec::write_deposit(value)
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_deposit(messages::Deposit::decode(message).ok()?)
    }
}

impl RecordKind for PayerSum {
    type Value = Balance<DayTotal<Counts>>;

    fn name(&self) -> Name {
        names::of_payer(self.0, &self.1)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(codec::write_counts(value))
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_counts(messages::Sums::decode(message).ok()?)
    }
}

impl RecordKind for PayersOf {
    type Value = codec::PayersOfKey;

    fn name(&self) -> Name {
        names::payers(self.0)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(codec::write_payers(value))
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_payers(messages::KeyPayers::decode(message).ok()?)
    }
}

impl RecordKind for ModelSum {
    type Value = Balance<DayTotal<Margin>>;

    fn name(&self) -> Name {
        names::of_model(self.0, &self.1)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(codec::write_margin(value))
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_margin(messages::Sums::decode(message).ok()?)
    }
}

impl RecordKind for GroupSum {
    type Value = Balance<GroupDay>;

    fn name(&self) -> Name {
        names::of_group(self.0, self.1)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(codec::write_group_day(value))
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_group_day(messages::GroupSums::decode(message).ok()?)
    }
}

impl RecordKind for UserSum {
    type Value = Balance<UserDay>;

    fn name(&self) -> Name {
        names::of_users(self.0, self.1)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        Some(codec::write_user_day(value))
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        codec::read_user_day(messages::UserSums::decode(message).ok()?)
    }
}

impl RecordKind for ToldName {
    type Value = Option<u64>;

    fn name(&self) -> Name {
        names::told(&self.0)
    }

    fn write(value: &Self::Value) -> Option<impl Message> {
        value.map(|event| messages::Told { event })
    }

    fn read(message: &[u8]) -> Option<Self::Value> {
        Some(Some(messages::Told::decode(message).ok()?.event))
    }
}
