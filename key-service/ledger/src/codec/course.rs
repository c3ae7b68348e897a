//! How a generation was requested and how it went, to and from messages.

use shared::{
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::RequestId,
};

use crate::messages;

/// Writes the record of how a caller asked.
pub fn write_origin(Origin { api, stream, user, request }: &Origin) -> messages::Origin {
    let request = request.map_or_else(Vec::new, |request| request.as_bytes().to_vec());
    messages::Origin { api: *api as u32, stream: *stream, user: user.clone().unwrap_or_default(), request }
}

/// Reads how the caller asked; `None` if this program does not know the API.
pub fn read_origin(messages::Origin { api, stream, user, request }: messages::Origin) -> Option<Origin> {
    let user = Some(user).filter(|user| !user.is_empty());
    Some(Origin { api: ModelApi::of_number(api)?, stream, user, request: RequestId::from_slice(&request) })
}

pub(crate) fn write_course(course: &Course) -> messages::Course {
    // The bill already has the cost.
    let Course { upstream, authorized_ms, first_token_ms, latency_ms, finish_reason, least_cost_nanos: _ } =
        course;
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
        least_cost_nanos: None,
    }
}

#[cfg(test)]
mod tests {
    use shared::time::Timestamp;

    use super::*;

    #[test]
    fn the_request_of_an_origin_is_read_where_it_was_written() {
        let request = Some(RequestId::new(Timestamp::from_millis(1), [7; 10]));
        for request in [request, None] {
            let origin = Origin { api: ModelApi::Chat, stream: true, user: Some("u-1".into()), request };
            assert_eq!(read_origin(write_origin(&origin)), Some(origin));
        }
        let earlier = messages::Origin { api: 1, ..messages::Origin::default() };
        assert_eq!(read_origin(earlier).map(|read| read.request), Some(None));
    }
}
