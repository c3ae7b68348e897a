//! The people of an account, and what they sign in with.

use shared::{
    ids::{MemberId, SessionId},
    time::Timestamp,
};

use crate::digest::Digest;

/// A person who signs in to the dashboard of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identifier.
    pub id: MemberId,
    /// An e-mail address or any handle, unique in the account.
    pub name: String,
    /// The rights of the member.
    pub role: Role,
    /// The hash of a password, where the member has set one.
    pub password: Option<PasswordHash>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The rights of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads and changes everything.
    Owner,
    /// Reads everything, changes nothing.
    Viewer,
}

impl Role {
    /// The role as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Viewer => "viewer",
        }
    }

    /// The role of this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Owner, Self::Viewer].into_iter().find(|role| role.as_str() == text)
    }
}

/// The hash of a password, with its algorithm, parameters and salt, in the PHC string format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordHash(pub String);

/// A change of a member. Fields that are `None` stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChange {
    /// Another role.
    pub role: Option<Role>,
    /// Another password.
    pub password: Option<PasswordHash>,
}

/// A sign-in link that was not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The digest of its token.
    pub digest: Digest,
    /// The member that it signs in.
    pub member: MemberId,
    /// From this instant on it is worth nothing.
    pub expires_at: Timestamp,
}

/// A browser in which a member is signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The digest of the token in its cookie.
    pub digest: Digest,
    /// Its name in lists.
    pub id: SessionId,
    /// The member.
    pub member: MemberId,
    /// The browser, as it describes itself.
    pub agent: String,
    /// When the member signed in.
    pub created_at: Timestamp,
    /// When it was last used, to the minute.
    pub seen_at: Timestamp,
    /// When it ends unless it is used before.
    pub expires_at: Timestamp,
}

impl Member {
    /// The member with the change applied.
    #[must_use]
    pub fn changed(mut self, change: MemberChange) -> Self {
        self.role = change.role.unwrap_or(self.role);
        self.password = change.password.or(self.password);
        self
    }

    /// Returns true if the member may change what belongs to the account.
    pub fn is_owner(&self) -> bool {
        self.role == Role::Owner
    }
}
