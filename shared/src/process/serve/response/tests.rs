use std::{convert::Infallible, future::poll_fn, net::IpAddr};

use futures_util::stream;
use tokio::time::{advance, pause};

use super::{
    super::{
        Bounds, Caller,
        admission::{Admission, Place},
        connection::Overdue,
    },
    *,
};

const BOUND: Duration = Duration::from_secs(20);

fn places() -> Arc<Admission> {
    Admission::new(&Bounds { connections: 10, unauthenticated: 4, ..Bounds::default() })
}

fn stranger(admission: &Arc<Admission>) -> Place {
    admission.admit(IpAddr::from([192, 0, 2, 1]))
}

fn respond(place: &Place, body: impl Into<Body>, http2: bool) -> WatchedBody {
    place.0.begin_request(0).respond(body.into(), WatchedBodyOptions { unread_bound: BOUND, http2 })
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
    let admission = places();
    let place = stranger(&admission);
    let mut body = respond(&place, vec![0; 10_000], true);
    let mut pieces = Vec::new();
    while let Some(piece) = next(&mut body).await {
        pieces.push(piece.unwrap());
    }
    assert_eq!(pieces.iter().map(Buf::remaining).collect::<Vec<_>>(), [4096, 4096, 1808]);
    assert_eq!(place.0.load(), 3, "the answer, and two full pieces");
    drop(body);
    assert_eq!((place.0.load(), place.0.idle_since()), (3, None));
    pieces.remove(0);
    assert_eq!((place.0.load(), place.0.idle_since()), (2, None));
    drop(pieces);
    assert_eq!(place.0.load(), 0);
    assert!(place.0.idle_since().is_some());
}

#[tokio::test]
async fn pieces_are_larger_for_callers_whose_credential_was_accepted_and_not_copied_over_http_1() {
    let admission = places();
    let place = stranger(&admission);
    place.0.trust(Caller::Service);
    let large = Bytes::from(vec![0; 200 << 10]);
    assert_eq!(take(&mut respond(&place, large.clone(), true)).await.remaining(), PIECE);
    let mut body = respond(&place, large.clone(), false);
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
async fn unread_answers_count_against_the_budget_of_strangers_though_their_bodies_are_gone() {
    let admission = places();
    let (greedy, modest) = (stranger(&admission), admission.admit(IpAddr::from([192, 0, 2, 2])));
    let mut unread = Vec::new();
    for _ in 0..2100 {
        let mut body = respond(&greedy, vec![0; PIECE_OF_STRANGERS], true);
        unread.push(take(&mut body).await);
        drop(body);
    }
    let evicted = |place: &Place| {
        let connection = place.0.clone();
        async move { tokio::time::timeout(Duration::ZERO, connection.evicted.notified()).await.is_ok() }
    };
    assert!(evicted(&greedy).await && !evicted(&modest).await);
}

#[tokio::test]
async fn a_whole_answer_that_is_taken_too_slowly_ends_its_connection() {
    pause();
    let admission = places();
    let place = stranger(&admission);
    let mut body = respond(&place, vec![0; 10 << 20], false);
    let mut rounds = 0;
    // Eight KiB a second: each piece is progress, and all together too little.
    while place.0.look(&Bounds::default(), Instant::now()).is_ok() {
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
    let admission = places();
    let place = stranger(&admission);
    place.0.trust(Caller::Service);
    let in_memory = Arc::new(());
    let mut slow = respond(&place, Bytes::from_owner(Buffer(vec![0; 10 << 20], in_memory.clone())), true);
    let mut quick = respond(&place, vec![0; 10 << 20], true);
    for _ in 0..10 {
        let _ = next(&mut slow).await;
        for _ in 0..10 * LEAST_RATE / PIECE as u64 {
            drop(take(&mut quick).await);
        }
        advance(Duration::from_secs(10)).await;
        place.0.look(&Bounds::default(), Instant::now()).unwrap();
    }
    assert_eq!(Arc::strong_count(&in_memory), 1);
    assert!(next(&mut slow).await.unwrap().is_err());
    assert!(next(&mut quick).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_stream_may_be_taken_slowly_but_not_left() {
    pause();
    let admission = places();
    let place = stranger(&admission);
    let events = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"data: 1\n\n")));
    let mut body = respond(&place, Body::from_stream(events), false);
    for _ in 0..100 {
        drop(take(&mut body).await);
        advance(Duration::from_secs(19)).await;
        place.0.look(&Bounds::default(), Instant::now()).unwrap();
    }
    advance(Duration::from_secs(1)).await;
    assert_eq!(place.0.look(&Bounds::default(), Instant::now()), Err(Overdue::Unread));
}
