//! Incoming bodies: media types, and bytes within a bound and a deadline.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use shared::{
    error::{ApiError, Code},
    text::shown,
};
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum number of characters that the error repeats from an unsupported `Content-Encoding`.
const MAX_SHOWN_ENCODING: usize = 40;

/// Refuses a body whose declared type is neither JSON nor `also`. Without a type it counts as JSON. Compressed bodies
/// are also refused, since their full size is unknown in advance.
pub fn require_json(headers: &HeaderMap, also: Option<&str>) -> Result<(), ApiError> {
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let value = value.to_str().unwrap_or("?").trim();
        if !value.is_empty() && !value.eq_ignore_ascii_case("identity") {
            let shown = shown(value, MAX_SHOWN_ENCODING);
            let message =
                format!("The Content-Encoding '{shown}' is not supported; send the body without one.");
            return Err(ApiError::new(Code::UnsupportedMediaType, message));
        }
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().ok().map(|v| v.split(';').next().unwrap_or(v).trim());
    let json = |e: &str| {
        e.eq_ignore_ascii_case("application/json") || also.is_some_and(|a| e.eq_ignore_ascii_case(a))
    };
    match essence {
        Some(essence) if json(essence) => Ok(()),
        _ => Err(ApiError::new(Code::UnsupportedMediaType, "The Content-Type must be application/json.")),
    }
}

/// Reads a whole body of at most `limit` bytes. One that announces more is refused unread.
pub async fn read_body(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    read_body_within(headers, body, limit, |_| Ok(())).await
}

/// Reads a whole body of at most `limit` bytes. It calls `reserve` before it keeps each chunk.
pub async fn read_body_within(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    reserve: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let announced = content_length(headers);
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    timeout(BODY_DEADLINE, read_rest(body, announced, limit, reserve))
        .await
        .unwrap_or_else(|_| Err(stalled()))
}

pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Maximum number of bytes reserved for a body before its first byte arrives, since announced bytes may never come.
const EAGER_ROOM: u64 = 1 << 20;

/// Maximum time for which a client may pause within a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// Time after which a body must average `LEAST_BYTES_PER_SECOND`, so that one that trickles in cannot keep its memory.
const BODY_GRACE: Duration = Duration::from_secs(10);
const LEAST_BYTES_PER_SECOND: u64 = 8 << 10;
/// Deadline for a whole body. The largest body meets it at two megabits a second.
const BODY_DEADLINE: Duration = Duration::from_mins(5);

/// Returns the deadline for the next chunk of a body, after `so_far` bytes.
pub fn next_piece_deadline(began: Instant, so_far: usize) -> Instant {
    let progress = Duration::from_secs(so_far as u64 / LEAST_BYTES_PER_SECOND);
    (Instant::now() + BODY_PAUSE).min(began + BODY_GRACE + progress)
}

async fn read_rest(
    mut body: Body,
    announced: Option<u64>,
    limit: usize,
    mut reserve: impl FnMut(usize) -> Result<(), ApiError>,
) -> Result<Bytes, ApiError> {
    let mut read = BytesMut::new();
    let mut first: Option<Bytes> = None;
    let began = Instant::now();
    loop {
        let so_far = read.len() + first.as_ref().map_or(0, Bytes::len);
        let deadline = next_piece_deadline(began, so_far);
        let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(|_| stalled())? else { break };
        let Ok(data) = frame.map_err(|_| incomplete_body())?.into_data() else { continue };
        if so_far + data.len() > limit {
            return Err(too_large(limit));
        }
        reserve(data.len())?;
        // A body that is one chunk is not copied.
        match (first.take(), read.is_empty()) {
            (None, true) => first = Some(data),
            (None, false) => read.extend_from_slice(&data),
            (Some(head), _) => {
                let first_room = announced.unwrap_or(0).min(EAGER_ROOM).max((head.len() + data.len()) as u64);
                read.reserve(usize::try_from(first_room).unwrap_or(0));
                read.extend_from_slice(&head);
                read.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| read.freeze()))
}

fn stalled() -> ApiError {
    ApiError::new(Code::InvalidJson, "The body did not arrive in time.")
}

/// Returns the error for a body that broke off, or whose framing is not valid HTTP.
pub fn incomplete_body() -> ApiError {
    ApiError::new(Code::InvalidJson, "The body ended before it was complete.")
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Code::RequestTooLarge, format!("The body is larger than {limit} bytes."))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_compressed_body_is_refused_by_the_name_of_its_coding() {
        let coded = |values: &[&str]| {
            let value = |v: &&str| (header::CONTENT_ENCODING, HeaderValue::from_str(v).unwrap());
            require_json(&values.iter().map(value).collect(), None)
        };
        assert_eq!(coded(&[]), Ok(()));
        assert_eq!(coded(&["identity", " Identity "]), Ok(()));
        for (values, named) in
            [(&["gzip"][..], "'gzip'"), (&["identity", "zstd"], "'zstd'"), (&["gzip, br"], "'gzip, br'")]
        {
            let error = coded(values).unwrap_err();
            assert_eq!(error.code, Code::UnsupportedMediaType, "{values:?}");
            assert!(error.message.contains(named), "{}", error.message);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_is_given_up_within_seconds() {
        let pieces = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let began = Instant::now();
        let error = read_body(&HeaderMap::new(), Body::from_stream(pieces), 1000).await.unwrap_err();
        assert!(error.message.contains("did not arrive in time"), "{}", error.message);
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_limit_and_not_beyond() {
        let none = HeaderMap::new();
        let read = |text: &'static str, limit| read_body(&none, Body::from(text), limit);
        assert_eq!(read("12345", 5).await.unwrap(), "12345");
        assert_eq!(read("123456", 5).await.unwrap_err().code, Code::RequestTooLarge);
    }
}
