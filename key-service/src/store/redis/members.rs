//! Members, their sign-in links and sessions, and attempts to sign in.
//!
//! Links and sessions lie in the slot of their account and expire by themselves. Removing a member removes neither:
//! links and sessions are read together with the member, and are void without the member.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use redis::{RedisResult, cmd};
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{
    Redis,
    records::{self, Fields, damaged},
    script::Arguments,
};
use crate::store::{MemberCreated, Members, StoreError};
use domain::{
    digest::Digest,
    member::{Link, LinkMaker, Member, MemberChange, PasswordHash, Session},
};

/// Lifetime of a member's list of sessions since the last addition: longer than any session may live.
const SESSION_LIST_LIFE: Duration = Duration::from_hours(31 * 24);

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

    async fn create_link(&self, account: AccountId, link: Link, now: Timestamp) -> Result<(), StoreError> {
        let name = self.key_space.link(account, &link.digest);
        let arguments = Arguments::keys([name.clone(), self.key_space.link_of(account, link.member)])
            .with(written(&link))
            .with(name)
            .with(lives(now, link.expires_at).to_string());
        Ok(self.client.run(&self.scripts.create_link, &arguments).await?)
    }

    async fn link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        let found: Option<String> =
            self.client.ask(cmd("GET").arg(self.key_space.link(account, &digest))).await?;
        Ok(self.live_link(account, digest, found, now).await?)
    }

    async fn take_link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        let taken: Option<String> =
            self.client.ask(cmd("GETDEL").arg(self.key_space.link(account, &digest))).await?;
        if taken.is_some() {
            // A link restored by a Redis that lost its latest writes would work twice.
            self.confirm_account(account).await?;
        }
        Ok(self.live_link(account, digest, taken, now).await?)
    }

    async fn create_session(&self, account: AccountId, session: Session) -> Result<(), StoreError> {
        let mut arguments = Arguments::keys([
            self.key_space.session(account, &session.digest),
            self.key_space.sessions(account, session.member),
        ])
        .with(session.digest.as_bytes().to_vec())
        .with(session.id.to_string())
        .with(lives(session.created_at, session.expires_at).to_string())
        .with(SESSION_LIST_LIFE.as_millis().to_string());
        records::write_session(&mut arguments, &session);
        Ok(self.client.run(&self.scripts.create_session, &arguments).await?)
    }

    async fn session(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Session, Member)>, StoreError> {
        let Some(session) = self.live_session(account, &digest, now).await? else { return Ok(None) };
        let member = self.read_member(account, session.member).await?;
        Ok(member.map(|member| (session, member)))
    }

    async fn touch_session(
        &self,
        account: AccountId,
        digest: Digest,
        seen_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let arguments = Arguments::keys([self.key_space.session(account, &digest)])
            .with(seen_at.millis().to_string())
            .with(expires_at.millis().to_string())
            .with(lives(seen_at, expires_at).to_string());
        Ok(self.client.run(&self.scripts.touch_session, &arguments).await?)
    }

    async fn sessions(
        &self,
        account: AccountId,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<Session>, StoreError> {
        let list = self.key_space.sessions(account, member);
        let listed: HashMap<String, Vec<u8>> = self.client.ask(cmd("HGETALL").arg(&list)).await?;
        let mut sessions = Vec::new();
        for (id, digest) in listed {
            let digest = <[u8; 32]>::try_from(digest).map_err(|_| damaged("a list of sessions"))?;
            match self.live_session(account, &Digest::from_bytes(digest), now).await? {
                Some(session) => sessions.push(session),
                None => self.client.ask(cmd("HDEL").arg(&list).arg(id)).await?,
            }
        }
        sessions.sort_by_key(|session| session.id);
        Ok(sessions)
    }

    async fn end_session(&self, account: AccountId, digest: Digest) -> Result<(), StoreError> {
        self.client.ask::<()>(cmd("DEL").arg(self.key_space.session(account, &digest))).await?;
        Ok(self.confirm_account(account).await?)
    }

    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
        let arguments = Arguments::keys([self.key_space.attempts(&name)]);
        let arguments = arguments.with(lives(now, until).to_string());
        Ok(self.client.run(&self.scripts.count_attempt, &arguments).await?)
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        let arguments = Arguments::keys([self.key_space.attempts(&name)]);
        Ok(self.client.run(&self.scripts.take_attempt_back, &arguments).await?)
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        Ok(self.client.ask(cmd("DEL").arg(self.key_space.attempts(&name))).await?)
    }
}

impl Redis {
    async fn read_member(&self, account: AccountId, id: MemberId) -> RedisResult<Option<Member>> {
        let fields: Fields = self.client.ask(cmd("HGETALL").arg(self.key_space.member(account, id))).await?;
        records::read_member(id, &fields)
    }

    /// Finds a stored link that has not expired, with its member.
    async fn live_link(
        &self,
        account: AccountId,
        digest: Digest,
        stored: Option<String>,
        now: Timestamp,
    ) -> RedisResult<Option<(Link, Member)>> {
        let Some(stored) = stored else { return Ok(None) };
        let link = read(digest, &stored).ok_or_else(|| damaged("a sign-in link"))?;
        if link.expires_at <= now {
            return Ok(None);
        }
        let member = self.read_member(account, link.member).await?;
        Ok(member.map(|member| (link, member)))
    }

    async fn live_session(
        &self,
        account: AccountId,
        digest: &Digest,
        now: Timestamp,
    ) -> RedisResult<Option<Session>> {
        let fields: Fields =
            self.client.ask(cmd("HGETALL").arg(self.key_space.session(account, digest))).await?;
        Ok(records::read_session(*digest, &fields)?.filter(|session| session.expires_at > now))
    }
}

/// Stored form of a link. The maker is last, since a name may have blanks.
fn written(link: &Link) -> String {
    let password = link.password.map_or_else(|| "-".to_owned(), |digest| hex::encode(digest.as_bytes()));
    format!("{} {} {password} {}", link.member, link.expires_at.millis(), link.maker)
}

fn read(digest: Digest, stored: &str) -> Option<Link> {
    let mut parts = stored.splitn(4, ' ');
    let (member, expires_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let expires_at = Timestamp::from_millis(expires_at);
    // Links of an earlier version end here.
    let password = match parts.next() {
        None | Some("-") => None,
        Some(password) => {
            let mut bytes = [0; 32];
            hex::decode_to_slice(password, &mut bytes).ok()?;
            Some(Digest::from_bytes(bytes))
        }
    };
    let maker = parts.next().map_or(Some(LinkMaker::Operator), LinkMaker::parse)?;
    Some(Link { digest, member, expires_at, password, maker })
}

/// Milliseconds from `from` to `to`, at least 1.
fn lives(from: Timestamp, to: Timestamp) -> i64 {
    to.millis().saturating_sub(from.millis()).max(1)
}
