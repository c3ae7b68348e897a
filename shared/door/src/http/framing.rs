//! Refuses requests whose framing or host two servers could read differently (request smuggling).
//!
//! Hyper's parser accepts head lines that end with a bare line feed, and does not report them, so they cannot be
//! refused here.

use axum::{
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Version, header};
use shared::error::{ApiError, Code};

pub async fn refuse_ambiguous(request: Request, next: Next) -> Response {
    match ambiguity(&request) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    }
}

/// Refuses a request with a transfer coding other than `chunked`, since its coded bytes would be taken for the body,
/// and an HTTP/1.1 request without a host or with two (RFC 9112, sections 6.1 and 3.2). The connection ends, since the
/// bytes that follow cannot be trusted.
pub fn ambiguity(request: &Request) -> Option<Response> {
    let error = check(request.version(), request.headers()).err()?;
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

fn check(version: Version, headers: &HeaderMap) -> Result<(), ApiError> {
    let invalid = |header: &str, message| Err(ApiError::at(Code::InvalidValue, header, message));
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (!coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") || codings.next().is_some())
    {
        return invalid("Transfer-Encoding", "The only supported Transfer-Encoding is `chunked`.");
    }
    let hosts = headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && version == Version::HTTP_11) {
        return invalid("Host", "A request must have one Host header.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_host_and_no_coding_but_chunked() {
        let checked = |version, lines: &[(&'static str, &str)]| {
            let line = |(name, value): &(&'static str, &str)| {
                (header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
            };
            check(version, &lines.iter().map(line).collect()).map_err(|error| error.param.unwrap())
        };
        let host = ("host", "a");
        for good in [
            &[host][..],
            &[host, ("transfer-encoding", "chunked")],
            &[host, ("transfer-encoding", " Chunked ")],
        ] {
            assert_eq!(checked(Version::HTTP_11, good), Ok(()), "{good:?}");
        }
        assert_eq!(checked(Version::HTTP_10, &[]), Ok(()));
        assert_eq!(checked(Version::HTTP_2, &[]), Ok(()));
        for bad in [&[][..], &[host, host], &[host, ("host", "b")]] {
            assert_eq!(checked(Version::HTTP_11, bad), Err("Host".into()), "{bad:?}");
        }
        for coding in ["gzip, chunked", "chunked, chunked", "gzip", "identity", ""] {
            let bad = [host, ("transfer-encoding", coding)];
            assert_eq!(checked(Version::HTTP_11, &bad), Err("Transfer-Encoding".into()), "{coding}");
        }
    }
}
