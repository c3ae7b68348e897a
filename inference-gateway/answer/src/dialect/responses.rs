//! Answers of the Responses API.

mod items;
mod passed;
mod stream;

pub(crate) use stream::{ResponsesStream, put_usage};
