//! Refusals about members and their sign-in.

pub use shared::wire::MAX_MEMBER_NAME_CHARS;

use crate::governed::IdempotencyKeyReused;

/// Minimum length of a password in characters. NIST SP 800-63B-4 requires this length if there is no second factor.
pub const MIN_PASSWORD_CHARS: usize = 15;
/// Maximum length of a password in characters, much longer than any passphrase.
pub const MAX_PASSWORD_CHARS: usize = 256;

/// Maximum number of members per account, so that a page of members stays small.
pub const MAX_MEMBERS: u64 = 100;

/// Reason why a member was not changed, found or signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefused {
    /// The account has no such member.
    #[error("there is no such member")]
    NotFound,
    /// Another member has the name.
    #[error("there is already a member with this name")]
    NameTaken,
    /// The account already has the maximum number of members.
    #[error("an account may have at most {MAX_MEMBERS} members; remove one first")]
    TooMany,
    #[error("this account is closed")]
    AccountClosed,
    /// The idempotency key was used with a different request.
    #[error("this idempotency key was used with a different request; choose a new one")]
    Reused,
    /// The name is empty, too long, surrounded by spaces, or contains invisible characters.
    #[error(
        "a name must have 1 to {MAX_MEMBER_NAME_CHARS} visible characters, without leading or trailing spaces"
    )]
    BadName,
    /// The account has no such group to lead, or it is archived.
    #[error("this account has no such group, or it is archived")]
    NoSuchGroup,
    /// More than one group has the name.
    #[error("several groups have this name; give the group's id")]
    SeveralGroups,
    /// The account would lose its last owner, so nobody could manage it in the dashboard.
    #[error("the last owner cannot be removed or given another role")]
    LastOwner,
    /// The password is too short or too long.
    #[error("a password must have {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters")]
    BadPassword,
    /// The name is unknown or has no password, or the password is wrong.
    #[error("account, name or password is wrong")]
    WrongPassword,
    /// The signed-in member entered a wrong current password.
    #[error("the current password is wrong")]
    WrongPresentPassword,
    /// The sign-in is too old, or was not with a link.
    #[error("sign in with a new link first")]
    StaleSignIn,
    /// The code is neither the app's current code nor an unused recovery code, or it was accepted earlier.
    #[error("the code is wrong or was already used; wait for the next code")]
    WrongCode,
    /// There were too many wrong codes recently.
    #[error("there were too many wrong codes; wait a quarter of an hour")]
    TooManyCodes,
    /// The second step of a sign-in failed: the password was entered too long ago or in another browser, or has since
    /// been replaced.
    #[error("too much time has passed; sign in again")]
    ChallengeOver,
    /// The member has a second factor.
    #[error("a second factor is already on; turn it off first")]
    SecondFactorOn,
    /// The member has no second factor.
    #[error("there is no second factor")]
    NoSecondFactor,
    /// The second factor was used or changed in the meantime.
    #[error("the second factor was used or changed in the meantime; try again")]
    SecondFactorChanged,
    /// The link is unknown, used or expired, or has been replaced by a newer link or a new password.
    #[error("this sign-in link was used or has expired")]
    LinkGone,
    /// There were too many attempts with this name or from this address.
    #[error("there were too many attempts; wait a quarter of an hour, or ask for a sign-in link")]
    TooManyAttempts,
}

impl From<IdempotencyKeyReused> for MemberRefused {
    fn from(_: IdempotencyKeyReused) -> Self {
        Self::Reused
    }
}
