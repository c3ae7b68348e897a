//! Reads the rest of a body that its handler did not read.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::{runtime::Handle, time::timeout};

/// Maximum time spent on the rest of an unread body, and maximum number of its bytes to read.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 8 << 20;

/// Returns a body that is read and discarded to its end, within bounds, after it is dropped. Closing a connection with
/// unread bytes resets it, and a client that sends everything before it reads would lose the answer.
pub fn drain_unread_body(body: Body) -> Body {
    Body::new(Drained(Some(body)))
}

/// Middleware: drains the unread rest of a request's body.
pub async fn drain_unread(request: Request, next: Next) -> Response {
    next.run(request.map(drain_unread_body)).await
}

struct Drained(Option<Body>);

impl HttpBody for Drained {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let thrown_away = async move {
            let mut left = LINGER_BYTES;
            while left > 0
                && let Some(Ok(frame)) = body.frame().await
            {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            }
        };
        // Without a runtime, the process is ending, and all connections with it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(LINGER, thrown_away));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Router, routing::post};
    use tower::ServiceExt;

    use super::*;

    /// Three frames, and a count of those that were taken.
    struct Frames(usize, Arc<AtomicUsize>);

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            self.1.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test]
    async fn what_no_handler_reads_is_read_all_the_same() {
        let app =
            Router::new().route("/", post(async || "no")).layer(axum::middleware::from_fn(drain_unread));
        let taken = Arc::default();
        let request = Request::post("/").body(Body::new(Frames(3, Arc::clone(&taken)))).unwrap();
        assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
        tokio::task::yield_now().await;
        assert_eq!(taken.load(Ordering::Relaxed), 3);
    }
}
