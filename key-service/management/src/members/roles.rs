//! Roles of members. An account keeps at least one owner, and a lead's group must not be archived.

use shared::ids::{AccountId, GroupId, MemberId};

use crate::{management::Management, nouns::reach::AccountReach};
use domain::{
    event::Actor,
    group::Group,
    member::{MemberChange, MemberRefused, Role, RoleChange},
};
use key_service_store::store::{Error, StoreError};

/// Number of groups read at a time while searching for a name.
const GROUPS_AT_ONCE: usize = 100;

impl Management {
    /// Changes a member's role, and writes an event.
    pub async fn change_role(
        &self,
        account: AccountId,
        id: MemberId,
        role: Role,
        actor: Actor,
    ) -> Result<(), Error<MemberRefused>> {
        let _owners = self.owners.lock().await;
        self.check_led_group(account, role).await?;
        if role == Role::Owner {
            self.check_room().await?;
        } else {
            self.keep_an_owner(account, id).await?;
        }
        let change = RoleChange { role, act: self.act(actor) };
        let change = MemberChange { role: Some(change), ..MemberChange::default() };
        self.store.update_member(account, id, change).await
    }

    /// Refuses a lead's role if the group is archived or not in the account.
    pub(crate) async fn check_led_group(
        &self,
        account: AccountId,
        role: Role,
    ) -> Result<(), Error<MemberRefused>> {
        if self.is_over(account, role).await? {
            Err(Error::Refused(MemberRefused::NoSuchGroup))
        } else {
            Ok(())
        }
    }

    /// Returns whether the role leads a group that is archived, or whose parent is archived.
    pub(crate) async fn is_over(&self, account: AccountId, role: Role) -> Result<bool, StoreError> {
        let Some(id) = role.group() else { return Ok(false) };
        let Some((group, parent)) = self.group_with_parent(account, id).await? else { return Ok(true) };
        let is_archived = |group: &Group| group.spend.archived_at.is_some();
        Ok(is_archived(&group) || parent.as_ref().is_some_and(is_archived))
    }

    /// Finds a group by its id, external id or name.
    pub async fn group_called(
        &self,
        account: AccountId,
        text: &str,
    ) -> Result<GroupId, Error<MemberRefused>> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let (mut after, mut called) = (None, Vec::new());
        loop {
            let found = self.find_groups(AccountReach::whole(account), text, after, GROUPS_AT_ONCE).await?;
            let is_called = |group: &Group| group.name == text || group.external_id.as_deref() == Some(text);
            called.extend(found.found.into_iter().filter(is_called).map(|group| group.id));
            after = found.next;
            if after.is_none() || called.len() > 1 {
                break;
            }
        }
        match called[..] {
            [] => Err(Error::Refused(MemberRefused::NoSuchGroup)),
            [group] => Ok(group),
            [..] => Err(Error::Refused(MemberRefused::SeveralGroups)),
        }
    }

    /// Refuses to remove an account's only owner. If two owners remove each other at the same time through two
    /// key-services, the account may be left without an owner. An operator then invites a new owner.
    pub(crate) async fn keep_an_owner(
        &self,
        account: AccountId,
        id: MemberId,
    ) -> Result<(), Error<MemberRefused>> {
        let members = self.store.members(account).await?;
        let mut owners = members.iter().filter(|member| member.is_owner());
        match (owners.next(), owners.next()) {
            (Some(only), None) if only.id == id => Err(Error::Refused(MemberRefused::LastOwner)),
            _ => Ok(()),
        }
    }
}
