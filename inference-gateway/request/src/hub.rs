//! Writes a checked request for upstreams of other APIs. It converts the chat to which every dialect was translated.
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
    /// Writes the body of this form without its head. If the API cannot express a member, adds the member's name to
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
