//! The form in which a request wants its answer, and the members that the answer repeats.

pub mod carried;
mod earlier_calls;
mod tool_names;

use std::sync::Arc;

use shared_catalog::UpstreamApi;

pub use earlier_calls::EarlierCalls;
pub use tool_names::{ToolName, ToolNames};

/// Maximum number of choices in a request.
pub const MAX_CHOICES: u8 = 8;

/// The form in which a request wants its answer.
#[derive(Clone)]
pub enum Reply {
    Chat {
        /// Whether the stream ends with usage.
        include_usage: bool,
    },
    Responses(Arc<ResponsesReply>),
    Messages(Arc<MessagesReply>),
    /// Embeddings. They are never streamed.
    Embeddings,
}

impl Reply {
    /// Returns whether this is a chat in any dialect, not embeddings.
    pub const fn is_of_chat(&self) -> bool {
        match self {
            Self::Chat { .. } | Self::Responses(_) | Self::Messages(_) => true,
            Self::Embeddings => false,
        }
    }

    /// Counts the bytes kept for the answer.
    pub fn kept_bytes(&self) -> usize {
        match self {
            Self::Chat { .. } | Self::Embeddings => 0,
            Self::Responses(reply) => {
                reply.echo.capacity() + reply.names.bytes() + reply.earlier_calls.bytes()
            }
            Self::Messages(reply) => {
                reply.stops.iter().map(String::capacity).sum::<usize>() + reply.earlier_calls.bytes()
            }
        }
    }

    pub const fn api(&self) -> UpstreamApi {
        match self {
            Self::Chat { .. } | Self::Embeddings => UpstreamApi::Chat,
            Self::Responses(_) => UpstreamApi::Responses,
            Self::Messages(_) => UpstreamApi::Messages,
        }
    }

    /// Returns the name of the request's member that contains the conversation or the prompts.
    pub const fn input(&self) -> &'static str {
        match self {
            Self::Chat { .. } | Self::Messages(_) => "messages",
            Self::Responses(_) | Self::Embeddings => "input",
        }
    }
}

/// What a response repeats from its request, and what shapes the response.
pub struct ResponsesReply {
    /// Members of the request to repeat, each preceded by a comma, on one line.
    pub echo: String,
    /// Tools that have other names at upstreams than at the client.
    pub names: ToolNames,
    pub summary: bool,
    /// Calls of the conversation so far.
    pub earlier_calls: Arc<EarlierCalls>,
}

pub struct MessagesReply {
    pub thinking: bool,
    pub stops: Vec<String>,
    /// Calls of the conversation so far.
    pub earlier_calls: Arc<EarlierCalls>,
}
