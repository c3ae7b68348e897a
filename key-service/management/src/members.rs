//! Members of an account, their sign-in to its dashboard, and their sessions.

mod attempts;
mod known_browser;
mod last_sign_in;
mod links;
mod muted_alarms;
pub mod operators;
mod people;
mod roles;
mod second_factor;
pub(crate) mod sessions;
mod sign_in;
mod token;

pub use self::{
    known_browser::KnownBrowser,
    last_sign_in::LastSignIn,
    links::link,
    muted_alarms::MutedAlarms,
    people::OWNER,
    second_factor::{CodeSignIn, OfferedFactor},
    sessions::{NewSession, SignInClient, SignedIn},
    sign_in::{SignIn, SignInStep},
    token::Token,
};
pub use domain::member::{
    MAX_MEMBER_NAME_CHARS, MAX_MEMBERS, MAX_PASSWORD_CHARS, MIN_PASSWORD_CHARS, MemberRefused,
};
