//! Lists an account's objects a page at a time: keys, groups, bills of generations, events.

use async_trait::async_trait;
use futures_util::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use serde::Serialize;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    management::Management,
    nouns::reach::{AccountReach, is_in},
};
use domain::{
    group::Group,
    key::{ApiKey, Status},
    settings::Metadata,
};
use key_service_store::store::{Error, GroupPage, Order, Page as KeyPage, Store, StoreError};

/// Number of objects read at a time while searching for matches.
const READ_AT_ONCE: usize = 500;
/// Maximum number of groups whose keys are read concurrently for a page. If there are more, all keys of the account are
/// searched.
pub(crate) const READ_TOGETHER: usize = 16;

/// A kind of object that can be listed.
#[async_trait]
pub trait Listed: Sized + Send + Sync + 'static {
    /// Id of the object, and cursor of the listing.
    type Id: Copy + Serialize + Send + Sync;
    type Filter: Clone + Send + Sync;
    /// Name of this kind of object with an article, for messages, such as `an account`.
    const NAME: &'static str;

    fn id(&self) -> Self::Id;

    /// Returns since when the list is complete.
    async fn completeness(_: &Management, _: AccountId) -> Result<Completeness, StoreError> {
        Ok(Completeness::NoneIsDropped)
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self>;
}

/// Whether older objects may have existed that are missing from a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Objects of this kind are never dropped.
    NoneIsDropped,
    /// Old objects are dropped over time. The list is complete since this time; `None` if nothing was dropped.
    Since(Option<Timestamp>),
}

#[derive(Clone, Debug)]
pub struct Listing<T: Listed> {
    /// Object after which the listing begins.
    pub after: Option<T::Id>,
    pub order: Order,
    pub filter: T::Filter,
    pub limit: usize,
}

/// A page of an account's objects.
#[derive(Debug)]
pub struct Page<T> {
    /// The objects in the requested order.
    pub items: Vec<T>,
    /// Whether more objects follow in the same listing.
    pub has_more: bool,
}

impl<T: Listed<Id: PartialEq>> Listing<T> {
    /// Returns a page of `all`, which contains all of the account's objects, oldest first.
    pub(crate) fn page_of(&self, mut all: Vec<T>) -> Paged<T> {
        if self.order == Order::Descending {
            all.reverse();
        }
        let begin = match self.after {
            None => 0,
            Some(after) => {
                let at = all.iter().position(|object| object.id() == after);
                at.ok_or(Error::Refused(UnknownCursor))? + 1
            }
        };
        Ok(Page::of(all.split_off(begin), self.limit))
    }
}

impl<T> Page<T> {
    /// Returns a page with the first `limit` of these objects.
    pub(crate) fn of(mut items: Vec<T>, limit: usize) -> Self {
        let has_more = items.len() > limit;
        items.truncate(limit);
        Self { items, has_more }
    }
}

pub type Paged<T> = Result<Page<T>, Error<UnknownCursor>>;

/// The `after` object of a listing does not exist in the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCursor;

/// Names and values that listed objects must have in their metadata.
pub type MetadataFilter = Vec<(String, String)>;

#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    /// Current status of the keys.
    pub status: Option<Status>,
    pub group: Option<GroupId>,
    /// The group that the caller is limited to: the keys' group or that group's parent.
    pub within: Option<GroupId>,
    pub metadata: MetadataFilter,
}

#[derive(Clone, Debug, Default)]
pub struct GroupFilter {
    /// The caller's own id for the group.
    pub external_id: Option<String>,
    /// The group that the caller is limited to, with its child groups.
    pub within: Option<GroupId>,
    /// Parent of the groups.
    pub parent: Option<GroupId>,
    pub metadata: MetadataFilter,
}

/// Reads the first `limit` wanted objects after `after`. `read` gets an object and a number, and reads that many
/// objects after the object. If it returns fewer objects, none follow.
pub(crate) async fn wanted<'a, T: Listed>(
    listing: &Listing<T>,
    is_filtered: bool,
    read: impl Fn(Option<T::Id>, usize) -> BoxFuture<'a, Result<Vec<T>, StoreError>>,
    is_wanted: impl Fn(&T) -> bool,
) -> Result<Page<T>, StoreError> {
    let (mut items, mut after) = (Vec::new(), listing.after);
    // One object more than requested is read, to see whether more objects follow.
    let at_once = if is_filtered { READ_AT_ONCE } else { listing.limit.saturating_add(1) };
    loop {
        let objects = read(after, at_once).await?;
        let was_last = objects.len() < at_once;
        after = objects.last().map(T::id);
        items.extend(objects.into_iter().filter(&is_wanted));
        if was_last || items.len() > listing.limit {
            return Ok(Page::of(items, listing.limit));
        }
    }
}

pub(crate) fn has(metadata: &Metadata, filter: &MetadataFilter) -> bool {
    filter.iter().all(|(name, value)| metadata.get(name) == Some(value))
}

/// Returns whether a group follows the group `after` in this order; always true if `after` is `None`.
fn is_behind(id: GroupId, after: Option<GroupId>, order: Order) -> bool {
    after.is_none_or(|after| match order {
        Order::Ascending => id > after,
        Order::Descending => id < after,
    })
}

/// Lists keys of several groups together, in order of ids.
pub(crate) async fn keys_of_groups(
    store: &Store,
    account: AccountId,
    groups: &[GroupId],
    page: KeyPage,
) -> Result<Vec<ApiKey>, StoreError> {
    let pages = groups.iter().map(|group| store.keys_of_group(account, *group, page));
    let mut keys = try_join_all(pages).await?.concat();
    keys.sort_by_key(|key| key.id);
    if page.order == Order::Descending {
        keys.reverse();
    }
    keys.truncate(page.limit);
    Ok(keys)
}

#[async_trait]
impl Listed for ApiKey {
    type Id = KeyId;
    type Filter = KeyFilter;
    const NAME: &'static str = "an API key";

    fn id(&self) -> KeyId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let store = &management.store;
        let Listing { after, order, filter, .. } = listing;
        let reach = management.groups_in(AccountReach { account, group: filter.within }).await?;
        if let Some(id) = after
            && !store.key(account, *id).await?.is_some_and(|key| is_in(key.spend.group, reach.as_deref()))
        {
            return Err(Error::Refused(UnknownCursor));
        }
        let groups = match (filter.group, reach) {
            (None, reach) => reach,
            (Some(group), reach) => {
                Some(if reach.is_none_or(|reach| reach.contains(&group)) { vec![group] } else { Vec::new() })
            }
        };
        let groups = groups.as_deref();
        let now = management.clock.now();
        let status = filter.status.map(|status| (status, now));
        let read = |after, limit| {
            let page = KeyPage { after, order: *order, status, limit };
            match groups {
                Some(groups) if groups.len() <= READ_TOGETHER => {
                    keys_of_groups(store, account, groups, page).boxed()
                }
                Some(_) | None => store.keys(account, page).boxed(),
            }
        };
        let is_wanted = |key: &Self| is_in(key.spend.group, groups) && has(&key.metadata, &filter.metadata);
        let is_filtered =
            !filter.metadata.is_empty() || groups.is_some_and(|groups| groups.len() > READ_TOGETHER);
        Ok(wanted(listing, is_filtered, read, is_wanted).await?)
    }
}

#[async_trait]
impl Listed for Group {
    type Id = GroupId;
    type Filter = GroupFilter;
    const NAME: &'static str = "a group";

    fn id(&self) -> GroupId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let store = &management.store;
        let Listing { after, order, filter, .. } = listing;
        let reach = management.groups_in(AccountReach { account, group: filter.within }).await?;
        if let Some(id) = after
            && !(is_in(Some(*id), reach.as_deref()) && store.group(account, *id).await?.is_some())
        {
            return Err(Error::Refused(UnknownCursor));
        }
        let is_wanted = |group: &Self| {
            has(&group.metadata, &filter.metadata)
                && filter.parent.is_none_or(|parent| group.spend.parent == Some(parent))
                && is_in(Some(group.id), reach.as_deref())
        };
        if let Some(external_id) = &filter.external_id {
            let found = store.group_with_external_id(account, external_id).await?;
            let items =
                found.into_iter().filter(is_wanted).filter(|group| is_behind(group.id, *after, *order));
            return Ok(Page { items: items.collect(), has_more: false });
        }
        let of_parent = match filter.parent {
            Some(parent) => Some(store.child_groups(account, parent).await?),
            None => None,
        };
        if let Some(mut ids) = of_parent.or_else(|| reach.clone()) {
            ids.sort_unstable();
            if *order == Order::Descending {
                ids.reverse();
            }
            let read = |after, limit| {
                let behind = ids.iter().filter(|id| is_behind(**id, after, *order)).take(limit);
                let behind: Vec<GroupId> = behind.copied().collect();
                async move { store.groups_by_id(account, &behind).await }.boxed()
            };
            return Ok(wanted(listing, !filter.metadata.is_empty(), read, is_wanted).await?);
        }
        let read = |after, limit| store.groups(account, GroupPage { after, order: *order, limit }).boxed();
        Ok(wanted(listing, !filter.metadata.is_empty(), read, is_wanted).await?)
    }
}

impl Management {
    /// Lists objects of the account, a page at a time.
    pub async fn list<T: Listed>(&self, account: AccountId, listing: &Listing<T>) -> Paged<T> {
        let _permit = self.read_permit(account).await?;
        T::page(self, account, listing).await
    }
}
