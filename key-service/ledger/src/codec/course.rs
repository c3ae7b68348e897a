//! How a generation was requested and how it went, to and from messages.

use shared::generation::{Course, FinishReason, ModelApi, Origin};

use crate::messages;

/// Writes the record of how a caller asked.
pub fn write_origin(Origin { api, stream, user }: &Origin) -> messages::Origin {
    messages::Origin { api: *api as u32, stream: *stream, user: user.clone().unwrap_or_default() }
}

/// Reads how a caller asked; `None` if no program here knows the API.
pub fn read_origin(messages::Origin { api, stream, user }: messages::Origin) -> Option<Origin> {
    let user = Some(user).filter(|user| !user.is_empty());
    Some(Origin { api: ModelApi::of_number(api)?, stream, user })
}

pub(crate) fn write_course(course: &Course) -> messages::Course {
    let Course { upstream, authorized_ms, first_token_ms, latency_ms, finish_reason } = course;
    messages::Course {
        upstream: upstream.clone().unwrap_or_default(),
        authorized_ms: *authorized_ms,
        first_token_ms: *first_token_ms,
        latency_ms: *latency_ms,
        finish_reason: finish_reason.map_or(0, |reason| reason as u32),
    }
}

pub(crate) fn read_course(course: messages::Course) -> Course {
    Course {
        upstream: Some(course.upstream).filter(|upstream| !upstream.is_empty()),
        authorized_ms: course.authorized_ms,
        first_token_ms: course.first_token_ms,
        latency_ms: course.latency_ms,
        finish_reason: FinishReason::of_number(course.finish_reason),
    }
}
