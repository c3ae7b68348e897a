//! A chat to be written for another API, and the steps that both APIs share.

use raw_json::Members;
use reply::{
    Reply,
    carried::{PlacedPart, ServerId},
};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};
use shared_catalog::Effort;

use crate::{draft::parts_of, names::dropped::DroppedNames};

/// Sampling parameters that neither API has. No answer is wrong without them.
pub(super) const LEFT_OUT: [&str; 3] = ["seed", "frequency_penalty", "presence_penalty"];

/// An empty text as a JSON string.
pub(super) const EMPTY: &str = r#""""#;

/// A request to be written for an upstream of another API.
pub(crate) struct Hub<'h> {
    /// The chat, without the members of its head.
    pub(crate) chat: &'h Members<'h, 'h>,
    pub(crate) length: usize,
    /// The client's dialect; errors use its parameter names.
    pub(crate) reply: &'h Reply,
    pub(crate) choices: u64,
    /// Requested reasoning effort, in the model's words.
    pub(crate) effort: Option<Effort>,
    /// Whether the model accepts a reasoning effort, which means that it can reason.
    pub(crate) reasons: bool,
    /// The server, if the conversation has parts to return to it.
    pub(crate) server: Option<ServerId>,
}

impl Hub<'_> {
    /// Makes an empty body with room for the chat's texts.
    pub(super) fn begin(&self) -> String {
        String::with_capacity(self.length + self.length / 8 + 256)
    }

    /// Refuses several choices, which neither API has, and biases, which the answer depends on.
    pub(super) fn refuse_unsaid(&self) -> Result<(), ApiError> {
        if self.choices > 1 {
            return Err(self.refusal("n"));
        }
        self.refuse("logit_bias")
    }

    /// Refuses a member, if the request has it.
    pub(super) fn refuse(&self, name: &str) -> Result<(), ApiError> {
        self.chat.get(name).map_or(Ok(()), |_| Err(self.refusal(name)))
    }

    /// Makes the error that refuses a member, under the client's name for it.
    pub(super) fn refusal(&self, name: &str) -> ApiError {
        let name = match (self.reply, name) {
            (Reply::Messages(_), "stop") => "stop_sequences",
            (Reply::Messages(_), "response_format") => "output_config.format",
            (Reply::Responses(_), "logprobs") => "top_logprobs",
            (Reply::Responses(_), "response_format") => "text.format",
            (_, name) => name,
        };
        let message = format!("Unsupported parameter: '{name}' is not supported with this model.");
        ApiError::at(Code::UnsupportedParameter, name, message)
    }

    pub(super) fn copy(&self, name: &str, out: &mut String) {
        if let Some(value) = self.chat.get(name) {
            member(name, value.raw(), out);
        }
    }

    /// Adds to `dropped` the names in `names` that the request has as members.
    pub(super) fn leave_out(&self, names: &[&str], dropped: &mut DroppedNames) {
        for name in names.iter().filter(|name| self.chat.get(name).is_some()) {
            dropped.add(name);
        }
    }

    /// Returns whether the client is shown the model's reasoning.
    pub(super) fn shows_reasoning(&self) -> bool {
        match self.reply {
            Reply::Chat { .. } => true,
            Reply::Responses(reply) => reply.summary,
            Reply::Messages(reply) => reply.thinking,
            Reply::Embeddings => false,
        }
    }

    /// Returns the parts of an earlier answer for this server.
    pub(super) fn carried(&self, message: &Members<'_, '_>) -> Vec<PlacedPart> {
        let Some(server) = self.server else { return Vec::new() };
        parts_of(message, |made_by, _| made_by == server)
    }

    /// Passes each offered function to `take`.
    pub(super) fn each_function(
        &self,
        mut take: impl FnMut(&Members<'_, '_>) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let Some(tools) = self.chat.get("tools") else { return Ok(()) };
        tools.objects_if_any(usize::MAX, |tool| take(&tool.require("function")?.object()?)).map(drop)
    }
}

/// How freely the model may call functions.
pub(super) enum ToolChoice<'h> {
    Mode(&'h str),
    /// The name of a function, a JSON string.
    Function(String),
}

impl<'h> ToolChoice<'h> {
    /// Reads the choice, if any.
    pub(super) fn read(hub: &'h Hub<'_>) -> Result<Option<Self>, ApiError> {
        let Some(choice) = hub.chat.get("tool_choice") else { return Ok(None) };
        if choice.kind() == Kind::String {
            return Ok(Some(Self::Mode(choice.one_of(&["auto", "none", "required"])?)));
        }
        let choice = choice.object()?;
        let function = choice.require("function")?;
        let name = function.object()?.require("name")?.raw().to_owned();
        Ok(Some(Self::Function(name)))
    }
}

/// Writes a member, with a comma before it.
pub(super) fn member(name: &str, json: &str, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    out.push_str(json);
}
