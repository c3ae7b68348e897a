//! Groups for the list: searched by words, with sums over their child groups.

use std::collections::HashMap;

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

/// Maximum number of child groups read for a page: about ten milliseconds of work.
const CHILDREN_READ: usize = 500;

/// The child groups of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Children {
    pub groups: u64,
    /// Number of keys in the child groups, including revoked ones; `None` if there are too many groups to read for a
    /// page.
    pub keys: Option<u64>,
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
            let keys = if ids.len() <= left {
                left -= ids.len();
                let found = self.store.groups_by_id(account, &ids).await?;
                Some(found.iter().map(|child| child.keys).sum())
            } else {
                None
            };
            children.insert(group.id, Children { groups: ids.len() as u64, keys });
        }
        Ok(children)
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
