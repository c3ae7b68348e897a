//! Credentials: their stored form, and the rights of management keys, members and operator keys.

pub mod access;
pub mod digest;
pub mod pepper_record;
pub mod second_factor;
