//! A paying caller next to an attack. Some functions measure how long the caller waits for answers, and one function
//! sends many requests at once.

use std::time::{Duration, Instant};

use http::{Method, header};
use serde_json::json;

use super::row::plain;
use tests::{
    harness::{Answer, ApiKey, FLASH, Http, Stack},
    upstream::Script,
};

/// Number of requests of the paying load that are in flight at once.
const AT_ONCE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) median: Duration,
    /// The longest wait. A chat that is not answered with 200 counts as one that took forever.
    pub(super) longest: Duration,
}

/// Sends one chat after the other until `until`.
pub(super) async fn chats(stack: &Stack, key: &ApiKey, until: tokio::time::Instant) -> Waits {
    let mut waits = Vec::new();
    while waits.is_empty() || tokio::time::Instant::now() < until {
        let began = Instant::now();
        let answer = stack.call(key, Script::tokens(12, 5)).send().await;
        waits.push(if answer.status == 200 { began.elapsed() } else { Duration::MAX });
    }
    waits.sort();
    Waits { median: waits[waits.len() / 2], longest: waits[waits.len() - 1] }
}

/// Sends several requests, half of them on new connections, and returns how long the slowest took.
pub(super) async fn slowest(stack: &Stack, key: &ApiKey, pooled: &Http) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..20 {
        let http = if number % 2 == 0 { pooled.clone() } else { Http::new() };
        let began = Instant::now();
        // A request whose connection breaks is retried, as every SDK does. Its time then includes all attempts.
        while !asked(stack, key, &http).await {}
        longest = longest.max(began.elapsed());
    }
    longest
}

/// Requests the list of models. Returns whether it was answered with 200.
async fn asked(stack: &Stack, key: &ApiKey, http: &Http) -> bool {
    let mut request = plain(Method::GET, &stack.url("/v1/models"));
    let bearer = format!("Bearer {}", key.secret).parse().expect("a key fits into a header");
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    match http.open(request).await {
        Ok(response) => {
            let answer = Answer::read(response).await;
            answer.is_ok_and(|answer| answer.status == 200)
        }
        Err(_broken) => false,
    }
}

/// Sends this many paid requests, several of them at once.
pub(super) async fn pay(stack: &Stack, key: &ApiKey, requests: usize) {
    let url = stack.url("/v1/chat/completions");
    let http = Http::new();
    let body = json!({"model": FLASH, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
    let loads = (0..AT_ONCE).map(|_| {
        let (http, secret, url, body) = (http.clone(), key.secret.clone(), url.clone(), body.clone());
        tokio::spawn(async move {
            for _ in 0..requests / AT_ONCE {
                http.send_as(&secret, Method::POST, &url, Some(body.clone())).await;
            }
        })
    });
    for load in loads.collect::<Vec<_>>() {
        load.await.unwrap();
    }
}
