//! Members, and a member's own sign-in.

pub(crate) mod members;
pub(crate) mod second_factor;
pub(crate) mod sign_in;
pub(crate) mod theme_choice;
pub(crate) mod you;
