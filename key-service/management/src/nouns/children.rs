//! Groups for the list: the top level with child groups and their sums, and a search by words.

use std::{cmp::Reverse, collections::HashMap};

use shared::ids::{AccountId, GroupId};

use crate::{
    management::Management,
    nouns::reach::{AccountReach, is_in},
};
use domain::group::Group;
use key_service_store::store::{
    Found, GroupPage, Order, StoreError,
    search::{READ_AT_ONCE, Scan},
};

/// Maximum number of child groups read for a page: a few milliseconds of work, and about 10 kB compressed.
const CHILDREN_READ: usize = 200;

/// The child groups of a group.
#[derive(Clone, Debug)]
pub struct Children {
    pub number: u64,
    /// The groups, newest first; `None` if there are too many to read for a page.
    pub groups: Option<Vec<Group>>,
}

impl Children {
    /// Returns the number of keys in the child groups, including revoked keys; `None` if it is unknown.
    pub fn keys(&self) -> Option<u64> {
        self.groups.as_ref().map(|groups| groups.iter().map(|group| group.keys).sum())
    }
}

impl Management {
    /// Finds the child groups of these groups.
    pub async fn children_of(
        &self,
        account: AccountId,
        groups: &[Group],
    ) -> Result<HashMap<GroupId, Children>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let (mut children, mut left) = (HashMap::new(), CHILDREN_READ);
        // A group with a parent has no child groups.
        for group in groups.iter().filter(|group| group.spend.parent.is_none()) {
            let ids = self.store.child_groups(account, group.id).await?;
            if ids.is_empty() {
                continue;
            }
            let groups = if ids.len() <= left {
                left -= ids.len();
                let mut found = self.store.groups_by_id(account, &ids).await?;
                found.sort_by_key(|child| Reverse(child.id));
                Some(found)
            } else {
                None
            };
            children.insert(group.id, Children { number: ids.len() as u64, groups });
        }
        Ok(children)
    }

    /// Lists the groups at the top of what the caller reaches, newest first: groups without a parent, or only the
    /// group that the caller is limited to. A page may end before it is full.
    pub async fn top_groups(
        &self,
        reach: AccountReach,
        after: Option<GroupId>,
        limit: usize,
    ) -> Result<Found<Group, GroupId>, StoreError> {
        let _permit = self.read_permit(reach.account).await?;
        if let Some(own) = reach.group {
            return Ok(Found { found: self.store.groups_by_id(reach.account, &[own]).await?, next: None });
        }
        let mut scan = Scan::new(after, limit);
        while scan.goes_on() {
            let page = GroupPage { after: scan.place(), order: Order::Descending, limit: READ_AT_ONCE };
            let groups = self.store.groups(reach.account, page).await?;
            let is_top = |group: Group| group.spend.parent.is_none().then_some(group);
            scan.add(groups.into_iter().map(|group| (group.id, is_top(group))), READ_AT_ONCE);
        }
        Ok(scan.page())
    }

    /// Finds groups within reach whose name, external id or id contains all these words, ignoring case, newest first. A
    /// group whose external id equals the text comes first.
    pub async fn find_groups(
        &self,
        reach: AccountReach,
        text: &str,
        after: Option<GroupId>,
        limit: usize,
    ) -> Result<Found<Group, GroupId>, StoreError> {
        let account = reach.account;
        let _permit = self.read_permit(account).await?;
        let groups = self.groups_in(reach).await?;
        let is_reached = |group: &Group| is_in(Some(group.id), groups.as_deref());
        let exact = self.store.group_with_external_id(account, text).await?.filter(is_reached);
        let (text, mut scan) = (text.to_lowercase(), Scan::new(after, limit));
        let matches = |group: &Group| {
            let texts = [group.name.to_lowercase(), group.id.to_string(), external_id(group)];
            let is_exact = exact.as_ref().is_some_and(|exact| exact.id == group.id);
            !is_exact
                && is_reached(group)
                && texts.iter().any(|searched| text.split_whitespace().all(|word| searched.contains(word)))
        };
        while scan.goes_on() {
            let page = GroupPage { after: scan.place(), order: Order::Descending, limit: READ_AT_ONCE };
            let groups = self.store.groups(account, page).await?;
            scan.add(
                groups.into_iter().map(|group| (group.id, matches(&group).then_some(group))),
                READ_AT_ONCE,
            );
        }
        let mut found = scan.page();
        if after.is_none() {
            found.found.splice(0..0, exact.clone());
        }
        Ok(found)
    }
}

fn external_id(group: &Group) -> String {
    group.external_id.as_ref().map_or_else(String::new, |id| id.to_lowercase())
}
