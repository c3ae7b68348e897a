//! Members.

use async_trait::async_trait;
use redis::{RedisResult, cmd};
use shared::ids::{AccountId, MemberId};

use super::{
    Redis,
    records::{self, Fields, damaged},
    script::Arguments,
};
use crate::store::{MemberCreated, Members, StoreError};
use domain::member::{Member, MemberChange, PasswordHash};

#[async_trait]
impl Members for Redis {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
    ) -> Result<MemberCreated, StoreError> {
        let mut arguments = Arguments::keys([
            self.key_space.account(account),
            self.key_space.members(account),
            self.key_space.member_names(account),
            self.key_space.member(account, member.id),
        ]);
        arguments.value(member.id.to_string());
        arguments.value(member.name.as_str());
        arguments.value(most.to_string());
        records::write_member(&mut arguments, &member);
        let answer: Option<String> = self.client.run(&self.scripts.create_member, &arguments).await?;
        match answer.as_deref() {
            Some("made") => {
                self.confirm_account(account).await?;
                Ok(MemberCreated::Made)
            }
            Some("taken") => Ok(MemberCreated::NameTaken),
            Some("full") => Ok(MemberCreated::TooMany),
            Some(_) => Err(damaged("the answer to an invitation").into()),
            None => Err(StoreError::no_account(account)),
        }
    }

    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let list = self.key_space.members(account);
        let ids: Vec<String> = self.client.ask(cmd("ZRANGE").arg(list).arg("0").arg("-1")).await?;
        let parse = |id: &String| id.parse().map_err(|_| damaged("a member's id"));
        let ids = ids.iter().map(parse).collect::<RedisResult<Vec<MemberId>>>()?;
        let names: Vec<String> = ids.iter().map(|id| self.key_space.member(account, *id)).collect();
        let members = ids.iter().zip(self.read_hashes(&names).await?);
        let members = members.map(|(id, fields)| records::read_member(*id, &fields));
        Ok(members.filter_map(Result::transpose).collect::<RedisResult<_>>()?)
    }

    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let mut question = cmd("HGET");
        question.arg(self.key_space.member_names(account)).arg(name);
        let id: Option<String> = self.client.ask(&question).await?;
        let Some(id) = id else { return Ok(None) };
        let id = id.parse().map_err(|_| damaged("the member of a name"))?;
        Ok(self.read_member(account, id).await?)
    }

    async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        MemberChange { role, password, last_link }: MemberChange,
    ) -> Result<bool, StoreError> {
        let mut arguments = Arguments::keys([self.key_space.member(account, id)]);
        if let Some(role) = role {
            arguments = arguments.with("role").with(role.as_str());
        }
        if let Some(PasswordHash(hash)) = password {
            arguments = arguments.with("password").with(hash.as_str());
        }
        if let Some(link) = last_link {
            records::write_last_link(&mut arguments, &link);
        }
        let found: bool = self.client.run(&self.scripts.update_member, &arguments).await?;
        self.confirm_account(account).await?;
        Ok(found)
    }

    async fn remove_member(&self, account: AccountId, id: MemberId) -> Result<bool, StoreError> {
        let arguments = Arguments::keys([
            self.key_space.members(account),
            self.key_space.member_names(account),
            self.key_space.member(account, id),
        ]);
        let found: bool =
            self.client.run(&self.scripts.remove_member, &arguments.with(id.to_string())).await?;
        self.confirm_account(account).await?;
        Ok(found)
    }
}

impl Redis {
    pub(super) async fn read_member(&self, account: AccountId, id: MemberId) -> RedisResult<Option<Member>> {
        let fields: Fields = self.client.ask(cmd("HGETALL").arg(self.key_space.member(account, id))).await?;
        records::read_member(id, &fields)
    }
}
