//! Groups of the reference store.

use std::ops::Bound;

use async_trait::async_trait;
use shared::ids::{AccountId, GroupId};

use super::{AccountBook, Reference};
use crate::store::{GroupCreated, GroupPage, GroupUpdated, Groups, Idempotency, Order, Page, StoreError};
use domain::{
    event::{Act, EventKind},
    group::{self, BadGroup, Group, GroupPatch, NewGroup},
    key::ApiKey,
};

impl AccountBook {
    /// The group with the number of its keys.
    fn counted(&self, group: &Group) -> Group {
        let keys = self.keys.values().filter(|key| key.spend.group == Some(group.id)).count() as u64;
        Group { keys, ..group.clone() }
    }

    /// Judges whether a group, which may not exist yet, may have this parent, if any.
    fn may_have_parent(&self, id: GroupId, parent: Option<GroupId>) -> Result<(), BadGroup> {
        let Some(parent) = parent else { return Ok(()) };
        let has_children = self.groups.values().any(|group| group.spend.parent == Some(id));
        let found = self.groups.get(&parent).map(|group| &group.spend);
        group::may_be_parent((parent, found), id, has_children)
    }
}

#[async_trait]
impl Groups for Reference {
    async fn create_group(
        &self,
        new: NewGroup,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<GroupCreated, StoreError> {
        let mut books = self.books()?;
        let book = books.account(new.account)?;
        match idempotency.as_ref().and_then(|attempt| book.idempotent(attempt)) {
            Some(Err(())) => return Ok(GroupCreated::Reused),
            Some(Ok(id)) => {
                let made = book.counted(&book.groups[&GroupId::from_slice(&id).unwrap()]);
                let is_repeated = made.id == new.group.id;
                return Ok(if is_repeated { GroupCreated::New(made) } else { GroupCreated::Replayed(made) });
            }
            None => {}
        }
        let has_id =
            |group: &&Group| group.external_id.is_some() && group.external_id == new.group.external_id;
        if let Some(group) = book.groups.values().find(has_id) {
            return Ok(GroupCreated::Existing(book.counted(group)));
        }
        if let Err(bad) = book.may_have_parent(new.group.id, new.group.spend.parent) {
            return Ok(GroupCreated::BadParent(bad));
        }
        if book.groups.len() as u64 >= new.most && !book.groups.contains_key(&new.group.id) {
            return Ok(GroupCreated::TooMany);
        }
        if !book.groups.contains_key(&new.group.id) {
            let created = new.group.creation(act.at);
            book.tell(act.event(0, None, Some(new.group.id), created));
        }
        if let Some(attempt) = &idempotency {
            book.keep_idempotency_record(attempt, new.group.id.as_bytes());
        }
        Ok(GroupCreated::New(book.groups.entry(new.group.id).or_insert(new.group).clone()))
    }

    async fn group(&self, account: AccountId, id: GroupId) -> Result<Option<Group>, StoreError> {
        let books = self.books()?;
        let book = books.accounts.get(&account);
        Ok(book.and_then(|book| book.groups.get(&id).map(|group| book.counted(group))))
    }

    async fn group_with_external_id(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<Option<Group>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(None) };
        let found = book.groups.values().find(|group| group.external_id.as_deref() == Some(external_id));
        Ok(found.map(|group| book.counted(group)))
    }

    async fn child_groups(&self, account: AccountId, parent: GroupId) -> Result<Vec<GroupId>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let children = book.groups.values().filter(|group| group.spend.parent == Some(parent));
        Ok(children.map(|group| group.id).collect())
    }

    async fn groups(&self, account: AccountId, page: GroupPage) -> Result<Vec<Group>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let behind = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(match page.order {
            Order::Ascending => {
                let groups = book.groups.range((behind, Bound::Unbounded)).take(page.limit);
                groups.map(|(_, group)| book.counted(group)).collect()
            }
            Order::Descending => {
                let groups = book.groups.range((Bound::Unbounded, behind)).rev().take(page.limit);
                groups.map(|(_, group)| book.counted(group)).collect()
            }
        })
    }

    async fn keys_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        self.keys_that(account, page, |key| key.spend.group == Some(group))
    }

    async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        act: &Act,
    ) -> Result<GroupUpdated, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(GroupUpdated::NotFound) };
        let Some(before) = book.groups.get(&id).cloned() else { return Ok(GroupUpdated::NotFound) };
        let parent = book.may_have_parent(id, patch.parent.flatten());
        Ok(match before.clone().updated(&patch, parent, act.at) {
            Ok(group) => {
                if let Some(kind) = group.change(&before, act.at) {
                    book.tell(act.event(0, None, Some(id), kind));
                }
                book.groups.insert(id, group.clone());
                GroupUpdated::Group(book.counted(&group))
            }
            Err(reason) => GroupUpdated::NotChanged(reason),
        })
    }

    async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        act: &Act,
    ) -> Result<Option<Group>, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(None) };
        let Some(group) = book.groups.get(&id).cloned() else { return Ok(None) };
        if group.spend.archived_at.is_none() {
            book.tell(act.event(0, None, Some(id), EventKind::GroupArchived {}));
        }
        let group = group.archived(act.at);
        book.groups.insert(id, group.clone());
        Ok(Some(book.counted(&group)))
    }
}
