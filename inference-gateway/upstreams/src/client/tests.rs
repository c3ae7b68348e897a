//! Connections to a server that counts its connections, and keeps or closes them.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Buf;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK";

/// Starts a server that closes each connection after some requests, and counts its connections.
async fn serve(requests_each: usize) -> (Server, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(answer(stream, requests_each));
        }
    });
    (Server::of(&url, &Access::default()).unwrap(), connections)
}

async fn answer(mut stream: TcpStream, requests: usize) {
    for _ in 0..requests {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n{}") {
            if stream.read_buf(&mut request).await.unwrap() == 0 {
                return;
            }
        }
        stream.write_all(ANSWER).await.unwrap();
    }
}

async fn post(client: &UpstreamClient, server: &Server) -> Result<Response<Incoming>, SendError> {
    let body = Full::new(Bytes::from_static(b"{").chain(Bytes::from_static(b"}")));
    client.request(server, Request::post("/v1/chat/completions").body(body).unwrap()).await
}

/// Sends a request and reads its answer.
async fn ask(client: &UpstreamClient, server: &Server) {
    let answer = post(client, server).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "OK");
}

/// Waits until a connection is idle.
async fn idle(client: &UpstreamClient) {
    while client.0.idle.lock().by_server.values().all(|server| server.idle.is_empty()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_was_read() {
    let (server, connections) = serve(usize::MAX).await;
    let client = UpstreamClient::new(None);
    for _ in 0..3 {
        ask(&client, &server).await;
        idle(&client).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let (one, other) = tokio::join!(post(&client, &server), post(&client, &server));
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(connections.load(Ordering::SeqCst), 2, "one that is in use is not shared");
}

#[tokio::test]
async fn a_request_that_cannot_connect_takes_the_next_connection_that_becomes_idle() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // One connection waits to be accepted, and the listener takes no further connections.
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::of(&format!("http://{address}").parse().unwrap(), &Access::default()).unwrap();
    let client = UpstreamClient::new(None);
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        stream.readable().await.unwrap();
        let _filling = TcpStream::connect(address).await.unwrap();
        let second = tokio::spawn({
            let (client, server) = (client.clone(), Server::of(&server.origin, &Access::default()).unwrap());
            async move { ask(&client, &server).await }
        });
        while client.0.idle.lock().by_server[&server.name].waiting.iter().all(oneshot::Sender::is_closed) {
            tokio::task::yield_now().await;
        }
        answer(stream, 2).await;
        second.await.unwrap();
    };
    tokio::join!(serving, ask(&client, &server));
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_is_not_felt() {
    let (server, connections) = serve(1).await;
    let client = UpstreamClient::new(None);
    for _ in 0..5 {
        ask(&client, &server).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_server_that_hangs_up_on_a_request_is_not_asked_again() {
    let (server, connections) = serve(0).await;
    let failed = post(&UpstreamClient::new(None), &server).await.unwrap_err();
    assert!(matches!(failed, SendError::Request(_)), "{failed:?}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn interim_heads_are_skipped_and_those_without_end_cost_the_connection() {
    for (interim, is_answered) in [(16, true), (17, false), (usize::MAX, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..interim {
                if stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                    return;
                }
            }
            // The client may have left.
            let _ = stream.write_all(ANSWER).await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let (client, server) = (UpstreamClient::new(None), Server::of(&url, &Access::default()).unwrap());
        let asking = async move {
            let answer = post(&client, &server).await;
            assert_eq!(answer.is_ok(), is_answered, "{interim}: {answer:?}");
        };
        tokio::join!(serving, asking);
    }
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_told_from_one_that_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let failed =
        post(&UpstreamClient::new(None), &Server::of(&url, &Access::default()).unwrap()).await.unwrap_err();
    assert!(matches!(failed, SendError::Connect(_)), "{failed:?}");
}

#[tokio::test]
async fn a_server_that_does_not_finish_the_handshake_of_tls_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (client, server) = (UpstreamClient::new(None), Server::of(&url, &Access::default()).unwrap());
    let silent = async {
        let (_kept, _) = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::time::pause();
    let failed = select! {
        () = silent => None,
        failed = timeout(2 * HANDSHAKE_DEADLINE, post(&client, &server)) => failed.ok(),
    };
    assert!(matches!(failed, Some(Err(SendError::Connect(_)))), "{failed:?}");
}

#[tokio::test]
async fn connections_that_stay_idle_are_closed() {
    let (server, connections) = serve(usize::MAX).await;
    let client = UpstreamClient::new(None);
    ask(&client, &server).await;
    idle(&client).await;
    tokio::time::pause();
    sleep(2 * PRUNE_EVERY + Duration::from_secs(1)).await;
    assert_eq!(client.0.idle.lock().by_server.len(), 0);
    tokio::time::resume();
    ask(&client, &server).await;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn a_server_is_called_as_its_url_says() {
    for (url, name, host, address) in [
        ("http://a.example/v1", "http://a.example", "a.example", ("a.example", 80)),
        ("http://a.example:80/v1", "http://a.example:80", "a.example", ("a.example", 80)),
        ("https://a.example:443", "https://a.example:443", "a.example", ("a.example", 443)),
        ("https://a.example", "https://a.example", "a.example", ("a.example", 443)),
        ("https://[::1]:8443/x", "https://[::1]:8443", "[::1]:8443", ("[::1]", 8443)),
    ] {
        let server = Server::of(&url.parse().unwrap(), &Access::default()).unwrap();
        assert_eq!((&*server.name, server.host.to_str().unwrap(), server.address()), (name, host, address));
    }
}
