//! Creates, changes, moves and counts groups.

use domain::{
    event::Act,
    group::{self, BadGroup, Group, GroupPatch, NewGroup},
    ledger::{self, Budget, Holder},
};
use key_service_ledger::{
    Change, StoreError,
    stored::{AccountProfile, ExternalId, GroupProfile},
};
use shared::{ids::GroupId, money::NanoUsd};

use crate::{
    data::{GroupCreated, GroupUpdated, Idempotency},
    store::{
        base::damaged,
        groups::profile::{from_profile, group_id, to_profile},
        idempotency::{self, Earlier},
        layout::{self, external_id},
    },
};

/// Finds a group of the account.
pub(super) fn find(change: &mut Change<'_>, id: GroupId) -> Result<Option<Group>, StoreError> {
    let profile = change.get::<GroupProfile>(&layout::group_profile(id))?;
    let Some(spend) = change.group(id)? else { return Ok(None) };
    Ok(Some(from_profile(id, spend, profile.ok_or_else(|| damaged("the profile of a group"))?)))
}

/// Finds the group of the account that has this external id.
pub(crate) fn with_external_id(change: &mut Change<'_>, id: &str) -> Result<Option<GroupId>, StoreError> {
    let found = change.get::<ExternalId>(&external_id(id))?;
    Ok(found.map(|found| found.group))
}

/// Creates a group, unless the idempotency key is taken or another group has the external id; a repetition changes
/// nothing.
pub(super) fn create(
    change: &mut Change<'_>,
    NewGroup { account, group, most }: &NewGroup,
    attempt: Option<&Idempotency>,
    act: &Act,
) -> Result<GroupCreated, StoreError> {
    // All records are requested first, so that they are read together.
    let exists = change.account()?.is_some();
    let earlier = idempotency::earlier(change, attempt)?;
    let named = group.external_id.as_deref().map(|id| with_external_id(change, id)).transpose()?.flatten();
    let groups =
        change.get::<AccountProfile>(&layout::account_profile())?.map_or(0, |profile| profile.groups);
    let present = find(change, group.id)?;
    let judged = may_have_parent(change, group.id, group.spend.parent)?;
    if !exists {
        return Err(StoreError::no_account(*account));
    }
    match earlier {
        Some(Earlier::OtherRequest) => return Ok(GroupCreated::Reused),
        Some(Earlier::Made(id)) => {
            let id = group_id(&id)?;
            let made = find(change, id)?.ok_or_else(|| damaged("what an idempotency key made is missing"))?;
            return Ok(if id == group.id { GroupCreated::New(made) } else { GroupCreated::Replayed(made) });
        }
        None => {}
    }
    if let Some(id) = named {
        let existing = find(change, id)?.ok_or_else(|| damaged("the group of an external id"))?;
        return Ok(GroupCreated::Existing(existing));
    }
    if let Err(bad) = judged {
        return Ok(GroupCreated::BadParent(bad));
    }
    if let Err(bad) = group.spend.budget.judge_raises(act.at) {
        return Ok(GroupCreated::BadRaise(bad));
    }
    if present.is_none() && groups >= *most {
        return Ok(GroupCreated::TooMany);
    }
    if insert_group(change, group)? {
        change.event(act.event(0, None, Some(group.id), group.creation(act.at)));
        tell_passed(change, None, group, act);
    }
    idempotency::keep(change, attempt, group.id.as_bytes());
    find(change, group.id)?.map(GroupCreated::New).ok_or_else(|| damaged("a group"))
}

/// Writes and counts a group, unless its id exists. Returns whether it was written. Money already spent becomes an
/// opening balance.
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
) -> Result<GroupUpdated, StoreError> {
    let judged = may_have_parent(change, id, patch.parent.flatten())?;
    let name = layout::group_profile(id);
    let profile = change.get::<GroupProfile>(&name)?;
    let (Some(before), Some(profile)) = (find(change, id)?, profile) else {
        return Ok(GroupUpdated::NotFound);
    };
    let mut group = match before.clone().updated(patch, judged, act.at) {
        Ok(group) => group,
        Err(reason) => return Ok(GroupUpdated::NotChanged(reason)),
    };
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
    Ok(GroupUpdated::Group(group))
}

/// Writes events of the thresholds that a group's new bounds cross.
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

/// Moves a group from the children of its previous parent to those of the new one.
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

/// Counts a key that is created in a group, moves to another one, or leaves.
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

/// Changes a number in the profile of a group, if that exists.
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
