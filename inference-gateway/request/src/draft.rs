//! The chat while it is written, and the parts of it that all dialects write alike.

mod body;
mod conversation;
mod image;
mod params;
mod places;
mod system;
mod tools;
mod unread;

pub(crate) use body::Draft;
pub(crate) use conversation::{Arguments, Conversation, EarlierAnswer, SystemTexts, ToolAnswer};
pub(crate) use image::{FORMATS, image_data, image_url};
pub(crate) use params::{
    AskedEffort, Limit, MAX_STOP_CHARS, MAX_STOPS, MAX_TOKENS, TEMPERATURE, TOP_LOGPROBS, TOP_P, sampling,
    stop_sequence,
};
pub(crate) use places::{MessageList, RefusablePlaces};
pub(crate) use tools::{Function, MAX_NAME, MAX_TOOLS, json_schema, name, unsupported_kind};
