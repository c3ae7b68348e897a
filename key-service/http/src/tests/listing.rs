use shared_door::serve::{Bounds, Port, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::*;

/// Number of keys: more than one read of the store returns, and more than fit on one page.
const MANY: usize = 1234;

impl Desk {
    /// Creates keys labelled with their numbers, oldest first. Of every three keys, the first is revoked and the second
    /// has expired.
    async fn fill(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for number in 0..count {
            let expires_at = if number % 3 == 1 { r#""2020-01-01T00:00Z""# } else { "null" };
            let id = self.created_id(&format!(r#"{{"label":"{number}","expires_at":{expires_at}}}"#)).await;
            if number % 3 == 0 {
                self.delete(&id).await;
            }
            ids.push(id);
        }
        ids
    }

    /// Returns the ids in a listing, and whether there are more. Checks the members around the list too.
    async fn listed(&self, query: &str) -> (Vec<String>, bool) {
        let answer = self.get(&format!("{KEYS}?{query}")).await;
        ids_in(&answer)
    }

    /// Returns how many calls to the backend a listing of all keys makes.
    async fn calls_of_a_listing(&self) -> u64 {
        for calls in 0.. {
            self.office.records.fail_after(calls);
            let request = self.request(Method::GET, KEYS).body(Body::empty()).unwrap();
            let response = self.app.clone().oneshot(request).await.unwrap();
            if response.status() == 200 && response.into_body().collect().await.is_ok() {
                self.office.records.recover();
                return calls;
            }
        }
        unreachable!("it is whole some time")
    }

    /// Reads all ids page by page, as an SDK does.
    async fn paged(&self, query: &str) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let (ids, has_more) = self.listed(&format!("{query}{after}")).await;
            after = ids.last().map(|id| format!("&after={id}")).unwrap_or_default();
            all.extend(ids);
            if !has_more {
                return all;
            }
        }
    }
}

#[tokio::test]
async fn an_empty_list_has_neither_a_first_nor_a_last_key() {
    let desk = Desk::open().await;
    let empty = r#"{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}"#;
    for query in ["", "?limit=20", "?status=revoked", "?order=asc"] {
        assert_eq!(desk.get(&format!("{KEYS}{query}")).await.text, empty);
    }
}

#[tokio::test]
async fn keys_are_listed_newest_first_with_every_member_and_without_their_plaintext() {
    let desk = Desk::open().await;
    let ids = desk.fill(4).await;
    let answer = desk.get(KEYS).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let statuses: Vec<&str> =
        answer.json["data"].as_array().unwrap().iter().map(|k| k["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["revoked", "active", "expired", "revoked"]);
    for (key, id) in answer.json["data"].as_array().unwrap().iter().zip(ids.iter().rev()) {
        assert_eq!(*key, desk.get(&format!("{KEYS}/{id}")).await.json);
    }
}

#[tokio::test]
async fn without_a_limit_every_key_is_listed_however_many() {
    let desk = Desk::open().await;
    let mut ids = desk.fill(MANY).await;
    assert_eq!(desk.listed("order=asc").await, (ids.clone(), false));
    let behind = desk.listed(&format!("order=asc&after={}", ids[9])).await;
    assert_eq!(behind, (ids[10..].to_vec(), false));
    ids.reverse();
    assert_eq!(desk.listed("").await, (ids.clone(), false));
    let active: Vec<String> = ids.iter().rev().skip(2).step_by(3).cloned().collect();
    assert_eq!(desk.listed("status=active&order=asc").await, (active, false));
}

#[tokio::test]
async fn pages_of_any_size_add_up_to_the_whole() {
    let desk = Desk::open().await;
    let ids = desk.fill(20).await;
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    for limit in [1, 3, 19, 20, 21, 1000] {
        assert_eq!(desk.paged(&format!("limit={limit}&order=asc")).await, ids);
        assert_eq!(desk.paged(&format!("limit={limit}")).await, newest_first);
        assert_eq!(desk.paged(&format!("order=desc&limit={limit}&unknown=x")).await, newest_first);
    }
    assert_eq!(desk.listed("limit=19").await, (newest_first[..19].to_vec(), true));
    assert_eq!(desk.listed("limit=20").await, (newest_first, false));
}

#[tokio::test]
async fn a_page_of_one_status_is_full_as_long_as_there_are_more() {
    let desk = Desk::open().await;
    let ids = desk.fill(MANY).await;
    for (remainder, status) in ["revoked", "expired", "active"].into_iter().enumerate() {
        let expected: Vec<String> = ids.iter().skip(remainder).step_by(3).cloned().collect();
        assert_eq!(desk.paged(&format!("order=asc&limit=100&status={status}")).await, expected);
        let (first, has_more) = desk.listed(&format!("order=asc&limit=100&status={status}")).await;
        assert_eq!((first.len(), has_more), (100, true));
    }
}

#[tokio::test]
async fn a_bad_query_names_its_parameter() {
    let desk = Desk::open().await;
    let id = desk.created_id("{}").await;
    let unknown = id.replace("ak_0", "ak_1");
    for (query, code, param) in [
        ("limit=0", "integer_below_min_value", "limit"),
        ("limit=-5", "integer_below_min_value", "limit"),
        ("limit=1001", "integer_above_max_value", "limit"),
        ("limit=99999999999999999999999", "integer_above_max_value", "limit"),
        ("limit=", "invalid_value", "limit"),
        ("limit=ten", "invalid_value", "limit"),
        ("limit=1.5", "invalid_value", "limit"),
        ("limit=+5", "invalid_value", "limit"),
        ("limit=1&limit=2", "invalid_value", "limit"),
        ("order=up", "invalid_value", "order"),
        ("order=ASC", "invalid_value", "order"),
        ("status=", "invalid_value", "status"),
        ("status=all", "invalid_value", "status"),
        ("after=", "invalid_value", "after"),
        ("after=nonsense", "invalid_value", "after"),
        (&format!("after={unknown}"), "invalid_value", "after"),
    ] {
        desk.get(&format!("{KEYS}?{query}")).await.is_error(400, code, Some(param));
    }
    assert_eq!(desk.listed("%6Cimit=1&x=%FF&&=").await, (vec![id], false));
}

#[tokio::test]
async fn a_listing_that_breaks_off_does_not_look_complete() {
    let desk = Desk::open().await;
    desk.fill(MANY).await;
    desk.used().await;
    let mut broken_off = 0;
    for calls in 0..desk.calls_of_a_listing().await {
        desk.office.records.fail_after(calls);
        let request = || desk.request(Method::GET, KEYS).body(Body::empty()).unwrap();
        let response = desk.app.clone().oneshot(request()).await.unwrap();
        if response.status() == 200 {
            assert!(response.into_body().collect().await.is_err(), "{calls}");
            broken_off += 1;
        } else {
            desk.office.records.fail_after(calls);
            desk.send(request()).await.is_error(503, "service_unavailable", None);
        }
    }
    assert!(broken_off > 0);
    desk.office.records.recover();
    assert_eq!(desk.listed("").await.0.len(), MANY);
}

#[tokio::test]
async fn a_page_that_was_read_is_sent_before_the_next_is_read() {
    let desk = Desk::open().await;
    desk.fill(MANY).await;
    desk.used().await;
    let mut calls = 0;
    // The backend fails after the calls that read the first page.
    let mut body = loop {
        desk.office.records.fail_after(calls);
        let request = desk.request(Method::GET, KEYS).body(Body::empty()).unwrap();
        let response = desk.app.clone().oneshot(request).await.unwrap();
        if response.status() == 200 {
            break response.into_body();
        }
        calls += 1;
    };
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.windows(9).filter(|w| w == b"\"api_key\"").count(), 500);
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn over_a_socket_a_listing_that_breaks_off_ends_without_its_last_chunk() {
    let desk = Desk::open().await;
    desk.fill(MANY).await;
    desk.used().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let port = Port { drain: std::time::Duration::ZERO, ..Port::new(listener, Bounds::default()) };
    let serving = tokio::spawn(serve(port, desk.app.clone(), stop.clone()));
    let request = format!(
        "GET {KEYS}/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        desk.credential
    );
    let calls = desk.calls_of_a_listing().await;
    for (answered_calls, whole) in [(calls, true), (calls - 1, false)] {
        desk.office.records.fail_after(answered_calls);
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        let _cut_or_closed = socket.read_to_end(&mut received).await;
        assert_eq!(received.ends_with(b"\r\n0\r\n\r\n"), whole);
    }
    stop.cancel();
    serving.await.unwrap();
}
