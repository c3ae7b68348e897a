//! Responses in every API.

use std::io;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;

use super::{
    faults::{
        cut::{cut_later, sleep_ms},
        fault::Fault,
    },
    record::{End, Running},
    script::Script,
};

/// Body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Answers with this text, broken as the script's fault says.
pub(super) fn whole_text(text: &str, script: &Script, running: Running) -> Response<Body> {
    let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    let rest: Option<stream::BoxStream<'static, io::Result<Bytes>>> = match script.fault {
        Fault::Nonsense { .. } => {
            running.end(End::Failed);
            return json_response(StatusCode::OK, "<html>this is no answer</html>");
        }
        Fault::Stall { .. } => Some(stream::pending().boxed()),
        Fault::Cut { .. } | Fault::CutBeforeUsage => Some(stream::once(cut_later()).boxed()),
        Fault::End { .. } => Some(stream::empty().boxed()),
        _ => None,
    };
    let Some(rest) = rest else {
        if script.body_after_ms > 0 {
            return later(text.to_owned(), script.body_after_ms, running);
        }
        running.end(End::Finished);
        return match script.padding_mib {
            0 => json_response(StatusCode::OK, text),
            mib => padded(text, mib),
        };
    };
    if !matches!(script.fault, Fault::Stall { .. }) {
        running.end(End::Failed);
    }
    let frames = stream::iter([Ok(half)]).chain(rest).map(move |piece| {
        let _held = &running;
        piece.map(Frame::data)
    });
    respond(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// Sends the response's head immediately, and the body `ms` milliseconds later.
fn later(text: String, ms: u64, running: Running) -> Response<Body> {
    let body = stream::once(async move {
        sleep_ms(ms).await;
        running.end(End::Finished);
        Ok(Frame::data(Bytes::from(text)))
    });
    respond(StatusCode::OK, "application/json", StreamBody::new(body).boxed_unsync())
}

/// Returns an answer with this many mebibytes of spaces after its first brace.
fn padded(text: &str, mib: usize) -> Response<Body> {
    let blanks = Bytes::from(vec![b' '; 1 << 20]);
    let pieces = std::iter::once(Bytes::copy_from_slice(&text.as_bytes()[..1]))
        .chain(std::iter::repeat_n(blanks, mib))
        .chain([Bytes::copy_from_slice(&text.as_bytes()[1..])]);
    let frames = stream::iter(pieces.map(Frame::data).map(Ok));
    let mut response = respond(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_LENGTH, (text.len() + (mib << 20)).into());
    response
}

pub(super) fn status(of_script: u16) -> StatusCode {
    StatusCode::from_u16(of_script).expect("a script's status is one")
}

pub(super) fn json_response(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {});
    respond(status, "application/json", body.boxed_unsync())
}

pub(super) fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Internal header that clients must never see.
    headers.insert("x-scripted-upstream", HeaderValue::from_static("worker-7.internal"));
    response
}
