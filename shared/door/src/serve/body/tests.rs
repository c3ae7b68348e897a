use std::{convert::Infallible, future::poll_fn, net::IpAddr, sync::atomic::AtomicUsize};

use futures_util::stream;
use tokio::time::{advance, pause};
use tokio_util::task::TaskTracker;

use super::*;
use crate::{
    admission::Owner,
    serve::{
        bounds::Bounds,
        connection::Overdue,
        register::{Register, Registration},
    },
};

const BOUND: Duration = Duration::from_secs(20);

/// A connection whose client reads its answers, or does not.
struct Client {
    registration: Registration,
    responses: Arc<Responses>,
}

fn register() -> Arc<Register> {
    Register::new(&Bounds { connections: 10, unauthenticated: 4, ..Bounds::default() }, TaskTracker::new())
}

impl Client {
    fn of(register: &Arc<Register>, machine: u8) -> Self {
        let registration = register.admit(IpAddr::from([192, 0, 2, machine]));
        Self { registration, responses: Arc::default() }
    }

    fn unauthenticated() -> Self {
        Self::of(&register(), 1)
    }

    fn authenticated() -> Self {
        let client = Self::unauthenticated();
        client.registration.0.trust(Owner::Service);
        client
    }

    fn respond(&self, body: impl Into<Body>, http2: bool) -> WatchedBody {
        self.respond_with(body, http2, None)
    }

    fn respond_with(
        &self,
        body: impl Into<Body>,
        http2: bool,
        stream: Option<Arc<dyn Detach>>,
    ) -> WatchedBody {
        let options = BodyOptions { unread: Unread { bound: BOUND, stream }, http2 };
        self.responses.respond(self.registration.0.begin_request(0), body.into(), options)
    }

    /// Returns the load of the connection, and whether it is idle.
    fn load(&self) -> (usize, bool) {
        let snapshot = self.registration.0.snapshot(Instant::now());
        (snapshot.load, snapshot.idle.is_some())
    }

    fn look(&self) -> Result<Option<Instant>, Overdue> {
        self.responses.look(Instant::now())
    }

    async fn was_evicted(&self) -> bool {
        tokio::time::timeout(Duration::ZERO, self.registration.0.evicted.notified()).await.is_ok()
    }
}

async fn next(body: &mut WatchedBody) -> Option<Result<Piece, axum::Error>> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_else(|_| panic!("there are no trailers"))))
}

async fn take(body: &mut WatchedBody) -> Piece {
    next(body).await.unwrap().unwrap()
}

/// A buffer whose count shows that the memory is still in use.
struct Buffer(Vec<u8>, #[expect(dead_code, reason = "held for its count")] Arc<()>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn an_answer_counts_until_its_last_piece_is_written() {
    let client = Client::unauthenticated();
    let mut body = client.respond(vec![0; 10_000], true);
    let mut pieces = Vec::new();
    while let Some(piece) = next(&mut body).await {
        pieces.push(piece.unwrap());
    }
    assert_eq!(pieces.iter().map(Buf::remaining).collect::<Vec<_>>(), [4096, 4096, 1808]);
    assert_eq!(client.load(), (3, false), "the answer, and two full pieces");
    drop(body);
    assert_eq!(client.load(), (3, false));
    pieces.remove(0);
    assert_eq!(client.load(), (2, false));
    drop(pieces);
    assert_eq!(client.load(), (0, true));
}

#[tokio::test]
async fn pieces_are_larger_for_callers_whose_credential_was_accepted_and_not_copied_over_http_1() {
    let client = Client::authenticated();
    let large = Bytes::from(vec![0; 200 << 10]);
    assert_eq!(take(&mut client.respond(large.clone(), true)).await.remaining(), PIECE);
    let mut body = client.respond(large.clone(), false);
    assert_eq!(body.size_hint().exact(), Some(200 << 10));
    let piece = take(&mut body).await;
    assert_eq!((piece.remaining(), piece.chunk().as_ptr()), (PIECE_OF_HTTP1, large.as_ptr()));
    assert_eq!(body.size_hint().exact(), Some((200 << 10) - PIECE_OF_HTTP1 as u64));
    let mut taken = piece.remaining();
    while let Some(piece) = next(&mut body).await {
        taken += piece.unwrap().remaining();
    }
    assert_eq!(taken, 200 << 10);
}

#[tokio::test]
async fn unread_answers_count_against_the_budget_of_unauthenticated_callers_though_their_bodies_are_gone() {
    let register = register();
    let (greedy, modest) = (Client::of(&register, 1), Client::of(&register, 2));
    let mut unread = Vec::new();
    for _ in 0..2100 {
        let mut body = greedy.respond(vec![0; UNAUTHENTICATED_PIECE], true);
        unread.push(take(&mut body).await);
        drop(body);
    }
    assert!(greedy.was_evicted().await && !modest.was_evicted().await);
}

#[tokio::test]
async fn a_whole_answer_that_is_taken_too_slowly_ends_its_connection() {
    pause();
    let client = Client::unauthenticated();
    let mut body = client.respond(vec![0; 10 << 20], false);
    let mut rounds = 0;
    // At eight KiB a second, each piece is progress, but the whole answer is too slow.
    while client.look().is_ok() {
        drop(take(&mut body).await);
        advance(Duration::from_secs(8)).await;
        rounds += 1;
        assert!(rounds < 10);
    }
    assert!(rounds > 2, "it has its time");
}

#[tokio::test]
async fn a_whole_answer_over_http_2_gives_its_memory_back_and_leaves_others_alone() {
    pause();
    let client = Client::authenticated();
    let in_memory = Arc::new(());
    let mut slow = client.respond(Bytes::from_owner(Buffer(vec![0; 10 << 20], in_memory.clone())), true);
    let mut quick = client.respond(vec![0; 10 << 20], true);
    for _ in 0..10 {
        let _ = next(&mut slow).await;
        for _ in 0..10 * LEAST_RATE / PIECE as u64 {
            drop(take(&mut quick).await);
        }
        advance(Duration::from_secs(10)).await;
        client.look().unwrap();
    }
    assert_eq!(Arc::strong_count(&in_memory), 1);
    assert!(next(&mut slow).await.unwrap().is_err());
    assert!(next(&mut quick).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_stream_may_be_taken_slowly_but_not_left() {
    pause();
    let client = Client::unauthenticated();
    let events = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n")));
    let mut body = client.respond(Body::from_stream(events), false);
    for _ in 0..100 {
        drop(take(&mut body).await);
        advance(Duration::from_secs(19)).await;
        client.look().unwrap();
    }
    advance(Duration::from_secs(1)).await;
    assert_eq!(client.look(), Err(Overdue::Unread));
}

/// A stream that counts how often it was detached.
#[derive(Default)]
struct Stream(AtomicUsize);

impl Detach for Stream {
    fn detach(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_stream_that_nobody_asks_for_is_detached_in_time_and_once() {
    pause();
    for http2 in [false, true] {
        let (client, stream) = (Client::authenticated(), Arc::new(Stream::default()));
        let endless = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n")));
        let mut body = client.respond_with(Body::from_stream(endless), http2, Some(stream.clone()));
        let detached = || stream.0.load(Ordering::Relaxed);
        for _ in 0..3 {
            drop(take(&mut body).await);
            assert_eq!(client.look(), Ok(Some(Instant::now() + DETACH_AFTER)));
            advance(DETACH_AFTER / 2).await;
        }
        assert_eq!(detached(), 0);
        advance(DETACH_AFTER / 2).await;
        assert!(client.look().is_ok() && detached() == 1);
        drop(take(&mut body).await);
        advance(BOUND / 2).await;
        assert!(client.look().is_ok() && detached() == 1);
    }
}

#[tokio::test]
async fn a_connection_that_waits_for_its_stream_is_looked_at_once_a_write_waits() {
    let (client, stream) = (Client::authenticated(), Arc::new(Stream::default()));
    let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let mut body = client.respond_with(silent, false, Some(stream));
    assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context).is_pending())).await);
    assert_eq!(client.look(), Ok(None));
    client.registration.0.note_write(true);
    assert!(client.registration.0.began_to_wait() && !client.registration.0.began_to_wait());
    assert!(client.look().unwrap().is_some());
}
