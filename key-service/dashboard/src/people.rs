//! Members, and a member's own sign-in.

pub(crate) mod change_role;
pub(crate) mod members;
mod roles;
pub(crate) mod second_factor;
pub(crate) mod sign_in;
pub(crate) mod you;
