//! Adds and removes the members of an account.

use async_trait::async_trait;
use shared::{
    clock::random_bytes,
    ids::{AccountId, MemberId},
    text::is_name,
};

use crate::{
    management::Management,
    nouns::{
        listing::{Listed, Listing, Paged},
        once::attempt,
    },
};
use domain::{
    digest::Digest,
    event::Actor,
    governed::Made,
    member::{MAX_MEMBER_NAME_CHARS, MAX_MEMBERS, Member, MemberRefused, Role},
};
use key_service_store::store::{Error, StoreError};

/// Name of the member that a first run creates.
pub const OWNER: &str = "owner";

impl Management {
    /// Lists the account's members, oldest first.
    pub async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let _permit = self.read_permit(account).await?;
        self.store.members(account).await
    }

    /// Finds the account's member by name.
    pub async fn member_named(&self, account: AccountId, name: &str) -> Result<Member, Error<MemberRefused>> {
        let named = self.store.member_named(account, name).await?;
        named.ok_or(Error::Refused(MemberRefused::NotFound))
    }

    /// Creates a member, who needs a link to sign in.
    pub async fn add_member(
        &self,
        account: AccountId,
        name: &str,
        role: Role,
        actor: Actor,
    ) -> Result<Member, Error<MemberRefused>> {
        self.add_member_once((account, name, role), None, actor).await.map(|(member, _)| member)
    }

    /// Creates a member once for each idempotency key. Returns the member, and whether it is new.
    pub(crate) async fn add_member_once(
        &self,
        (account, name, role): (AccountId, &str, Role),
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<(Member, bool), Error<MemberRefused>> {
        if !is_name(name, MAX_MEMBER_NAME_CHARS) {
            return Err(Error::Refused(MemberRefused::BadName));
        }
        self.check_room().await?;
        self.check_led_group(account, role).await?;
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
        let request = Digest::of(format!("member {name:?} {role:?}").as_bytes());
        let attempt = attempt(idempotency_key, request, now);
        let made = self.store.create_member_once(account, member, MAX_MEMBERS, (attempt, &act)).await?;
        Ok(match made {
            Made::New(member) => (member, true),
            Made::Existing(member) | Made::Replayed(member) => (member, false),
        })
    }

    /// Finds a member of the account.
    pub async fn find_member(
        &self,
        account: AccountId,
        id: MemberId,
    ) -> Result<Member, Error<MemberRefused>> {
        let members = self.store.members(account).await?;
        let found = members.into_iter().find(|member| member.id == id);
        found.ok_or(Error::Refused(MemberRefused::NotFound))
    }

    /// Removes a member and ends the member's sessions at once.
    pub async fn remove_member(
        &self,
        account: AccountId,
        id: MemberId,
        actor: Actor,
    ) -> Result<(), Error<MemberRefused>> {
        let _owners = self.owners.lock().await;
        self.keep_an_owner(account, id).await?;
        self.store.remove_member(account, id, &self.act(actor)).await
    }
}

#[async_trait]
impl Listed for Member {
    type Id = MemberId;
    type Filter = ();
    const NAME: &'static str = "a member";

    fn id(&self) -> MemberId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        listing.page_of(management.store.members(account).await?)
    }
}
