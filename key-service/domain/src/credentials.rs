//! Credentials: what of a key or a member is stored, and what a management key may do.

pub mod access;
pub mod digest;
pub mod pepper_record;
pub mod second_factor;
