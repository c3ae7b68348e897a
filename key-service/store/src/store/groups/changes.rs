//! Creates, changes, moves and counts groups.

use domain::{
    event::Act,
    governed::{BadGroup, Made, Refused},
    group::{self, Group, GroupPatch, NewGroup},
    ledger::{self, Budget, Holder},
};
use key_service_ledger::{
    Change, StoreError,
    stored::{AccountProfile, ExternalId, GroupProfile},
};
use shared::{ids::GroupId, money::NanoUsd, wire::Noun};

use crate::{
    error::Error,
    store::{
        base::damaged,
        groups::profile::{from_profile, group_id, to_profile},
        layout::{self, external_id},
    },
};

/// Finds a group of the account.
pub(super) fn find(change: &mut Change<'_>, id: GroupId) -> Result<Option<Group>, StoreError> {
    let profile = change.get::<GroupProfile>(&layout::group_profile(id))?;
    let Some(spend) = change.group(id)? else { return Ok(None) };
    Ok(Some(from_profile(id, spend, profile.ok_or_else(|| damaged("the profile of a group"))?)))
}

/// Finds the account's group with this external id.
pub(crate) fn with_external_id(change: &mut Change<'_>, id: &str) -> Result<Option<GroupId>, StoreError> {
    let found = change.get::<ExternalId>(&external_id(id))?;
    Ok(found.map(|found| found.group))
}

/// Creates a group, unless another group has the external id. Repeating this changes nothing.
pub(super) fn create(
    change: &mut Change<'_>,
    NewGroup { account, group, most }: &NewGroup,
    act: &Act,
) -> Result<Made<Group>, Error<Refused>> {
    // All records are requested before any is used, so that one round trip reads them all.
    let exists = change.account()?.is_some();
    let named = group.external_id.as_deref().map(|id| with_external_id(change, id)).transpose()?.flatten();
    let groups =
        change.get::<AccountProfile>(&layout::account_profile())?.map_or(0, |profile| profile.groups);
    let present = find(change, group.id)?;
    let judged = may_have_parent(change, group.id, group.spend.parent)?;
    if !exists {
        return Err(StoreError::no_account(*account).into());
    }
    if let Some(id) = named {
        let existing = find(change, id)?.ok_or_else(|| damaged("the group of an external id"))?;
        return Ok(Made::Existing(existing));
    }
    judged.map_err(|bad| Refused::BadGroup("parent_id", bad))?;
    group.spend.budget.judge_raises(act.at).map_err(Refused::BadRaise)?;
    if present.is_none() && groups >= *most {
        return Err(Refused::TooMany(Noun::Group, *most).into());
    }
    if insert_group(change, group)? {
        change.event(act.event(0, None, Some(group.id), group.creation(act.at)));
        tell_passed(change, None, group, act);
    }
    made(change, *group.id.as_bytes()).map(Made::New)
}

/// Finds the group that a request created.
pub(super) fn made(change: &mut Change<'_>, id: [u8; 16]) -> Result<Group, Error<Refused>> {
    let found = find(change, group_id(&id)?)?;
    Ok(found.ok_or_else(|| damaged("the object that an idempotency key created is missing"))?)
}

/// Writes a group and counts it in its account and parent, unless its id exists already. Returns whether it was
/// written. What the group has already spent becomes its opening balance.
pub(crate) fn insert_group(change: &mut Change<'_>, group: &Group) -> Result<bool, StoreError> {
    let Group { id, spend, .. } = group;
    let (of_account, of_group) = (layout::account_profile(), layout::group_profile(*id));
    let is_there = change.group(*id)?.is_some() | change.has(&of_group);
    let account = change.get::<AccountProfile>(&of_account)?;
    if is_there {
        return Ok(false);
    }
    let account = account.ok_or_else(|| damaged("the profile of the account"))?;
    change.put(&of_account, AccountProfile { groups: account.groups + 1, ..account });
    let budget = Budget { held: NanoUsd::ZERO, ..spend.budget.clone() };
    let opening = budget.used;
    change.set_group(*id, ledger::Group { budget, ..spend.clone() });
    change.put(&of_group, GroupProfile { opening, ..to_profile(group) });
    if let Some(name) = &group.external_id {
        change.put(&external_id(name), ExternalId { group: *id });
    }
    change.enter(layout::GROUPS, id.as_bytes().to_vec());
    move_group(change, *id, None, spend.parent)?;
    Ok(true)
}

pub(super) fn update(
    change: &mut Change<'_>,
    id: GroupId,
    patch: &GroupPatch,
    act: &Act,
) -> Result<Group, Error<Refused>> {
    let judged = may_have_parent(change, id, patch.parent.flatten())?;
    let name = layout::group_profile(id);
    let profile = change.get::<GroupProfile>(&name)?;
    let (Some(before), Some(profile)) = (find(change, id)?, profile) else {
        return Err(Refused::NotFound(Noun::Group).into());
    };
    let mut group = before.clone().updated(patch, judged, act.at)?;
    if patch.bounds.windows.is_some() {
        group.spend.budget.begin_windows(act.at, change.windows_begin(act.at)?);
    }
    let (opening, children) = (profile.opening, profile.children);
    // External ids never change.
    let external_id = before.external_id.clone();
    change.set_group(id, group.spend.clone());
    change.put(&name, GroupProfile { opening, children, external_id, ..to_profile(&group) });
    move_group(change, id, before.spend.parent, group.spend.parent)?;
    if let Some(kind) = group.change(&before, act.at) {
        change.event(act.event(0, None, Some(id), kind));
    }
    tell_passed(change, Some(&before), &group, act);
    Ok(group)
}

/// Writes events for the thresholds that the group's spend has crossed because of its new limits.
pub(crate) fn tell_passed(change: &mut Change<'_>, before: Option<&Group>, after: &Group, act: &Act) {
    let before = before.map(|group| &group.spend.budget);
    change.tell(ledger::passed_by_bounds(Holder::Group(after.id), before, &after.spend.budget, act.at));
}

/// Decides whether a group, which may not exist yet, may have this parent.
fn may_have_parent(
    change: &mut Change<'_>,
    id: GroupId,
    parent: Option<GroupId>,
) -> Result<Result<(), BadGroup>, StoreError> {
    let Some(parent) = parent else { return Ok(Ok(())) };
    let found = change.group(parent)?;
    let profile = change.get::<GroupProfile>(&layout::group_profile(id))?;
    let has_children = profile.is_some_and(|profile| profile.children > 0);
    Ok(group::may_be_parent(parent, found.as_ref(), id, has_children))
}

/// Moves a group from the children of its previous parent to the children of its new parent.
fn move_group(
    change: &mut Change<'_>,
    id: GroupId,
    before: Option<GroupId>,
    after: Option<GroupId>,
) -> Result<(), StoreError> {
    if before == after {
        return Ok(());
    }
    let entry = |parent: GroupId| [&parent.as_bytes()[..], id.as_bytes()].concat();
    if let Some(parent) = before {
        change.leave(layout::CHILD_GROUPS, entry(parent));
        count(change, parent, |profile| profile.children = profile.children.saturating_sub(1))?;
    }
    if let Some(parent) = after {
        change.enter(layout::CHILD_GROUPS, entry(parent));
        count(change, parent, |profile| profile.children += 1)?;
    }
    Ok(())
}

/// Updates how many keys groups have, when a key is created in a group, moves between groups, or leaves its group.
pub(crate) fn count_key(
    change: &mut Change<'_>,
    before: Option<GroupId>,
    after: Option<GroupId>,
) -> Result<(), StoreError> {
    if before == after {
        return Ok(());
    }
    if let Some(group) = before {
        count(change, group, |profile| profile.keys = profile.keys.saturating_sub(1))?;
    }
    if let Some(group) = after {
        count(change, group, |profile| profile.keys += 1)?;
    }
    Ok(())
}

/// Changes a number in the profile of a group, if the group exists.
fn count(
    change: &mut Change<'_>,
    id: GroupId,
    add: impl FnOnce(&mut GroupProfile),
) -> Result<(), StoreError> {
    let name = layout::group_profile(id);
    if let Some(mut profile) = change.get::<GroupProfile>(&name)? {
        add(&mut profile);
        change.put(&name, profile);
    }
    Ok(())
}
