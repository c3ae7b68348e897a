//! The chat while it is being written, and the parts that all dialects write in the same way.

mod body;
mod call_ids;
mod carried;
mod conversation;
mod image;
mod params;
mod places;
mod systems;
mod terms;
mod tools;
mod unread;

pub(crate) use body::{AnswerEnd, Draft, whole};
pub(crate) use call_ids::{nine, plain};
pub(crate) use carried::{of_details, of_extra, parts_at, parts_of};
pub(crate) use conversation::{Arguments, Conversation, EarlierAnswer, ToolAnswer};
pub(crate) use image::{FORMATS, image_data, image_url};
pub(crate) use params::{
    AskedEffort, Limit, MAX_STOP_CHARS, MAX_STOPS, MAX_TOKENS, TEMPERATURE, TOP_LOGPROBS, TOP_P, sampling,
    stop_sequence,
};
pub(crate) use places::{MessageList, RefusablePlaces};
pub use terms::ChatTerms;
pub(crate) use terms::{Edits, edited};
pub(crate) use tools::{Function, MAX_NAME, MAX_TOOLS, json_schema, name, unsupported_kind};
