//! Credentials: their stored form, and the rights of management keys and members.

pub mod access;
pub mod digest;
pub mod pepper_record;
pub mod second_factor;
