//! Settings of keys and groups: their form, their limits, and both in words.

pub(crate) mod budget;
pub(crate) mod limits;
pub(crate) mod settings_form;
pub(crate) mod words;
