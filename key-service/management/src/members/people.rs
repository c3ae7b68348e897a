//! People of an account, and their right to sign in to its dashboard.

use shared::{
    clock::random_bytes,
    ids::{AccountId, MemberId},
    text::is_name,
};

use crate::{
    error::Error,
    management::Management,
    members::refused::{MAX_MEMBER_NAME_CHARS, MAX_MEMBERS, MemberRefused},
};
use domain::{
    event::Actor,
    member::{Member, MemberChange, Role},
};
use key_service_store::store::{Capacity as _, MemberCreated, StoreError};

/// Name of the member that a first run makes.
pub const OWNER: &str = "owner";

impl Management {
    /// The account's members, oldest first.
    pub async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let _permit = self.read_permit(account).await?;
        self.store.members(account).await
    }

    /// The account's member of this name.
    pub async fn member_named(&self, account: AccountId, name: &str) -> Result<Member, Error<MemberRefused>> {
        let named = self.store.member_named(account, name).await?;
        named.ok_or(Error::Refused(MemberRefused::NotFound))
    }

    /// Makes a member, who needs a link to sign in.
    pub async fn add_member(
        &self,
        account: AccountId,
        name: &str,
        role: Role,
        actor: Actor,
    ) -> Result<Member, Error<MemberRefused>> {
        if !is_name(name, MAX_MEMBER_NAME_CHARS) {
            return Err(Error::Refused(MemberRefused::BadName));
        }
        if self.store.is_nearly_full().await? {
            return Err(Error::Refused(MemberRefused::StoreFull));
        }
        let act = self.act(actor);
        let now = act.at;
        let id = MemberId::new(self.later_than_the_last(now), random_bytes(&*self.clock));
        let created_at = now.to_whole_seconds();
        let member = Member {
            id,
            name: name.to_owned(),
            role,
            password: None,
            created_at,
            last_link: None,
            second_factor: None,
        };
        match self.store.create_member(account, member.clone(), MAX_MEMBERS, &act).await? {
            MemberCreated::Made => {}
            MemberCreated::NameTaken => return Err(Error::Refused(MemberRefused::NameTaken)),
            MemberCreated::TooMany => return Err(Error::Refused(MemberRefused::TooMany)),
        }
        Ok(member)
    }

    /// Gives a member another role.
    pub async fn change_role(
        &self,
        account: AccountId,
        id: MemberId,
        role: Role,
    ) -> Result<(), Error<MemberRefused>> {
        let _owners = self.owners.lock().await;
        if role != Role::Owner {
            self.keep_an_owner(account, id).await?;
        } else if self.store.is_nearly_full().await? {
            return Err(Error::Refused(MemberRefused::StoreFull));
        }
        let change = MemberChange { role: Some(role), ..MemberChange::default() };
        let found = self.store.update_member(account, id, change).await?;
        if found { Ok(()) } else { Err(Error::Refused(MemberRefused::NotFound)) }
    }

    /// Removes a member, and ends the member's sessions at once.
    pub async fn remove_member(
        &self,
        account: AccountId,
        id: MemberId,
        actor: Actor,
    ) -> Result<(), Error<MemberRefused>> {
        let _owners = self.owners.lock().await;
        self.keep_an_owner(account, id).await?;
        let found = self.store.remove_member(account, id, &self.act(actor)).await?;
        if found { Ok(()) } else { Err(Error::Refused(MemberRefused::NotFound)) }
    }

    /// Refuses to remove an account's only owner. Two owners who remove each other at once, through two key-services,
    /// may leave none; an operator then invites a new owner.
    async fn keep_an_owner(&self, account: AccountId, id: MemberId) -> Result<(), Error<MemberRefused>> {
        let members = self.store.members(account).await?;
        let mut owners = members.iter().filter(|member| member.is_owner());
        match (owners.next(), owners.next()) {
            (Some(only), None) if only.id == id => Err(Error::Refused(MemberRefused::LastOwner)),
            _ => Ok(()),
        }
    }
}
