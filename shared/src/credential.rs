pub mod key;
pub mod secret;
