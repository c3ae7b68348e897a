//! Writes a checked request for upstreams of other APIs, starting from chat, which all dialects are translated to.
//!
//! The parsers of this crate wrote the chat, so its members and types are known. What another API cannot express is
//! left out and named, or refused if it would change the answer.

mod calls;
mod chat;
mod messages;
mod responses;

use shared::error::ApiError;
use shared_catalog::UpstreamApi;

use crate::{forward::BodyForm, names::dropped::DroppedNames};
pub(crate) use chat::Hub;

impl Hub<'_> {
    /// Writes the body of this form without its head. Adds the names of members that the API cannot express to
    /// `dropped`.
    pub(crate) fn write(&self, form: BodyForm, dropped: &mut DroppedNames) -> Result<String, ApiError> {
        match form {
            BodyForm::Written { api: UpstreamApi::Responses, .. } => responses::write(self, dropped),
            BodyForm::Written { api: UpstreamApi::Messages, cache_breakpoints, is_separate, .. } => {
                messages::write(self, cache_breakpoints, is_separate, dropped)
            }
            BodyForm::Written { api: UpstreamApi::Chat, .. }
            | BodyForm::Checked(_)
            | BodyForm::Passed { .. } => Err(ApiError::internal()),
        }
    }
}

#[cfg(test)]
mod tests;
