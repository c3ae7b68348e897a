//! Members of accounts.

use async_trait::async_trait;
use redis::cmd;
use shared::ids::{AccountId, MemberId};

use super::{
    Redis,
    accounts::Listing,
    records::{self, Fields, damaged},
    script::{Arguments, Transaction},
};
use crate::store::{MemberCreated, Members, StoreError};
use domain::{
    event::{Act, EventKind},
    member::{Member, MemberChange, PasswordHash},
    second_factor::SecondFactor,
};

#[async_trait]
impl Members for Redis {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<MemberCreated, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.account(account),
            self.key_space.members(account),
            self.key_space.member(account, member.id),
            self.key_space.member_names(account),
        ]);
        let arguments =
            arguments.with(member.id.to_string()).with(member.name.as_str()).with(most.to_string());
        let arguments = arguments.with_all(records::write_member(&member));
        let event = act.event(0, None, None, member.invitation());
        let arguments = self.with_event(arguments, account, Some(&event));
        Ok(match self.create_listed(account, &arguments).await? {
            Listing::Created => MemberCreated::Made,
            Listing::Taken => MemberCreated::NameTaken,
            Listing::Full => MemberCreated::TooMany,
        })
    }

    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let ids: Vec<MemberId> = self.listed(self.key_space.members(account)).await?;
        let names: Vec<String> = ids.iter().map(|id| self.key_space.member(account, *id)).collect();
        let members = ids.iter().zip(self.read_hashes(&names).await?);
        let members = members.map(|(id, fields)| records::read_member(*id, &fields));
        members.filter_map(Result::transpose).collect()
    }

    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.member_names(account)).arg(name);
        let id: Option<String> = self.client.ask(&question).await?;
        let Some(id) = id else { return Ok(None) };
        let id = id.parse().map_err(|_| damaged("the member of a name"))?;
        self.member(account, id).await
    }

    async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        MemberChange { role, password, last_link }: MemberChange,
    ) -> Result<bool, StoreError> {
        let mut texts: Vec<String> = last_link.iter().flat_map(records::write_last_link).collect();
        texts.extend(role.iter().flat_map(|role| ["role", role.as_str()]).map(str::to_owned));
        texts.extend(password.into_iter().flat_map(|PasswordHash(hash)| ["password".to_owned(), hash]));
        let mut change = Transaction::if_exists(self.key_space.member(account, id));
        if !texts.is_empty() {
            change.set(&self.key_space.member(account, id), &texts);
        }
        let found: bool = self.client.run(&self.scripts.transaction, &change.arguments()).await?;
        self.confirm_account(account).await?;
        Ok(found)
    }

    async fn replace_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let event = member.second_factor_event(after.as_ref()).map(|kind| act.event(0, None, None, kind));
        let stored = |factor: Option<&SecondFactor>| factor.map_or_else(String::new, SecondFactor::to_string);
        let arguments = Arguments::keys([self.key_space.member(account, member.id)]);
        let arguments = arguments.with(stored(member.second_factor.as_ref())).with(stored(after.as_ref()));
        let arguments = self.with_event(arguments, account, event.as_ref());
        let is_replaced: bool = self.client.run(&self.scripts.replace_second_factor, &arguments).await?;
        // A code that a Redis forgets with its latest writes could be used twice.
        self.confirm_account(account).await?;
        Ok(is_replaced)
    }

    async fn remove_member(&self, account: AccountId, id: MemberId, act: &Act) -> Result<bool, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.members(account),
            self.key_space.member_names(account),
            self.key_space.member(account, id),
        ]);
        let Some(Member { name, .. }) = self.member(account, id).await? else { return Ok(false) };
        let removed = EventKind::MemberRemoved { member_id: id, name };
        let arguments = arguments.with(id.to_string());
        let arguments = self.with_event(arguments, account, Some(&act.event(0, None, None, removed)));
        let found: bool = self.client.run(&self.scripts.remove_member, &arguments).await?;
        self.confirm_account(account).await?;
        Ok(found)
    }
}

impl Redis {
    pub(super) async fn member(
        &self,
        account: AccountId,
        id: MemberId,
    ) -> Result<Option<Member>, StoreError> {
        let fields: Fields = self.client.ask(cmd("HGETALL").arg(self.key_space.member(account, id))).await?;
        records::read_member(id, &fields)
    }
}
