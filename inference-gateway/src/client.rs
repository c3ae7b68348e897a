//! A request's client: whether it is still connected, and the body of its stream.
//!
//! A request runs within its connection's task. If the client leaves, the two wrappers in this file continue the
//! request in the background until it is settled.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use futures_util::FutureExt;
use hyper::body::{Body, Frame};
use parking_lot::{Mutex, MutexGuard};
use shared_door::serve::Detach;
use shared_observe::traces::{Inside, Span};
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::TaskTracker;

/// Whether a request's client is still connected. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Client(Arc<Presence>);

#[derive(Default)]
struct Presence {
    left_at: OnceLock<Instant>,
    left: Notify,
}

impl Client {
    /// Returns whether the client has left.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.left_at.get().is_some()
    }

    /// Waits until the client leaves. Returns the time at which it left.
    pub(crate) async fn left(&self) -> Instant {
        loop {
            let left = self.0.left.notified();
            if let Some(at) = self.0.left_at.get() {
                return *at;
            }
            left.await;
        }
    }

    fn leave(&self) {
        self.0.left_at.get_or_init(Instant::now);
        self.0.left.notify_waiters();
    }
}

/// A boxed future, which may move from one task to another.
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that runs to its end. If it is dropped early because the client left, it continues as a task.
pub(crate) struct RunToEnd<T: Send + 'static> {
    future: Option<Inside<Boxed<T>>>,
    client: Client,
    tracker: TaskTracker,
}

impl<T: Send + 'static> RunToEnd<T> {
    /// Runs `future` in the current span. Dropping it marks `client` as gone. A generation boxes its rare steps, so that
    /// every request makes and moves a smaller future.
    pub(crate) fn new(
        future: impl Future<Output = T> + Send + 'static,
        client: Client,
        tracker: &TaskTracker,
    ) -> Self {
        let counted: Boxed<T> = Box::pin(tracker.track_future(future));
        let future = Some(Span::current().around(counted));
        Self { future, client, tracker: tracker.clone() }
    }

    /// Runs the rest of the future as a task, for a client that already has its answer and has not left.
    pub(crate) fn run_in_background(mut self) {
        if let Some(future) = self.future.take() {
            self.tracker.spawn(future);
        }
    }
}

impl<T: Send + 'static> Future for RunToEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        let polled = Pin::new(future).poll(context);
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

/// Channel from a stream to its client. At most one piece, and after it the stream's last bytes, may wait for the
/// connection.
#[derive(Clone)]
pub(crate) struct Pipe {
    client: Client,
    pending: Arc<Mutex<PendingBytes>>,
}

struct PendingBytes {
    piece: Option<Bytes>,
    /// The stream's last bytes, which are sent after the piece.
    last: Option<Bytes>,
    /// Whether the stream will put in nothing more.
    ended: bool,
    /// Whether the connection waits for the stream.
    asked: bool,
    /// Wakers of the connection and of a stream that runs in a task of its own. `None` while connection and stream are
    /// in the same task.
    wakers: Option<Box<Wakers>>,
}

#[derive(Default)]
struct Wakers {
    /// Wakes the stream when the connection has taken the piece.
    stream: Option<Waker>,
    /// Wakes the connection when there is a piece.
    connection: Option<Waker>,
}

impl Wakers {
    fn wake(waker: &mut Option<Waker>) {
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }
}

impl PendingBytes {
    /// Takes the next bytes, so that the stream can put in more.
    fn take(&mut self) -> Option<Bytes> {
        let bytes = self.piece.take().or_else(|| self.last.take())?;
        self.asked = false;
        self.wake_stream();
        Some(bytes)
    }

    fn wake_stream(&mut self) {
        if let Some(wakers) = &mut self.wakers {
            Wakers::wake(&mut wakers.stream);
        }
    }

    fn wake_connection(&mut self) {
        if let Some(wakers) = &mut self.wakers {
            Wakers::wake(&mut wakers.connection);
        }
    }
}

impl Pipe {
    /// Waits until a piece can be put in. Must be awaited within the future of a [`StreamBody`], which is polled
    /// whenever the connection asks for more.
    pub(crate) async fn writable(&self) {
        poll_fn(|context| {
            let mut pending = self.pending();
            if pending.piece.is_none() {
                return Poll::Ready(());
            }
            if let Some(wakers) = &mut pending.wakers {
                wakers.stream = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns whether a piece can be put in.
    pub(crate) fn is_writable(&self) -> bool {
        self.pending().piece.is_none()
    }

    /// Puts a piece in, unless the client has left. Call it only after [`Pipe::writable`] or [`Pipe::is_writable`]
    /// allowed it.
    pub(crate) fn put(&self, bytes: Bytes) {
        let mut pending = self.pending();
        // If the client leaves during a stream, the stream must break off, so no later piece is put in.
        if !self.client.is_gone() {
            pending.piece = Some(bytes);
        }
        pending.wake_connection();
    }

    /// Puts in the stream's last bytes. They follow the piece that waits, if any.
    pub(crate) fn put_last(&self, bytes: Bytes) {
        let mut pending = self.pending();
        if !self.client.is_gone() && !bytes.is_empty() {
            pending.last = Some(bytes);
        }
        pending.wake_connection();
    }

    /// Waits until the client leaves.
    pub(crate) async fn left(&self) {
        self.client.left().await;
    }

    /// Returns whether the stream runs in its own task, because the connection is not asking for more.
    pub(crate) fn is_detached(&self) -> bool {
        self.pending().wakers.is_some()
    }

    /// Waits until the stream runs in its own task. The first thing that this task does is to poll this future.
    pub(crate) async fn detached(&self) {
        poll_fn(|_| if self.is_detached() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn end(&self) {
        let mut pending = self.pending();
        pending.ended = true;
        pending.wake_connection();
    }

    fn pending(&self) -> MutexGuard<'_, PendingBytes> {
        self.pending.lock()
    }

    fn take(&self) -> Option<Bytes> {
        self.pending().take()
    }

    fn poll_take(&self, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientLeft>>> {
        let mut pending = self.pending();
        if let Some(bytes) = pending.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if self.client.is_gone() {
            return Poll::Ready(Some(Err(ClientLeft)));
        }
        if pending.ended {
            return Poll::Ready(None);
        }
        pending.asked = true;
        if let Some(wakers) = &mut pending.wakers {
            wakers.connection = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Error that breaks off a stream whose client read nothing for too long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client stopped reading its stream for too long")]
pub(crate) struct ClientLeft;

/// Body of a stream. Its future runs whenever the connection asks for more. If the client leaves, it runs to its end.
pub(crate) struct StreamBody(Arc<StreamTask>);

struct StreamTask {
    future: Mutex<Option<Inside<Boxed<()>>>>,
    pipe: Pipe,
    tracker: TaskTracker,
}

impl StreamBody {
    /// Makes a body of the bytes that `stream` puts into the pipe, within the current span.
    pub(crate) fn new<F>(client: Client, tracker: &TaskTracker, stream: impl FnOnce(Pipe) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pending = PendingBytes { piece: None, last: None, ended: false, asked: false, wakers: None };
        let pipe = Pipe { client, pending: Arc::new(Mutex::new(pending)) };
        let ending = pipe.clone();
        // With an async block instead of `map`, the future would be twice as large.
        let stream = stream(pipe.clone()).map(move |()| ending.end());
        let future: Boxed<()> = Box::pin(tracker.track_future(stream));
        let future = Span::current().around(future);
        Self(Arc::new(StreamTask { future: Mutex::new(Some(future)), pipe, tracker: tracker.clone() }))
    }

    /// Returns the stream, for the watch on its connection.
    pub(crate) fn stream(&self) -> Arc<dyn Detach> {
        self.0.clone()
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = ClientLeft;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientLeft>>> {
        let StreamTask { future, pipe, .. } = &*self.0;
        if let Some(bytes) = pipe.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        // The lock is held until the pipe has been polled. If the stream could move to its own task in between, it
        // could not wake this task.
        let mut running = future.lock();
        if running.as_mut().is_some_and(|future| Pin::new(future).poll(context).is_ready()) {
            *running = None;
        }
        pipe.poll_take(context)
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Detach for StreamTask {
    fn detach(&self) {
        let mut future = self.future.lock();
        let mut pending = self.pipe.pending();
        // If the connection is asking for more, it polls the future itself.
        if pending.asked {
            return;
        }
        let Some(future) = future.take() else { return };
        pending.wakers = Some(Box::default());
        drop(pending);
        self.tracker.spawn(future);
    }
}

impl StreamTask {
    /// Marks the client as gone, and lets the rest of the stream run in the background.
    fn abandon(&self) {
        let future = self.future.lock().take();
        let mut pending = self.pipe.pending();
        if pending.ended && future.is_none() {
            return;
        }
        self.pipe.client.leave();
        // Nobody will take the waiting pieces, and they must not block the rest of the stream.
        (pending.piece, pending.last) = (None, None);
        pending.wake_stream();
        pending.wake_connection();
        drop(pending);
        if let Some(future) = future {
            self.tracker.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

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

    #[tokio::test]
    async fn a_future_of_a_client_that_was_answered_goes_on_and_the_client_has_not_left() {
        let (client, tracker) = (Client::default(), TaskTracker::new());
        let ended = Arc::new(AtomicU32::new(0));
        let counted = ended.clone();
        let work = async move {
            tokio::task::yield_now().await;
            counted.fetch_add(1, Ordering::SeqCst);
        };
        RunToEnd::new(work, client.clone(), &tracker).run_in_background();
        tracker.close();
        tracker.wait().await;
        assert!(ended.load(Ordering::SeqCst) == 1 && !client.is_gone());
    }

    /// Makes a stream of three pieces that records its end.
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
        let (tracker, ended) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let all = pieces(&tracker, &ended).collect().await.unwrap().to_bytes();
        assert_eq!((&*all, ended.load(Ordering::SeqCst)), (&b"abc"[..], 1));
    }

    #[tokio::test]
    async fn a_stream_whose_client_takes_nothing_ends_in_the_background_and_breaks_off() {
        let (tracker, ended) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let body = pieces(&tracker, &ended);
        body.stream().detach();
        tokio::task::yield_now().await;
        assert_eq!(ended.load(Ordering::SeqCst), 0, "it waits for its client");
        let task = body.0.clone();
        drop(body);
        tracker.close();
        tracker.wait().await;
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        let mut rest = StreamBody(task);
        assert!(rest.frame().await.unwrap().is_err(), "no end that passes for the stream's own");
    }

    #[tokio::test]
    async fn a_stream_whose_client_lags_goes_on_by_itself_and_its_client_finds_all_of_it() {
        let (tracker, ended) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let counted = ended.clone();
        let body = StreamBody::new(Client::default(), &tracker, |pipe| async move {
            pipe.put(Bytes::from_static(b"a"));
            pipe.detached().await;
            counted.fetch_add(1, Ordering::SeqCst);
            pipe.writable().await;
            pipe.put(Bytes::from_static(b"b"));
            pipe.put_last(Bytes::from_static(b"c"));
        });
        tokio::task::yield_now().await;
        assert_eq!(ended.load(Ordering::SeqCst), 0, "it waits for its client");
        body.stream().detach();
        tokio::task::yield_now().await;
        assert_eq!(ended.load(Ordering::SeqCst), 1, "it runs by itself");
        assert_eq!(body.collect().await.unwrap().to_bytes(), &b"abc"[..]);
    }

    #[tokio::test]
    async fn a_client_that_waits_for_a_stream_with_a_task_of_its_own_is_woken() {
        let tracker = TaskTracker::new();
        let body = StreamBody::new(Client::default(), &tracker, |pipe| async move {
            pipe.detached().await;
            for piece in ["a", "b"] {
                tokio::time::sleep(Duration::from_millis(5)).await;
                pipe.writable().await;
                pipe.put(Bytes::from_static(piece.as_bytes()));
            }
        });
        body.stream().detach();
        assert_eq!(body.collect().await.unwrap().to_bytes(), &b"ab"[..]);
    }
}
