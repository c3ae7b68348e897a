//! Compares keys and groups with the indexes used to find them.
//!
//! Indexes are read page by page while keys change. Keys and groups that seem faulty are then read again together with
//! their entries, at one moment, and compared again.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::{
    audit::{Auditor, BudgetOwner, Listing, Stored},
    key::Status,
    ledger::{Group, Key},
};
use key_service_ledger::{
    StoreError,
    names::{
        self,
        nouns::{self as layout, expiry_entry, group_entry, name_entry, status_entry},
    },
    reading::{no_answer, value},
    stored::{Balance, KeyProfile},
};
use records::{Answer, Index, Name, Order, Question, Record, Space};
use shared::ids::{GroupId, KeyId};

use crate::{
    bounds::AT_ONCE,
    reading::{Books, damaged},
};

/// Indexes of keys and of groups.
const INDEXES: [Index; 7] = [
    layout::KEYS,
    layout::GROUPS,
    layout::KEYS_OF_GROUPS,
    layout::CHILD_GROUPS,
    names::SPENDERS,
    layout::KEYS_BY_STATUS,
    layout::KEYS_EXPIRING,
];
/// Number of keys or groups to check again at a time.
const DOUBTED_AT_ONCE: usize = 50;
/// How many times to try to read a key together with its entries at one moment. An attempt fails if the key's settings
/// change at the same time.
const ATTEMPTS: u32 = 10;
const ID: usize = 16;

type IndexEntry = (Index, Vec<u8>);

/// Index entries that a key or a group must have.
#[derive(Default)]
struct Entries {
    must: Vec<IndexEntry>,
    /// For an active key that expires: its entry as active, its entry as expiring, and its entry as expired. The key
    /// must have either the first two entries or the third.
    expiring: Option<[IndexEntry; 3]>,
}

/// The entries that an account's keys and groups must have, and which of these entries have been found.
#[derive(Default)]
pub(super) struct ExpectedEntries {
    must: HashMap<IndexEntry, BudgetOwner>,
    expiring: HashMap<IndexEntry, (KeyId, usize)>,
    /// For a key that expires, which of its three possible entries have been found.
    found: BTreeMap<KeyId, [bool; 3]>,
    missing: Vec<Stored>,
    doubted: BTreeMap<BudgetOwner, Vec<IndexEntry>>,
}

impl ExpectedEntries {
    /// Adds the entries that a listed key or group must have.
    pub(super) fn add(
        &mut self,
        of: BudgetOwner,
        money: Option<&Record>,
        profile: Option<&Record>,
    ) -> Result<(), StoreError> {
        if money.is_none() {
            self.missing.push(Stored::Money(of));
        }
        if profile.is_none() {
            self.missing.push(Stored::Profile(of));
        }
        let Entries { must, expiring } = entries_of(of, money, profile)?;
        self.must.extend(must.into_iter().map(|entry| (entry, of)));
        if let (BudgetOwner::Key(id), Some(entries)) = (of, expiring) {
            self.found.insert(id, [false; 3]);
            self.expiring.extend(entries.into_iter().zip(0..).map(|(entry, place)| (entry, (id, place))));
        }
        Ok(())
    }

    /// Marks an index entry as found.
    fn find(&mut self, entry: IndexEntry) -> Result<(), StoreError> {
        if self.must.remove(&entry).is_some() {
            return Ok(());
        }
        if let Some((key, place)) = self.expiring.get(&entry) {
            if let Some(found) = self.found.get_mut(key) {
                found[*place] = true;
            }
            return Ok(());
        }
        let of = owner(&entry).ok_or_else(|| damaged("an entry of an index of keys or groups"))?;
        self.doubted.entry(of).or_default().push(entry);
        Ok(())
    }

    /// Marks every key or group that lacks an entry, so that it is checked again.
    fn doubt_missing(&mut self) {
        for of in self.must.values() {
            self.doubted.entry(*of).or_default();
        }
        for (key, _) in self.found.iter().filter(|(_, found)| !is_listed_once(**found)) {
            self.doubted.entry(BudgetOwner::Key(*key)).or_default();
        }
    }
}

/// Returns whether an active key that expires has exactly the entries that it must have.
fn is_listed_once(found: [bool; 3]) -> bool {
    matches!(found, [true, true, false] | [false, false, true])
}

impl Books<'_> {
    /// Compares the entries of all indexes with the entries that keys and groups must have.
    pub(super) async fn prove_indexes(
        &self,
        space: &Space,
        mut expected: ExpectedEntries,
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        for index in INDEXES {
            let mut from = Vec::new();
            loop {
                let range = (from, None);
                let entries = self.read().entries(space, index, range, Order::Ascending, AT_ONCE).await?;
                let is_last = entries.len() < AT_ONCE;
                from = entries.last().map(|last| [last, &[0][..]].concat()).unwrap_or_default();
                for entry in entries {
                    expected.find((index, entry))?;
                }
                if is_last {
                    break;
                }
            }
        }
        expected.doubt_missing();
        let ExpectedEntries { missing, doubted, .. } = expected;
        for missing in missing {
            auditor.missing(missing);
        }
        let doubted: Vec<_> = doubted.into_iter().collect();
        for doubted in doubted.chunks(DOUBTED_AT_ONCE) {
            self.look_again(space, doubted.to_vec(), auditor).await?;
        }
        Ok(())
    }

    /// Reads keys and groups with their entries at one moment, and compares them.
    async fn look_again(
        &self,
        space: &Space,
        mut doubted: Vec<(BudgetOwner, Vec<IndexEntry>)>,
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let owners: Vec<_> = doubted.iter().map(|(of, _)| *of).collect();
            let Some(Answer::Records(records)) =
                self.read().ask(space, vec![records_of(&owners)]).await?.pop()
            else {
                return Err(no_answer());
            };
            let mut asked: HashSet<IndexEntry> =
                doubted.iter().flat_map(|(_, entries)| entries.clone()).collect();
            for (of, records) in owners.iter().zip(records.chunks_exact(2)) {
                let Entries { must, expiring } = entries_of(*of, records[0].as_ref(), records[1].as_ref())?;
                asked.extend(must.into_iter().chain(expiring.into_iter().flatten()));
            }
            let asked: Vec<_> = asked.into_iter().filter(|(index, _)| *index != names::SPENDERS).collect();
            let (records, present) = self.with_entries(space, &owners, &asked).await?;
            let asked: HashSet<_> = asked.into_iter().collect();
            let mut again = Vec::new();
            for ((of, entries), records) in doubted.into_iter().zip(records.chunks_exact(2)) {
                let now = entries_of(of, records[0].as_ref(), records[1].as_ref())?;
                let mut all = now.must.iter().chain(now.expiring.iter().flatten());
                if all.all(|entry| entry.0 == names::SPENDERS || asked.contains(entry)) {
                    judge(of, &now, &entries, &present, auditor);
                } else {
                    again.push((of, entries));
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            doubted = again;
        }
        Err(StoreError::Busy("keys change faster than they can be audited"))
    }

    /// Reads keys or groups at one moment, and finds out which of the `asked` entries exist. Reads the index of keys by
    /// spend as a whole, because each bill moves an entry in that index.
    async fn with_entries(
        &self,
        space: &Space,
        owners: &[BudgetOwner],
        asked: &[IndexEntry],
    ) -> Result<(Vec<Option<Record>>, HashSet<IndexEntry>), StoreError> {
        let one = |(index, entry): &IndexEntry| Question::entry(*index, entry);
        let first = [records_of(owners), Question::whole(names::SPENDERS)];
        let questions = first.into_iter().chain(asked.iter().map(one)).collect();
        let mut answers = self.read().ask(space, questions).await?.into_iter();
        let (Some(Answer::Records(records)), Some(Answer::Entries(spenders))) =
            (answers.next(), answers.next())
        else {
            return Err(no_answer());
        };
        let mut present: HashSet<IndexEntry> =
            spenders.into_iter().map(|entry| (names::SPENDERS, entry)).collect();
        for ((index, _), answer) in asked.iter().zip(answers) {
            let Answer::Entries(found) = answer else { return Err(no_answer()) };
            present.extend(found.into_iter().map(|entry| (*index, entry)));
        }
        Ok((records, present))
    }
}

/// Reports the entries that a key or group lacks, and the existing entries in `entries` that it should not have.
fn judge(
    of: BudgetOwner,
    now: &Entries,
    entries: &[IndexEntry],
    present: &HashSet<IndexEntry>,
    auditor: &mut Auditor,
) {
    let mut missing = HashSet::new();
    for (index, _) in now.must.iter().filter(|entry| !present.contains(entry)) {
        missing.insert(listing(*index));
        auditor.missing(Stored::Listed(of, listing(*index)));
    }
    if let Some(expiring) = &now.expiring {
        let found = [0, 1, 2].map(|place| present.contains(&expiring[place]));
        if !is_listed_once(found) {
            auditor.missing(Stored::Listed(of, Listing::Status));
        }
    }
    let mut has = now.must.iter().chain(now.expiring.iter().flatten()).collect::<HashSet<_>>();
    for entry in entries.iter().filter(|entry| present.contains(entry) && has.insert(entry)) {
        // A wrong entry in place of the right entry is a single fault, which has already been reported as a missing
        // entry.
        if !missing.contains(&listing(entry.0)) {
            auditor.unfounded(Stored::Listed(of, listing(entry.0)));
        }
    }
}

/// Returns the question for the money and the profile of each key or group.
fn records_of(owners: &[BudgetOwner]) -> Question {
    let names = |of: &BudgetOwner| -> [Name; 2] {
        match *of {
            BudgetOwner::Key(id) => [names::key(id).into(), layout::key_profile(id).into()],
            BudgetOwner::Group(id) => [names::group(id).into(), layout::group_profile(id).into()],
        }
    };
    Question::Records(owners.iter().flat_map(names).collect())
}

/// Returns the index entries that a key or group with these records must have.
fn entries_of(
    of: BudgetOwner,
    money: Option<&Record>,
    profile: Option<&Record>,
) -> Result<Entries, StoreError> {
    let mut entries = Entries::default();
    match of {
        BudgetOwner::Key(id) => {
            if let Some(profile) = profile {
                let profile: KeyProfile = value(profile)?;
                entries.must.push((layout::KEYS, name_entry(id, &profile.label, &profile.hint)));
            }
            if let Some(money) = money {
                let read: Balance<Key> = value(money)?;
                entries.of_key(id, &read.of);
            }
        }
        BudgetOwner::Group(id) => {
            if let Some(money) = money {
                let Group { parent, .. } = value::<Balance<Group>>(money)?.of;
                entries.must.push((layout::GROUPS, id.as_bytes().to_vec()));
                let of_parent = |parent: GroupId| [&parent.as_bytes()[..], id.as_bytes()].concat();
                entries.must.extend(parent.map(|parent| (layout::CHILD_GROUPS, of_parent(parent))));
            }
        }
    }
    Ok(entries)
}

impl Entries {
    fn of_key(&mut self, id: KeyId, key: &Key) {
        let Key { budget, group, expires_at, revoked_at, disabled, .. } = key;
        self.must.extend(group.map(|group| (layout::KEYS_OF_GROUPS, group_entry(group, id))));
        self.must.extend(names::spender(budget.used, id).map(|entry| (names::SPENDERS, entry)));
        let of_status = |status| (layout::KEYS_BY_STATUS, status_entry(status, id));
        match (revoked_at, disabled, expires_at) {
            (Some(_), _, _) => self.must.push(of_status(Status::Revoked)),
            (None, true, _) => self.must.push(of_status(Status::Disabled)),
            (None, false, None) => self.must.push(of_status(Status::Active)),
            (None, false, Some(at)) => {
                let expiring = (layout::KEYS_EXPIRING, expiry_entry(*at, id));
                self.expiring = Some([of_status(Status::Active), expiring, of_status(Status::Expired)]);
            }
        }
    }
}

fn listing(index: Index) -> Listing {
    match index {
        layout::KEYS_OF_GROUPS | layout::CHILD_GROUPS => Listing::Parent,
        layout::KEYS_BY_STATUS | layout::KEYS_EXPIRING => Listing::Status,
        names::SPENDERS => Listing::Spend,
        _ => Listing::All,
    }
}

/// Returns the key or group that an index entry names.
fn owner((index, entry): &IndexEntry) -> Option<BudgetOwner> {
    let id = |place: usize| entry.get(place..place + ID);
    let key = |place| id(place).and_then(KeyId::from_slice).map(BudgetOwner::Key);
    let group = |place| id(place).and_then(GroupId::from_slice).map(BudgetOwner::Group);
    match *index {
        layout::GROUPS => group(0),
        layout::CHILD_GROUPS => group(ID),
        layout::KEYS_OF_GROUPS => key(ID),
        layout::KEYS_BY_STATUS => key(1),
        layout::KEYS_EXPIRING => key(size_of::<u64>()),
        names::SPENDERS => names::spending_key(entry).map(BudgetOwner::Key),
        _ => key(0),
    }
}
