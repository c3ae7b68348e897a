//! The ledger's part of keys and groups, in the account's hash.

use shared::{ids::GroupId, money::NanoUsd, time::Timestamp};

use super::{CARRY, Reader, amount, damaged, double, optional, setting, sum};
use crate::store::{StoreError, records};
use domain::ledger::{Bounds, Budget, Group, Key, Rotation};

/// Flags of what follows the numbers of a budget (`scripts/budgets.lua`): a group, then a rotation, then bounds.
const GROUP: u8 = 1;
const BOUNDS: u8 = 1 << 1;
const ROTATION: u8 = 1 << 2;

/// Writes the ledger's part of a key.
pub(in crate::store::redis) fn write_spend(key: &Key) -> Vec<u8> {
    let Key { budget, group, rotation, expires_at, revoked_at, last_used_at } = key;
    let times = [expires_at, revoked_at, last_used_at];
    let times = times.map(|at| optional(at.map(Timestamp::millis)));
    let rest = write_rest(*group, *rotation, budget.bounds.as_deref());
    [&write_money(budget)[..], &times.concat(), &rest].concat()
}

/// Reads the ledger's part of a key.
pub(in crate::store::redis) fn read_spend(record: &[u8]) -> Result<Key, StoreError> {
    let read = || {
        let mut reader = Reader(record);
        let budget = read_money(&mut reader)?;
        let mut time = || Some(setting(&mut reader, Timestamp::from_millis)?.0);
        let (expires_at, revoked_at, last_used_at) = (time()?, time()?, time()?);
        let Rest { group, rotation, bounds } = read_rest(reader)?;
        let budget = Budget { bounds, ..budget };
        Some(Key { budget, group, rotation, expires_at, revoked_at, last_used_at })
    };
    read().ok_or_else(|| damaged("the balances of a key"))
}

/// Field of a group in the account's hash. Fields of keys are as long as their ids, without a letter in front.
pub(in crate::store::redis) fn group_field(id: GroupId) -> Vec<u8> {
    [&b"g"[..], id.as_bytes()].concat()
}

/// The field of the opening balance of a key or group with this field: the nano-USD that an import brought, as text.
pub(in crate::store::redis) fn opening_field(field: &[u8]) -> Vec<u8> {
    [b"o", field].concat()
}

/// Writes the ledger's part of a group.
pub(in crate::store::redis) fn write_group_spend(group: &Group) -> Vec<u8> {
    let Group { budget, parent, archived_at } = group;
    let archived_at = optional(archived_at.map(Timestamp::millis));
    let rest = write_rest(*parent, Rotation::default(), budget.bounds.as_deref());
    [&write_money(budget)[..], &archived_at, &rest].concat()
}

/// Reads the ledger's part of a group.
pub(in crate::store::redis) fn read_group_spend(record: &[u8]) -> Result<Group, StoreError> {
    let read = || {
        let mut reader = Reader(record);
        let budget = read_money(&mut reader)?;
        let archived_at = setting(&mut reader, Timestamp::from_millis)?.0;
        let Rest { group, rotation: _, bounds } = read_rest(reader)?;
        Some(Group { budget: Budget { bounds, ..budget }, parent: group, archived_at })
    };
    read().ok_or_else(|| damaged("the balances of a group"))
}

/// Writes what follows the numbers of a budget: nothing for most keys.
pub(in crate::store::redis) fn write_rest(
    group: Option<GroupId>,
    rotation: Rotation,
    bounds: Option<&Bounds>,
) -> Vec<u8> {
    let is_rotated = rotation != Rotation::default();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(group.is_some(), GROUP) | flag(is_rotated, ROTATION) | flag(bounds.is_some(), BOUNDS);
    if flags == 0 {
        return Vec::new();
    }
    let mut rest = vec![flags];
    rest.extend(group.iter().flat_map(|group| *group.as_bytes()));
    if is_rotated {
        rest.extend(write_rotation(rotation));
    }
    rest.extend(bounds.map(records::bounds).unwrap_or_default());
    rest
}

/// Writes a rotation: the number of the current credential, and the end of the grace.
pub(in crate::store::redis) fn write_rotation(Rotation { current, previous_until }: Rotation) -> Vec<u8> {
    [double(current.cast_signed()), optional(previous_until.map(Timestamp::millis))].concat()
}

/// What follows the numbers of a budget.
#[derive(Default)]
struct Rest {
    /// Group of a key, or parent of a group.
    group: Option<GroupId>,
    rotation: Rotation,
    bounds: Option<Box<Bounds>>,
}

fn read_rest(mut reader: Reader<'_>) -> Option<Rest> {
    if reader.0.is_empty() {
        return Some(Rest::default());
    }
    let [flags] = reader.bytes()?;
    let group = if flags & GROUP == 0 { None } else { Some(reader.group()?) };
    let rotation = if flags & ROTATION == 0 { Rotation::default() } else { read_rotation(&mut reader)? };
    let bounds = if flags & BOUNDS == 0 { None } else { Some(Box::new(records::read_bounds(reader.0)?)) };
    Some(Rest { group, rotation, bounds })
}

fn read_rotation(reader: &mut Reader<'_>) -> Option<Rotation> {
    let current = reader.count()?;
    Some(Rotation { current, previous_until: setting(reader, Timestamp::from_millis)?.0 })
}

fn write_money(Budget { limit, used, held, bounds: _ }: &Budget) -> Vec<u8> {
    let (high, low) = (used.nanos().div_euclid(CARRY), used.nanos().rem_euclid(CARRY));
    [optional(limit.map(amount)), double(high), double(low), double(held.nanos())].concat()
}

fn read_money(reader: &mut Reader<'_>) -> Option<Budget> {
    let limit = setting(reader, NanoUsd::from_nanos)?.0;
    Some(Budget { limit, used: sum(reader)?, held: reader.money()?, bounds: None })
}
