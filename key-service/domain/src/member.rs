//! The members of an account, with their credentials and sessions.

use std::{fmt, time::Duration};

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{
    ids::{GroupId, MemberId, SessionId},
    time::Timestamp,
};

mod refused;

pub use self::refused::{
    MAX_MEMBER_NAME_CHARS, MAX_MEMBERS, MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, MemberRefused,
};
use crate::{
    credentials::{
        access::{Access, Scope},
        digest::Digest,
        second_factor::SecondFactor,
    },
    event::{Act, Actor, Event, EventKind},
};

/// After signing in with a link, a member may set a password for this long without entering the present password.
const FRESH_SIGN_IN: Duration = Duration::from_mins(30);

/// A person who signs in to an account's dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: MemberId,
    /// An e-mail address or any handle, unique in the account.
    pub name: String,
    pub role: Role,
    /// Hash of the password, once the member has set one.
    pub password: Option<PasswordHash>,
    pub created_at: Timestamp,
    /// The latest sign-in link that someone else created for the member after the invitation.
    pub last_link: Option<MadeLink>,
    pub second_factor: Option<SecondFactor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MadeLink {
    #[n(0)]
    pub by: LinkMaker,
    #[n(1)]
    pub at: Timestamp,
}

/// Who created a sign-in link.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum LinkMaker {
    /// An operator, using a command.
    #[n(0)]
    Operator,
    /// The member, using the dashboard.
    #[n(1)]
    Member,
    /// Another owner of the account, by name.
    #[n(2)]
    Owner(#[n(0)] String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum Role {
    /// Changes everything.
    #[n(0)]
    Owner,
    /// Sees everything but margins, and changes nothing.
    #[n(1)]
    Viewer,
    /// Manages the API keys of a group and its child groups, and sees nothing else of the account.
    #[n(2)]
    Lead(#[n(0)] GroupId),
}

impl LinkMaker {
    /// Returns the creator of a link that this actor makes for another member.
    pub fn of(actor: &Actor) -> Self {
        match actor {
            Actor::Member { name, .. } => Self::Owner(name.clone()),
            Actor::ManagementKey { .. }
            | Actor::Operator { .. }
            | Actor::OperatorKey { .. }
            | Actor::System => Self::Operator,
        }
    }
}

impl Role {
    /// Returns the role's name, as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Viewer => "viewer",
            Self::Lead(_) => "lead",
        }
    }

    /// Finds the role with this name. A lead needs a group, and other roles have no group.
    pub fn parse(text: &str, group: Option<GroupId>) -> Option<Self> {
        let of_group = group.map(Self::Lead);
        let roles =
            if of_group.is_some() { [of_group, None] } else { [Some(Self::Owner), Some(Self::Viewer)] };
        roles.into_iter().flatten().find(|role| role.as_str() == text)
    }

    /// Returns the group that a lead manages; `None` for other roles.
    pub const fn group(self) -> Option<GroupId> {
        match self {
            Self::Lead(group) => Some(group),
            Self::Owner | Self::Viewer => None,
        }
    }

    /// Returns the rights of the role, in the form of a management key's scope and group.
    pub const fn access(self) -> Access {
        match self {
            Self::Owner => Access { scope: Scope::Full, group: None },
            Self::Viewer => Access { scope: Scope::Read, group: None },
            Self::Lead(group) => Access { scope: Scope::Full, group: Some(group) },
        }
    }
}

/// The hash of a password, with its algorithm, parameters and salt, in the PHC string format.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct PasswordHash(#[n(0)] pub String);

/// A change to a member. Fields that are `None` stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChange {
    pub role: Option<RoleChange>,
    pub password: Option<PasswordHash>,
    pub last_link: Option<MadeLink>,
}

/// A member's new role, with who changes it and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleChange {
    pub role: Role,
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub digest: Digest,
    pub member: MemberId,
    pub expires_at: Timestamp,
    /// Digest of the password that the member had when the link was created. When the password changes, the link stops
    /// working.
    pub password: Option<Digest>,
    pub maker: LinkMaker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInWay {
    Password,
    Link(LinkMaker),
}

/// What else a member needs to set a password in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordCondition {
    /// Nothing: the recent sign-in with a link is enough.
    None,
    PresentPassword,
    /// A new sign-in with a link, because the member has no password that could be entered.
    FreshSignIn,
}

/// A browser in which a member is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Digest of the token in the cookie.
    pub digest: Digest,
    /// Identifies the session in lists.
    pub id: SessionId,
    pub member: MemberId,
    /// The browser's `User-Agent`.
    pub agent: String,
    /// Network address of the sign-in; empty if it is not known.
    pub address: String,
    pub created_at: Timestamp,
    /// When the session was last used, to the minute.
    pub seen_at: Timestamp,
    /// When the session expires. Each use of the session postpones this.
    pub expires_at: Timestamp,
    pub way: SignInWay,
}

impl PasswordHash {
    /// Returns a digest that is stored in a link, to show later whether the password has changed.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl Link {
    /// Returns whether the member's password is unchanged since the link was created.
    pub fn is_of_password(&self, member: &Member) -> bool {
        self.password == member.password.as_ref().map(PasswordHash::digest)
    }
}

impl Session {
    /// Returns what else the member needs to set a password in this session at this time.
    ///
    /// A link from an operator is for a member who forgot the password. A link from the member or from another owner is
    /// weaker proof than the password, so the present password is required too.
    pub fn password_condition(&self, member: &Member, now: Timestamp) -> PasswordCondition {
        let is_fresh = now < self.created_at.plus(FRESH_SIGN_IN);
        match (&self.way, member.password.is_some()) {
            (SignInWay::Link(_), false) | (SignInWay::Link(LinkMaker::Operator), true) if is_fresh => {
                PasswordCondition::None
            }
            (SignInWay::Link(_) | SignInWay::Password, true) => PasswordCondition::PresentPassword,
            (SignInWay::Link(_) | SignInWay::Password, false) => PasswordCondition::FreshSignIn,
        }
    }
}

/// Prefix of a stored [`LinkMaker::Owner`]. The owner's name follows.
const OWNER: &str = "owner ";
/// Prefix of a stored [`SignInWay::Link`]. The link's creator follows.
const LINK: &str = "link ";

impl fmt::Display for LinkMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator"),
            Self::Member => f.write_str("member"),
            Self::Owner(name) => write!(f, "{OWNER}{name}"),
        }
    }
}

impl LinkMaker {
    /// Parses the stored form of a link's creator.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "operator" => Some(Self::Operator),
            "member" => Some(Self::Member),
            _ => text.strip_prefix(OWNER).map(|name| Self::Owner(name.to_owned())),
        }
    }
}

impl fmt::Display for SignInWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password => f.write_str("password"),
            Self::Link(maker) => write!(f, "{LINK}{maker}"),
        }
    }
}

impl SignInWay {
    /// Parses the stored form of a way to sign in.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "password" => Some(Self::Password),
            _ => text.strip_prefix(LINK).and_then(LinkMaker::parse).map(Self::Link),
        }
    }
}

impl Member {
    /// Returns the event that reports the member's invitation.
    pub fn invitation(&self) -> EventKind {
        let (name, role) = (self.name.clone(), self.role.as_str().to_owned());
        EventKind::MemberInvited { member_id: self.id, name, role, group_id: self.role.group() }
    }

    /// Returns the event that reports a change of role; `None` if the member keeps the same role.
    pub fn role_event(&self, change: &MemberChange) -> Option<Event> {
        let RoleChange { role, act } = change.role.as_ref().filter(|change| change.role != self.role)?;
        let kind = EventKind::MemberRoleChanged {
            member_id: self.id,
            name: self.name.clone(),
            role: role.as_str().to_owned(),
            group_id: role.group(),
            previous_role: self.role.as_str().to_owned(),
            previous_group_id: self.role.group(),
        };
        Some(act.event(0, None, None, kind))
    }

    /// Returns the event that reports that the second factor was enabled or removed; `None` if only a code was used up.
    pub fn second_factor_event(&self, after: Option<&SecondFactor>) -> Option<EventKind> {
        let (member_id, name) = (self.id, self.name.clone());
        match (&self.second_factor, after) {
            (None, Some(_)) => Some(EventKind::MemberSecondFactorEnabled { member_id, name }),
            (Some(_), None) => Some(EventKind::MemberSecondFactorRemoved { member_id, name }),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// Returns the member with the change applied.
    #[must_use]
    pub fn changed(mut self, change: MemberChange) -> Self {
        self.role = change.role.map_or(self.role, |change| change.role);
        self.password = change.password.or(self.password);
        self.last_link = change.last_link.or(self.last_link);
        self
    }

    /// Returns whether the member may change the account.
    pub fn is_owner(&self) -> bool {
        self.role == Role::Owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::histories::{self, START};

    fn member(password: Option<&str>) -> Member {
        Member {
            id: MemberId::new(START, [1; 10]),
            name: "ann".into(),
            role: Role::Owner,
            password: password.map(|hash| PasswordHash(hash.into())),
            created_at: START,
            last_link: None,
            second_factor: None,
        }
    }

    fn session(way: SignInWay) -> Session {
        Session {
            digest: Digest::of(b""),
            id: SessionId::new(START, [1; 10]),
            member: member(None).id,
            agent: String::new(),
            address: String::new(),
            created_at: START,
            seen_at: START,
            expires_at: START,
            way,
        }
    }

    #[test]
    fn a_lead_has_a_group_and_the_rights_of_its_management_key_and_others_have_none() {
        let group = histories::group(1);
        for role in [Role::Owner, Role::Viewer, Role::Lead(group)] {
            assert_eq!(Role::parse(role.as_str(), role.group()), Some(role));
            assert_eq!(role.access().group, role.group());
        }
        for (text, of) in [("lead", None), ("owner", Some(group)), ("viewer", Some(group)), ("", None)] {
            assert_eq!(Role::parse(text, of), None, "{text}");
        }
    }

    #[test]
    fn a_fresh_sign_in_with_an_operators_link_stands_for_a_password_and_others_for_none_yet() {
        use PasswordCondition::{FreshSignIn, None, PresentPassword};
        let link = SignInWay::Link;
        for (way, without, with) in [
            (SignInWay::Password, FreshSignIn, PresentPassword),
            (link(LinkMaker::Operator), None, None),
            (link(LinkMaker::Member), None, PresentPassword),
            (link(LinkMaker::Owner("bob".into())), None, PresentPassword),
        ] {
            let (session, last) = (session(way), START.plus(FRESH_SIGN_IN));
            assert_eq!(session.password_condition(&member(Option::None), START), without, "{session:?}");
            assert_eq!(session.password_condition(&member(Some("x")), START), with, "{session:?}");
            assert_eq!(session.password_condition(&member(Option::None), last), FreshSignIn, "{session:?}");
            assert_eq!(session.password_condition(&member(Some("x")), last), PresentPassword, "{session:?}");
        }
    }

    #[test]
    fn a_link_is_worth_nothing_with_another_password_than_the_one_it_was_made_beside() {
        let link = |password: Option<&str>| Link {
            digest: Digest::of(b""),
            member: member(None).id,
            expires_at: START,
            password: member(password).password.as_ref().map(PasswordHash::digest),
            maker: LinkMaker::Operator,
        };
        for (made, now, is_worth) in [
            (None, None, true),
            (Some("x"), Some("x"), true),
            (None, Some("x"), false),
            (Some("x"), Some("y"), false),
        ] {
            assert_eq!(link(made).is_of_password(&member(now)), is_worth, "{made:?} {now:?}");
        }
    }

    #[test]
    fn makers_and_ways_are_read_as_they_are_written() {
        for maker in [LinkMaker::Operator, LinkMaker::Member, LinkMaker::Owner("member of x".into())] {
            assert_eq!(LinkMaker::parse(&maker.to_string()), Some(maker.clone()));
            let way = SignInWay::Link(maker);
            assert_eq!(SignInWay::parse(&way.to_string()), Some(way));
        }
        assert_eq!(SignInWay::parse("password"), Some(SignInWay::Password));
        assert_eq!((SignInWay::parse("link"), LinkMaker::parse("owner")), (None, None));
    }
}
