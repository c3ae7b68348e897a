//! Groups of API keys.
//!
//! A group has two records. One record has the group's money and limits, which spending reads. The other record is the
//! profile. It has everything else, and the numbers of the group's keys and child groups. An external id has a record
//! of its own, and the commit that creates a group has a guard on it.

mod changes;
mod profile;

use domain::{
    event::{Act, EventKind},
    governed::{Made, Refused},
    group::{Group, GroupPatch, NewGroup},
    key::ApiKey,
};
use key_service_ledger::{
    StoreError, names,
    stored::{Balance, ExternalId},
};
use records::{Answer, Index, Question};
use shared::{
    ids::{AccountId, GroupId, KeyId},
    wire::Noun,
};

pub(crate) use self::changes::{count_key, insert_group, tell_passed, with_external_id};
use self::{
    changes::{create, find, made, update},
    profile::from_records,
};
use crate::{
    data::{GroupPage, Idempotency, Order, Page, TopGroups},
    error::Error,
    store::{
        base::{Store, damaged},
        groups::profile::group_id,
        idempotency::OnceRequest,
        layout::{self, external_id},
    },
};

/// Maximum number of index entries or of groups to read in one round trip: about 100 KB.
const READ_AT_ONCE: usize = 500;

/// A page of ids in an index.
#[derive(Clone, Copy)]
struct IdPage {
    after: Option<[u8; 16]>,
    order: Order,
    limit: usize,
}

impl Store {
    /// Creates a group in an existing account, unless the idempotency key is in use, another group has the external id,
    /// the parent is not allowed ([`domain::group::may_be_parent`]), or the account has reached its maximum number of
    /// groups.
    pub async fn create_group(
        &self,
        new: NewGroup,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Made<Group>, Error<Refused>> {
        let attempt = OnceRequest { account: new.account, makes: *new.group.id.as_bytes(), idempotency };
        self.make_once(attempt, made, |change| create(change, &new, act)).await
    }

    /// Finds a group of the account.
    pub async fn group(&self, account: AccountId, id: GroupId) -> Result<Option<Group>, StoreError> {
        Ok(self.groups_by_id(account, &[id]).await?.pop())
    }

    /// Finds a group of the account by the caller's own id, through an index.
    pub async fn group_with_external_id(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<Option<Group>, StoreError> {
        let found = self.groups_with_external_ids(account, &[external_id]).await?.pop().flatten();
        let Some(id) = found else { return Ok(None) };
        self.group(account, id).await
    }

    /// Lists the child groups of a group, in order of ids.
    pub async fn child_groups(
        &self,
        account: AccountId,
        parent: GroupId,
    ) -> Result<Vec<GroupId>, StoreError> {
        let (mut children, mut after) = (Vec::new(), None);
        loop {
            let page = IdPage { after, order: Order::Ascending, limit: READ_AT_ONCE };
            let ids = self.ids(account, layout::CHILD_GROUPS, parent.as_bytes(), page).await?;
            children.extend(ids.iter().map(|id| group_id(id)).collect::<Result<Vec<_>, _>>()?);
            if ids.len() < READ_AT_ONCE {
                return Ok(children);
            }
            after = ids.last().copied();
        }
    }

    /// Lists groups of the account in order of their ids, beginning after `page.after`. A page with fewer groups than
    /// its limit is the last page.
    pub async fn groups(&self, account: AccountId, page: GroupPage) -> Result<Vec<Group>, StoreError> {
        let (mut groups, mut after) = (Vec::new(), page.after.map(|id| *id.as_bytes()));
        while groups.len() < page.limit {
            let wanted = (page.limit - groups.len()).min(READ_AT_ONCE);
            let ids_page = IdPage { after, order: page.order, limit: wanted };
            let ids = self.ids(account, layout::GROUPS, &[], ids_page).await?;
            let groups_of_page = ids.iter().map(|id| group_id(id)).collect::<Result<Vec<_>, _>>()?;
            groups.extend(self.groups_by_id(account, &groups_of_page).await?);
            if ids.len() < wanted {
                break;
            }
            after = ids.last().copied();
        }
        Ok(groups)
    }

    /// Lists keys of a group like [`Store::keys`], through an index.
    pub async fn keys_of_group(
        &self,
        account: AccountId,
        group: GroupId,
        page: Page,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let (mut keys, mut after) = (Vec::new(), page.after.map(|id| *id.as_bytes()));
        while keys.len() < page.limit {
            // If the page is for one status, all other keys are skipped.
            let wanted = if page.status.is_some() {
                READ_AT_ONCE
            } else {
                (page.limit - keys.len()).min(READ_AT_ONCE)
            };
            let ids_page = IdPage { after, order: page.order, limit: wanted };
            let ids = self.ids(account, layout::KEYS_OF_GROUPS, group.as_bytes(), ids_page).await?;
            let keys_of_page =
                ids.iter().map(|id| KeyId::from_slice(id).ok_or_else(|| damaged("a key's id")));
            let found = self.keys_by_id(account, &keys_of_page.collect::<Result<Vec<_>, _>>()?).await?;
            keys.extend(
                found
                    .into_iter()
                    .filter(|key| page.status.is_none_or(|(status, now)| key.status(now) == status)),
            );
            if ids.len() < wanted {
                break;
            }
            after = ids.last().copied();
        }
        keys.truncate(page.limit);
        Ok(keys)
    }

    /// Changes a group as [`Group::updated`] does.
    pub async fn update_group(
        &self,
        account: AccountId,
        id: GroupId,
        patch: GroupPatch,
        act: &Act,
    ) -> Result<Group, Error<Refused>> {
        self.lanes.change(account, |change| update(change, id, &patch, act)).await
    }

    /// Archives a group, and returns it. Repeating this changes nothing.
    pub async fn archive_group(
        &self,
        account: AccountId,
        id: GroupId,
        act: &Act,
    ) -> Result<Group, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let group = find(change, id)?.ok_or(Refused::NotFound(Noun::Group))?;
                if group.spend.archived_at.is_some() {
                    return Ok(group);
                }
                let archived = group.archived(act.at);
                change.set_group(id, archived.spend.clone());
                change.event(act.event(0, None, Some(id), EventKind::GroupArchived {}));
                Ok(archived)
            })
            .await
    }

    /// Lists the groups with the highest usage among the account's newest `looked_at` groups. Returns at most `most`
    /// groups.
    pub async fn groups_by_use(
        &self,
        account: AccountId,
        most: usize,
        looked_at: usize,
    ) -> Result<TopGroups, StoreError> {
        let (space, all, order) = (layout::space(account), (Vec::new(), None), records::Order::Descending);
        let entries = self.read().entries(&space, layout::GROUPS, all, order, looked_at).await?;
        let ids = entries.iter().map(|entry| group_id(entry)).collect::<Result<Vec<_>, _>>()?;
        if ids.len() <= most && ids.len() < looked_at {
            return Ok(TopGroups { ids, are_all: true });
        }
        let names = ids.iter().map(|id| names::group(*id)).collect();
        let found = self.read().get_all::<Balance<domain::ledger::Group>>(&space, names).await?;
        let used = found.iter().map(|group| Some(group.as_ref()?.of.budget.used));
        let mut by_use: Vec<_> = used.zip(ids).collect();
        by_use.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
        let ids = by_use.into_iter().take(most).map(|(_, id)| id).collect();
        Ok(TopGroups { ids, are_all: false })
    }

    /// Finds the account's groups with these external ids, in their order.
    pub(crate) async fn groups_with_external_ids(
        &self,
        account: AccountId,
        external_ids: &[&str],
    ) -> Result<Vec<Option<GroupId>>, StoreError> {
        let space = layout::space(account);
        let mut groups = Vec::with_capacity(external_ids.len());
        for some in external_ids.chunks(READ_AT_ONCE) {
            let names = some.iter().map(|id| external_id(id)).collect();
            for found in self.read().get_all::<ExternalId>(&space, names).await? {
                groups.push(found.map(|found| found.group));
            }
        }
        Ok(groups)
    }

    /// Reads groups in the order of these ids. Ids without a group are left out.
    pub async fn groups_by_id(&self, account: AccountId, ids: &[GroupId]) -> Result<Vec<Group>, StoreError> {
        let mut groups = Vec::with_capacity(ids.len());
        for some in ids.chunks(READ_AT_ONCE) {
            let names =
                some.iter().flat_map(|id| [names::group(*id).into(), layout::group_profile(*id).into()]);
            let question = Question::Records(names.collect());
            let Some(Answer::Records(found)) =
                self.read().ask(&layout::space(account), vec![question]).await?.pop()
            else {
                return Err(damaged("the store answered a different question"));
            };
            for (id, records) in some.iter().zip(found.chunks(2)) {
                let [Some(money), profile] = records else { continue };
                groups.push(from_records(*id, money, profile.as_ref())?);
            }
        }
        Ok(groups)
    }

    /// Lists the ids from the index entries that begin with `of`. An entry ends with the id.
    async fn ids(
        &self,
        account: AccountId,
        index: Index,
        of: &[u8],
        IdPage { after, order, limit }: IdPage,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        let behind = |id: [u8; 16]| [of, &id].concat();
        let (range, order) = match order {
            // The smallest entry that can follow an entry is the entry itself with a zero byte at its end.
            Order::Ascending => {
                let from = after.map_or_else(|| of.to_vec(), |id| [&behind(id)[..], &[0]].concat());
                ((from, layout::behind(of)), records::Order::Ascending)
            }
            Order::Descending => {
                let to = after.map(behind).or_else(|| layout::behind(of));
                ((of.to_vec(), to), records::Order::Descending)
            }
        };
        let entries = self.read().entries(&layout::space(account), index, range, order, limit).await?;
        let id = |entry: &Vec<u8>| {
            entry
                .get(of.len()..)
                .and_then(|id| id.try_into().ok())
                .ok_or_else(|| damaged("an entry of an index"))
        };
        entries.iter().map(id).collect()
    }
}
