//! Sessions of members. They begin at sign-in, and end after the idle timeout, after a week, or with a new password.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::{AccountId, MemberId, SessionId},
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use crate::{
    access::governor::Governor,
    management::Management,
    members::{known_browser::KnownBrowser, token::Token},
    nouns::reach::AccountReach,
};
use domain::{
    access::Effect,
    event::Actor,
    member::{
        MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, Member, MemberChange, MemberRefused, PasswordCondition,
        Session, SignInWay,
    },
};
use key_service_store::store::{Error, RecordKind, StoreError};

/// Idle timeout of a session: longer than the breaks of a working day, but a session ends overnight.
const SESSION_IDLE: Duration = Duration::from_hours(10);

/// Maximum lifetime of a session, even if it is in use, so members sign in again every week.
const SESSION_LIFE: Duration = Duration::from_hours(7 * 24);

/// Minimum time between two records of a session's use, to avoid a write for every page.
const SESSION_NOTED_EVERY: Duration = Duration::from_mins(1);

/// Maximum number of sessions per member: more than the number of browsers that a person uses. Each session beyond this
/// number ends the oldest session.
pub(crate) const MAX_SESSIONS: usize = 50;

/// Maximum length of a browser's stored description, in characters.
const MAX_AGENT_CHARS: usize = 200;
/// Maximum length of a stored network address: the longest IPv6 address fits.
const MAX_ADDRESS_CHARS: usize = 45;

/// A session with its member.
#[derive(Clone, Debug)]
pub struct SignedIn {
    pub account: AccountId,
    pub member: Member,
    pub session: Session,
    /// Whether the member leads an archived group and so has no rights any more.
    pub is_over: bool,
}

impl SignedIn {
    /// Returns the member as the actor of events.
    pub fn actor(&self) -> Actor {
        Actor::Member { id: self.member.id, name: self.member.name.clone() }
    }

    /// Returns the part of the account that the member may see.
    pub const fn reach(&self) -> AccountReach {
        AccountReach { account: self.account, group: self.member.role.group() }
    }

    /// Returns the member as the caller of a request.
    pub fn governor(&self, effect: Effect) -> Governor {
        Governor { account: self.account, actor: self.actor(), access: self.member.role.access(), effect }
    }
}

/// The browser that signs in.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignInClient<'a> {
    /// The browser's `User-Agent`.
    pub agent: &'a str,
    /// Network address; empty if it is unknown.
    pub address: &'a str,
    /// Known-browser marks from this browser's cookies, one for each member who has signed in with the browser.
    pub known: &'a [String],
}

/// A session that has just begun.
#[derive(Debug)]
pub struct NewSession {
    pub token: Token,
    /// Mark by which the browser is recognised at later sign-ins.
    pub browser: KnownBrowser,
}

/// Purpose that goes into the digests of sessions' tokens, so that a link's token does not work for a session.
const SESSION: &str = "session";

impl Management {
    pub(crate) async fn begin_session(
        &self,
        account: AccountId,
        member: Member,
        client: SignInClient<'_>,
        way: SignInWay,
    ) -> Result<Token, Error<MemberRefused>> {
        if self.store.standing(account).await?.is_some_and(|standing| standing.is_closed()) {
            return Err(Error::Refused(MemberRefused::AccountClosed));
        }
        let token = Token::new(account, random_bytes(&*self.clock));
        let Member { id: member, name, .. } = member;
        let act = self.act(Actor::Member { id: member, name });
        let now = act.at;
        let sessions = self.sessions(account, member).await?;
        for oldest in sessions.iter().take((sessions.len() + 1).saturating_sub(MAX_SESSIONS)) {
            self.store.remove_record(account, RecordKind::Session, oldest.digest).await?;
        }
        let session = Session {
            digest: token.digest(SESSION),
            id: SessionId::new(self.later_than_the_last(now), random_bytes(&*self.clock)),
            member,
            agent: client.agent.chars().take(MAX_AGENT_CHARS).collect(),
            address: client.address.chars().take(MAX_ADDRESS_CHARS).collect(),
            created_at: now,
            seen_at: now,
            expires_at: now.plus(SESSION_IDLE),
            way,
        };
        self.store.put_record(account, session.into(), &act).await?;
        Ok(token)
    }

    /// Finds the running session of a member. An operator's token is refused.
    pub async fn session(&self, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        if token.is_operators() { Ok(None) } else { self.session_of(token).await }
    }

    /// Finds the running session for a member's or an operator's token.
    pub(crate) async fn session_of(&self, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        let (account, digest, now) = (token.account, token.digest(SESSION), self.clock.now());
        let found = self.store.record(account, RecordKind::Session, digest, now).await?;
        let Some((record, member)) = found else { return Ok(None) };
        let session = Session::try_from(record)?;
        if now >= session.seen_at.plus(SESSION_NOTED_EVERY) {
            let expires_at = now.plus(SESSION_IDLE).min(session.created_at.plus(SESSION_LIFE));
            let seen = Session { seen_at: now, expires_at, ..session.clone() };
            self.store.replace_record(account, seen.into()).await?;
        }
        let is_over = self.is_over(account, member.role).await?;
        Ok(Some(SignedIn { account, member, session, is_over }))
    }

    /// Lists the sessions of a member, oldest first.
    pub async fn sessions(&self, account: AccountId, member: MemberId) -> Result<Vec<Session>, StoreError> {
        let records = self.store.records(account, RecordKind::Session, member, self.clock.now()).await?;
        let mut sessions: Vec<Session> =
            records.into_iter().map(Session::try_from).collect::<Result<_, StoreError>>()?;
        sessions.sort_by_key(|session| session.id);
        Ok(sessions)
    }

    /// Ends a session of a member; repeating this changes nothing.
    pub async fn end_session(
        &self,
        account: AccountId,
        member: MemberId,
        id: SessionId,
    ) -> Result<(), StoreError> {
        let sessions = self.sessions(account, member).await?;
        match sessions.into_iter().find(|session| session.id == id) {
            Some(session) => self.store.remove_record(account, RecordKind::Session, session.digest).await,
            None => Ok(()),
        }
    }

    /// Returns what a session must prove to set its member's password now.
    pub fn password_condition(&self, SignedIn { session, member, .. }: &SignedIn) -> PasswordCondition {
        session.password_condition(member, self.clock.now())
    }

    /// Sets a member's password, and ends all other sessions and the member's link. `present` is the current password,
    /// if the session must prove it.
    pub async fn set_password(
        &self,
        signed_in: &SignedIn,
        present: SecretString,
        password: SecretString,
    ) -> Result<(), Error<MemberRefused>> {
        let chars = password.expose_secret().chars().count();
        if !(MIN_PASSWORD_CHARS..=MAX_PASSWORD_CHARS).contains(&chars) {
            return Err(Error::Refused(MemberRefused::BadPassword));
        }
        self.check_password_condition(signed_in, present).await?;
        let hash = self.passwords.hash(password, random_bytes(&*self.clock)).await?;
        let (account, member) = (signed_in.account, signed_in.member.id);
        // A new password voids earlier links.
        let change = MemberChange { password: Some(hash), ..MemberChange::default() };
        self.store.update_member(account, member, change).await?;
        Ok(self.end_other_sessions(signed_in).await?)
    }

    pub(crate) async fn end_other_sessions(
        &self,
        SignedIn { account, member, session, .. }: &SignedIn,
    ) -> Result<(), StoreError> {
        for other in self.sessions(*account, member.id).await? {
            if other.id != session.id {
                self.store.remove_record(*account, RecordKind::Session, other.digest).await?;
            }
        }
        Ok(())
    }

    /// Creates a token for a browser before its member signs in. It is not stored.
    pub fn visit(&self) -> Token {
        let no_account = AccountId::new(Timestamp::from_millis(0), [0; 10]);
        Token::new(no_account, random_bytes(&*self.clock))
    }
}
