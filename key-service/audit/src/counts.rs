//! Counts of keys and groups, compared with the lists that they count.

use std::collections::{HashMap, HashSet};

use domain::audit::{Auditor, Figure, Quantity};
use key_service_ledger::{
    StoreError,
    names::nouns as layout,
    reading::{no_answer, value},
    stored::{AccountProfile, GroupProfile},
};
use records::{Answer, Index, Order, Question, Space};
use shared::ids::GroupId;

use crate::{
    bounds::{ALL, AT_ONCE},
    reading::Books,
};

/// Length of the id at the start of an entry.
const ID: usize = 16;

impl Books<'_> {
    /// Compares the account's and every group's counts of keys and groups. Each page of groups is read as of one
    /// moment.
    pub(super) async fn prove_counts(&self, space: &Space, auditor: &mut Auditor) -> Result<(), StoreError> {
        let profile = Question::Records(vec![layout::account_profile().into()]);
        let questions = vec![profile, Question::whole(layout::KEYS), Question::whole(layout::GROUPS)];
        let answers: [Answer; 3] =
            self.read().ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [Answer::Records(profile), Answer::Entries(keys), Answer::Entries(groups)] = answers else {
            return Err(no_answer());
        };
        let profile = profile.into_iter().next().flatten();
        let profile = profile.as_ref().map(value::<AccountProfile>).transpose()?;
        let (of_keys, of_groups) = profile.map_or((0, 0), |profile| (profile.keys, profile.groups));
        let keys: HashSet<_> = keys.iter().filter_map(|entry| entry.first_chunk::<ID>()).collect();
        count(auditor, Figure::Keys, of_keys, keys.len());
        count(auditor, Figure::Groups, of_groups, groups.len());
        let groups: Vec<GroupId> = groups.iter().filter_map(|id| GroupId::from_slice(id)).collect();
        for ids in groups.chunks(AT_ONCE) {
            self.prove_counts_of_groups(space, ids, auditor).await?;
        }
        Ok(())
    }

    /// Compares the counts of groups, sorted by id.
    async fn prove_counts_of_groups(
        &self,
        space: &Space,
        ids: &[GroupId],
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(()) };
        let profiles = Question::Records(ids.iter().map(|id| layout::group_profile(*id).into()).collect());
        let of_page = |index| entries(index, first.as_bytes().to_vec(), layout::behind(last.as_bytes()));
        let questions = vec![profiles, of_page(layout::KEYS_OF_GROUPS), of_page(layout::CHILD_GROUPS)];
        let answers: [Answer; 3] =
            self.read().ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [Answer::Records(profiles), Answer::Entries(keys), Answer::Entries(children)] = answers else {
            return Err(no_answer());
        };
        let (keys, children) = (by_group(&keys), by_group(&children));
        for (id, profile) in ids.iter().zip(&profiles) {
            let profile = profile.as_ref().map(value::<GroupProfile>).transpose()?;
            let (of_keys, of_children) = profile.map_or((0, 0), |profile| (profile.keys, profile.children));
            let listed = |of: &HashMap<GroupId, usize>| of.get(id).copied().unwrap_or_default();
            count(auditor, Figure::KeysOfGroup(*id), of_keys, listed(&keys));
            count(auditor, Figure::ChildGroups(*id), of_children, listed(&children));
        }
        Ok(())
    }
}

fn entries(index: Index, from: Vec<u8>, to: Option<Vec<u8>>) -> Question {
    Question::Entries { index, from, to, order: Order::Ascending, limit: ALL }
}

/// Counts the entries that begin with each group's id.
fn by_group(entries: &[Vec<u8>]) -> HashMap<GroupId, usize> {
    let mut numbers = HashMap::new();
    for group in entries.iter().filter_map(|entry| GroupId::from_slice(entry.get(..ID)?)) {
        *numbers.entry(group).or_default() += 1;
    }
    numbers
}

fn count(auditor: &mut Auditor, figure: Figure, recorded: u64, listed: usize) {
    auditor.quantity(figure, Quantity::Count(recorded), Quantity::Count(listed as u64));
}
