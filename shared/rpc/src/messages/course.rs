//! Messages with how a client requested a generation, and how it went.

use shared::{
    generation::{Course, FinishReason, ModelApi, Origin, kept_user},
    ids::RequestId,
};

use crate::v1;

impl From<&Origin> for v1::Origin {
    fn from(Origin { api, stream, user, request }: &Origin) -> Self {
        let api = match api {
            ModelApi::Chat => v1::ModelApi::Chat,
            ModelApi::Responses => v1::ModelApi::Responses,
            ModelApi::Messages => v1::ModelApi::Messages,
            ModelApi::Embeddings => v1::ModelApi::Embeddings,
        };
        let request_id = request.map_or_else(Vec::new, |request| request.as_bytes().to_vec());
        Self { api: api.into(), stream: *stream, user: user.clone().unwrap_or_default(), request_id }
    }
}

/// Reads how a client made its request; `None` for an unknown API, from a newer gateway.
pub(super) fn read_origin(origin: &v1::Origin) -> Option<Origin> {
    let api = match origin.api() {
        v1::ModelApi::Unspecified => return None,
        v1::ModelApi::Chat => ModelApi::Chat,
        v1::ModelApi::Responses => ModelApi::Responses,
        v1::ModelApi::Messages => ModelApi::Messages,
        v1::ModelApi::Embeddings => ModelApi::Embeddings,
    };
    Some(Origin {
        api,
        stream: origin.stream,
        user: kept_user(&origin.user),
        request: RequestId::from_slice(&origin.request_id),
    })
}

impl From<&Course> for v1::Course {
    fn from(course: &Course) -> Self {
        let finish_reason = match course.finish_reason {
            None => v1::FinishReason::Unspecified,
            Some(FinishReason::Stop) => v1::FinishReason::Stop,
            Some(FinishReason::Length) => v1::FinishReason::Length,
            Some(FinishReason::ToolCalls) => v1::FinishReason::ToolCalls,
            Some(FinishReason::ContentFilter) => v1::FinishReason::ContentFilter,
        };
        Self {
            upstream: course.upstream.clone().unwrap_or_default(),
            authorized_ms: course.authorized_ms,
            first_token_ms: course.first_token_ms,
            latency_ms: course.latency_ms,
            finish_reason: finish_reason.into(),
            least_cost_nano_usd: course.least_cost_nanos,
        }
    }
}

impl From<v1::Course> for Course {
    fn from(course: v1::Course) -> Self {
        let finish_reason = match course.finish_reason() {
            v1::FinishReason::Unspecified => None,
            v1::FinishReason::Stop => Some(FinishReason::Stop),
            v1::FinishReason::Length => Some(FinishReason::Length),
            v1::FinishReason::ToolCalls => Some(FinishReason::ToolCalls),
            v1::FinishReason::ContentFilter => Some(FinishReason::ContentFilter),
        };
        Self {
            upstream: Some(course.upstream).filter(|upstream| !upstream.is_empty()),
            authorized_ms: course.authorized_ms,
            first_token_ms: course.first_token_ms,
            latency_ms: course.latency_ms,
            finish_reason,
            // Only an amount that raises the bill matters.
            least_cost_nanos: course.least_cost_nano_usd.filter(|nanos| *nanos > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::time::Timestamp;

    use super::*;

    #[test]
    fn how_a_generation_was_asked_for_and_went_arrives() {
        for api in ModelApi::ALL {
            for user in [None, Some("u-1".to_owned())] {
                let request = user.is_some().then(|| RequestId::new(Timestamp::from_millis(1), [7; 10]));
                let origin = Origin { api, stream: user.is_some(), user, request };
                assert_eq!(read_origin(&v1::Origin::from(&origin)), Some(origin));
            }
        }
        for reason in FinishReason::ALL.into_iter().map(Some).chain([None]) {
            let course = Course {
                upstream: Some("10.0.0.5:8000".into()),
                authorized_ms: Some(0),
                first_token_ms: Some(41),
                latency_ms: reason.map(|_| 950),
                finish_reason: reason,
                least_cost_nanos: reason.map(|_| 7),
            };
            assert_eq!(Course::from(v1::Course::from(&course)), course);
        }
        assert_eq!(Course::from(v1::Course::default()), Course::default());
    }

    #[test]
    fn what_only_a_newer_gateway_says_is_as_if_it_were_not_told() {
        let origin = v1::Origin { api: 99, stream: true, user: "u".into(), request_id: vec![7; 17] };
        assert_eq!(read_origin(&origin), None);
        let of_chat = v1::Origin { api: v1::ModelApi::Chat.into(), ..origin };
        assert_eq!(read_origin(&of_chat).map(|read| read.request), Some(None));
        assert_eq!(
            Course::from(v1::Course { finish_reason: 99, ..v1::Course::default() }).finish_reason,
            None
        );
    }
}
