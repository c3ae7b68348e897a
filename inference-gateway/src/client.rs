//! The client of a request: its presence, and the body of its stream.
//!
//! A request runs inside its connection's task, without a task of its own. Both wrappers here survive a client that
//! leaves: its unfinished request continues in the background, to its settlement.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::TaskTracker;

/// The presence of a request's client. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Client(Arc<Presence>);

#[derive(Default)]
struct Presence {
    gone: AtomicBool,
    left: Notify,
}

impl Client {
    /// Returns whether the client has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Acquire)
    }

    /// Returns when the client leaves.
    pub(crate) async fn left(&self) {
        let left = self.0.left.notified();
        if !self.is_gone() {
            left.await;
        }
    }

    fn leave(&self) {
        self.0.gone.store(true, Ordering::Release);
        self.0.left.notify_waiters();
    }
}

/// A future that runs to its end: if it is dropped early because its client left, it continues as a task.
pub(crate) struct RunToEnd<T: Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    client: Client,
    tracker: TaskTracker,
}

impl<T: Send + 'static> RunToEnd<T> {
    /// Runs `future`; `client` is marked as gone if the future is dropped.
    pub(crate) fn new(
        future: impl Future<Output = T> + Send + 'static,
        client: Client,
        tracker: &TaskTracker,
    ) -> Self {
        let counted = tracker.track_future(future);
        Self { future: Some(Box::pin(counted)), client, tracker: tracker.clone() }
    }
}

impl<T: Send + 'static> Future for RunToEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let polled = future.as_mut().poll(context);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToEnd<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.client.leave();
            self.tracker.spawn(future);
        }
    }
}

/// The channel from a stream to its client: at most one piece waits to be taken by the connection.
#[derive(Clone)]
pub(crate) struct Pipe {
    client: Client,
    piece: Arc<Mutex<PendingBytes>>,
}

struct PendingBytes {
    bytes: Option<Bytes>,
    /// Time since which the connection has not asked for more; `None` while it waits for the stream.
    untaken_since: Option<Instant>,
}

impl Pipe {
    /// Returns when a piece can be put in. Must be awaited inside the future of a [`StreamBody`], which is polled
    /// whenever the connection asks for more.
    pub(crate) async fn writable(&self) {
        poll_fn(|_| if self.is_writable() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Returns whether a piece can be put in.
    pub(crate) fn is_writable(&self) -> bool {
        self.piece().bytes.is_none()
    }

    /// Puts a piece in. Must follow a return of [`Pipe::writable`], or [`Pipe::is_writable`].
    pub(crate) fn put(&self, bytes: Bytes) {
        self.piece().bytes = Some(bytes);
    }

    /// Returns when the client leaves.
    pub(crate) async fn left(&self) {
        self.client.left().await;
    }

    fn piece(&self) -> MutexGuard<'_, PendingBytes> {
        self.piece.lock()
    }

    fn take(&self) -> Option<Bytes> {
        let mut piece = self.piece();
        let bytes = piece.bytes.take()?;
        piece.untaken_since = Some(Instant::now());
        Some(bytes)
    }
}

/// The body of a stream: its future runs as the connection asks for more, and to its end if the client leaves.
pub(crate) struct StreamBody(Arc<StreamTask>);

struct StreamTask {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    pipe: Pipe,
    tracker: TaskTracker,
}

/// Ends a stream whose client does not read.
pub(crate) struct StallWatch {
    stream: Weak<StreamTask>,
    bound: Duration,
}

impl StreamBody {
    /// A body of the bytes that `stream` puts into the pipe.
    pub(crate) fn new<F>(client: Client, tracker: &TaskTracker, stream: impl FnOnce(Pipe) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let piece = PendingBytes { bytes: None, untaken_since: Some(Instant::now()) };
        let pipe = Pipe { client, piece: Arc::new(Mutex::new(piece)) };
        let future = Box::pin(tracker.track_future(stream(pipe.clone())));
        Self(Arc::new(StreamTask { future: Mutex::new(Some(future)), pipe, tracker: tracker.clone() }))
    }

    /// A watch that treats a client as gone if it has not read for `bound`.
    pub(crate) fn stall_watch(&self, bound: Duration) -> StallWatch {
        StallWatch { stream: Arc::downgrade(&self.0), bound }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let StreamTask { future, pipe, .. } = &*self.0;
        let frame = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Some(bytes) = pipe.take() {
            return frame(bytes);
        }
        let mut running = future.lock();
        let ended = match &mut *running {
            Some(future) => future.as_mut().poll(context).is_ready(),
            None => true,
        };
        if ended {
            *running = None;
        }
        match pipe.take() {
            Some(bytes) => frame(bytes),
            None if ended => Poll::Ready(None),
            None => {
                pipe.piece().untaken_since = None;
                Poll::Pending
            }
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl StallWatch {
    /// Ends the stream if its client has not read for too long.
    pub(crate) fn check(&self, now: Instant) {
        let Some(stream) = self.stream.upgrade() else { return };
        let since = stream.pipe.piece().untaken_since;
        if since.is_some_and(|since| now.saturating_duration_since(since) >= self.bound) {
            tracing::info!("a client takes nothing of its stream, which ends");
            stream.abandon();
        }
    }
}

impl StreamTask {
    /// Marks the client as gone, and lets the rest of the stream run in the background.
    fn abandon(&self) {
        let future = self.future.lock().take();
        if let Some(future) = future {
            self.pipe.client.leave();
            // A piece that is not taken must not block the rest.
            self.pipe.piece().bytes = None;
            self.tracker.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU32, task::Waker};

    use super::*;

    #[tokio::test]
    async fn a_future_whose_client_leaves_runs_to_its_end() {
        let (client, tracker, ended) = (Client::default(), TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let (inside, counted) = (client.clone(), ended.clone());
        let work = async move {
            inside.left().await;
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let mut running = Box::pin(RunToEnd::new(work, client, &tracker));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(running);
        tracker.close();
        tracker.wait().await;
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }

    /// A stream of three pieces that records its end.
    fn pieces(tracker: &TaskTracker, ended: &Arc<AtomicU32>) -> StreamBody {
        let ended = ended.clone();
        StreamBody::new(Client::default(), tracker, |pipe| async move {
            for piece in ["a", "b", "c"] {
                tokio::select! {
                    () = pipe.left() => break,
                    () = pipe.writable() => pipe.put(Bytes::from_static(piece.as_bytes())),
                }
            }
            ended.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[tokio::test]
    async fn a_stream_gives_its_pieces_in_order_and_ends() {
        use http_body_util::BodyExt;
        let (tracker, ended) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let all = pieces(&tracker, &ended).collect().await.unwrap().to_bytes();
        assert_eq!((&*all, ended.load(Ordering::SeqCst)), (&b"abc"[..], 1));
    }

    #[tokio::test]
    async fn a_stream_whose_client_takes_nothing_ends_in_the_background() {
        let (tracker, ended) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let body = pieces(&tracker, &ended);
        let watch = body.stall_watch(Duration::from_mins(1));
        watch.check(Instant::now() + Duration::from_secs(59));
        assert_eq!(tracker.len(), 1, "it waits for its client");
        watch.check(Instant::now() + Duration::from_secs(61));
        tracker.close();
        tracker.wait().await;
        assert_eq!(ended.load(Ordering::SeqCst), 1);
    }
}
