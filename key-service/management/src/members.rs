//! People of an account, their right to sign in to its dashboard, and their sessions.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use shared::{
    clock::random_bytes,
    ids::{AccountId, MemberId, SessionId},
    secret::{ExposeSecret, SecretString},
    text::is_name,
    time::Timestamp,
};

use super::{Error, Management, governor::Governor, reach::AccountReach};
use domain::{
    access::Effect,
    digest::Digest,
    event::Actor,
    member::{Member, MemberChange, PasswordCondition, Role, Session, SignInWay},
};
use key_service_store::store::{Capacity as _, MemberCreated, RecordKind, StoreError, operators};

mod attempts;
#[cfg(test)]
mod bounds;
mod known_browser;
mod last_sign_in;
mod links;
mod password;
mod roles;
mod second_factor;
mod sign_in;

pub use known_browser::KnownBrowser;
pub use last_sign_in::LastSignIn;
pub use links::link;
pub(super) use password::Passwords;
pub use password::{MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS};
pub use second_factor::{CodeSignIn, OfferedFactor};
pub use sign_in::{NewSession, SignIn, SignInClient, SignInStep};

/// Name of the member that a first run makes.
pub const OWNER: &str = "owner";

/// Most characters of a member's name, as many as the longest e-mail address has.
pub const MAX_MEMBER_NAME_CHARS: usize = 254;

/// Most members per account: a page of members, and a sum over all of them, stay small.
pub const MAX_MEMBERS: u64 = 100;

/// Time after which an unused session ends: a working day with its breaks, not the night after.
const SESSION_IDLE: Duration = Duration::from_hours(10);

/// Time after which a session ends even if it is used, so that a member signs in again each week.
const SESSION_LIFE: Duration = Duration::from_hours(7 * 24);

/// Least time between two records of a session's use, since a write for each page would be of no use.
const SESSION_NOTED_EVERY: Duration = Duration::from_mins(1);

/// Most sessions per member, more than the browsers that a person uses. A further session ends the oldest.
const MAX_SESSIONS: usize = 50;

/// Most characters of a browser's description that are kept.
const MAX_AGENT_CHARS: usize = 200;
/// Most characters of a network address that are kept, as many as the longest IPv6 address has.
const MAX_ADDRESS_CHARS: usize = 45;

/// Reason why a member was not changed, found or signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefused {
    /// The account has no such member.
    #[error("there is no such member")]
    NotFound,
    /// Another member has the name.
    #[error("there is a member of this name already")]
    NameTaken,
    /// The account is at its bound of members.
    #[error("an account has {MAX_MEMBERS} members at most; remove one first")]
    TooMany,
    /// The store is nearly full.
    #[error("the store is nearly full, and keeps the rest for requests")]
    StoreFull,
    /// The name is empty, too long, surrounded by blanks, or contains invisible characters.
    #[error(
        "a name has 1 to {MAX_MEMBER_NAME_CHARS} characters that can be seen, without blanks around them"
    )]
    BadName,
    /// The account has no such group to lead, or it is archived.
    #[error("this account has no such group, or it is archived")]
    NoSuchGroup,
    /// More than one group has the name.
    #[error("several groups have this name; give the id of one")]
    SeveralGroups,
    /// The account would lose its last owner, and with it the management from its dashboard.
    #[error("the last owner cannot be removed, and keeps the role")]
    LastOwner,
    /// The password is too short or too long.
    #[error("a password has {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters")]
    BadPassword,
    /// The name is unknown, it has no password, or the password is wrong.
    #[error("account, name or password is wrong")]
    WrongPassword,
    /// The session's member gave a wrong present password.
    #[error("the present password is wrong")]
    WrongPresentPassword,
    /// The session began too long ago, or without a link.
    #[error("sign in with a new link first")]
    StaleSignIn,
    /// The app does not show this code now, or it was accepted before, or it is no unused recovery code.
    #[error("the code is wrong or was used; wait for the next one")]
    WrongCode,
    /// There were too many wrong codes lately.
    #[error("there were too many wrong codes; wait a quarter of an hour")]
    TooManyCodes,
    /// The password was given too long ago, in another browser, or was replaced since.
    #[error("too much time has passed; sign in again")]
    ChallengeOver,
    /// The member has a second factor.
    #[error("a second factor is on already; turn it off first")]
    SecondFactorOn,
    /// The member has no second factor.
    #[error("there is no second factor")]
    NoSecondFactor,
    /// The second factor was used or changed at the same time.
    #[error("the second factor was used or changed meanwhile; try again")]
    SecondFactorChanged,
    /// The link is unknown, used or expired, or a newer link or a new password replaced it.
    #[error("this sign-in link was used or has expired")]
    LinkGone,
    /// There were too many attempts with this name or from this address.
    #[error("there were too many attempts; wait a quarter of an hour, or ask for a sign-in link")]
    TooManyAttempts,
}

/// Secret with the id of its account, for links and cookies. The account is public, the rest is not.
#[derive(Clone, Debug)]
pub struct Token {
    pub account: AccountId,
    secret: [u8; 32],
}

/// A session with its member.
#[derive(Clone, Debug)]
pub struct SignedIn {
    pub account: AccountId,
    pub member: Member,
    pub session: Session,
    /// The member leads a group that is archived, and has no rights any more.
    pub is_over: bool,
}

impl SignedIn {
    /// The member as the actor of events.
    pub fn actor(&self) -> Actor {
        Actor::Member { id: self.member.id, name: self.member.name.clone() }
    }

    /// The part of the account that the member reaches.
    pub const fn reach(&self) -> AccountReach {
        AccountReach { account: self.account, group: self.member.role.group() }
    }

    /// The member who reads or changes something.
    pub fn governor(&self, effect: Effect) -> Governor {
        Governor { account: self.account, actor: self.actor(), access: self.member.role.access(), effect }
    }
}

impl Token {
    /// Bytes of a token: an account's id and 256 random bits.
    const BYTES: usize = 48;

    fn new(account: AccountId, secret: [u8; 32]) -> Self {
        Self { account, secret }
    }

    /// Reads the text form of a token, as written by [`Self::reveal`].
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let (account, secret) = bytes.split_at(16);
        Some(Self::new(AccountId::from_slice(account)?, secret.try_into().ok()?))
    }

    /// Returns whether the token is an operator's.
    pub(crate) fn is_operators(&self) -> bool {
        self.account == operators()
    }

    /// Returns the text form of a token for a link or a cookie.
    pub fn reveal(&self) -> SecretString {
        let bytes = [self.account.as_bytes(), &self.secret[..]].concat();
        URL_SAFE_NO_PAD.encode(bytes).into()
    }

    /// Returns the digest under which a token is stored. It needs no pepper, since the secret has 256 random bits.
    pub fn digest(&self, purpose: &str) -> Digest {
        Digest::of(&[purpose.as_bytes(), &[0], &self.secret].concat())
    }
}

/// Purpose in the digests of sessions' tokens, so that a link's token is of no use for a session.
const SESSION: &str = "session";

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
        match self.store.create_member(account, member.clone(), MAX_MEMBERS, &act).await? {
            MemberCreated::Made => {}
            MemberCreated::NameTaken => return Err(Error::Refused(MemberRefused::NameTaken)),
            MemberCreated::TooMany => return Err(Error::Refused(MemberRefused::TooMany)),
        }
        Ok(member)
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

    async fn begin_session(
        &self,
        account: AccountId,
        member: Member,
        client: SignInClient<'_>,
        way: SignInWay,
    ) -> Result<Token, StoreError> {
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

    /// Finds the running session of a member. An operator's token has none here.
    pub async fn session(&self, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        if token.is_operators() { Ok(None) } else { self.session_of(token).await }
    }

    /// Finds the running session of a token, whether a member's or an operator's.
    pub(crate) async fn session_of(&self, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        let (account, digest, now) = (token.account, token.digest(SESSION), self.clock.now());
        let found = self.store.record(account, RecordKind::Session, digest, now).await?;
        let Some((record, member)) = found else { return Ok(None) };
        let session = Session::try_from(record)?;
        if now >= session.seen_at.plus(SESSION_NOTED_EVERY) {
            let expires_at = now.plus(SESSION_IDLE).min(session.created_at.plus(SESSION_LIFE));
            let seen = Session { seen_at: now, expires_at, ..session.clone() };
            self.store.replace_record(account, seen.into(), now).await?;
        }
        let is_over = self.is_over(account, member.role).await?;
        Ok(Some(SignedIn { account, member, session, is_over }))
    }

    /// The sessions of a member, oldest first.
    pub async fn sessions(&self, account: AccountId, member: MemberId) -> Result<Vec<Session>, StoreError> {
        let records = self.store.records(account, RecordKind::Session, member, self.clock.now()).await?;
        let mut sessions: Vec<Session> =
            records.into_iter().map(Session::try_from).collect::<Result<_, StoreError>>()?;
        sessions.sort_by_key(|session| session.id);
        Ok(sessions)
    }

    /// Ends a session of a member; again is the same.
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

    /// Returns the condition on which a session may set a password of its member now.
    pub fn password_condition(&self, SignedIn { session, member, .. }: &SignedIn) -> PasswordCondition {
        session.password_condition(member, self.clock.now())
    }

    /// Sets a member's password, and ends all other sessions and the member's link. `present` is the previous password,
    /// if the session must know it.
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
        // A new password voids the link that was made before it.
        let change = MemberChange { password: Some(hash), ..MemberChange::default() };
        if !self.store.update_member(account, member, change).await? {
            return Err(Error::Refused(MemberRefused::NotFound));
        }
        Ok(self.end_other_sessions(signed_in).await?)
    }

    async fn end_other_sessions(
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

    /// Makes a token for a browser before its member signs in. The token is stored nowhere.
    pub fn visit(&self) -> Token {
        let no_account = AccountId::new(Timestamp::from_millis(0), [0; 10]);
        Token::new(no_account, random_bytes(&*self.clock))
    }

    /// Returns the present time, on the clock of sessions and keys.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
