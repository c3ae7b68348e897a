//! Requests on vendors' servers continue while the store is unavailable, and every charge is delivered once, whatever
//! the API.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Deployment, Dialect, Form, Options, Server, Stack, cost_of},
    upstream::{End, Script},
};
use tokio::time::sleep;

use crate::{
    services::faults::outages::{LEASE, billed_at_last, heals},
    upstreams::natives::{Native, compared, record, storm},
};

/// What happens to the store while requests run.
#[derive(Clone, Copy, Debug)]
enum Outage {
    RedisIsKilled,
    RedisHangs,
    KeyServicesAreKilled,
}

impl Outage {
    fn begin(self, stack: &Stack) {
        match self {
            Self::RedisIsKilled => stack.redis().kill(),
            Self::RedisHangs => stack.redis().hang(),
            Self::KeyServicesAreKilled => stack.key_services.iter().for_each(Server::kill),
        }
    }

    async fn end(self, stack: &Stack) {
        match self {
            Self::RedisIsKilled => stack.redis().restart().await,
            Self::RedisHangs => stack.redis().resume(),
            Self::KeyServicesAreKilled => {
                join_all(stack.key_services.iter().map(Server::restart)).await;
            }
        }
    }
}

async fn two_of_each(native: Native) -> Stack {
    let deployment = Deployment::services(2, 2, Form::Cluster);
    Stack::with(Options { deployment, lease: LEASE, ..native.options() }).await
}

#[apply(fact)]
async fn what_vendors_served_while_redis_was_killed_is_billed_once() {
    is_billed_once(Outage::RedisIsKilled).await;
}

#[apply(fact)]
async fn what_vendors_served_while_redis_hung_is_billed_once() {
    is_billed_once(Outage::RedisHangs).await;
}

#[apply(fact)]
async fn what_vendors_served_while_no_key_service_ran_is_billed_once() {
    is_billed_once(Outage::KeyServicesAreKilled).await;
}

/// Lets whole answers, streams, and a stream whose client leaves end during an outage that is longer than a lease.
async fn is_billed_once(outage: Outage) {
    for native in Native::BOTH {
        let stack = two_of_each(native).await;
        let key = stack.key().await;
        let whole = join_all(Dialect::ALL.map(|dialect| {
            let script = Script { head_after_ms: 1_000, ..Script::tokens(30, 7) };
            stack.call(&key, script).speaking(dialect).send()
        }));
        let stream = |prompt| Script::tokens(prompt, 40).pace(30);
        let streams = join_all(Dialect::ALL.map(|dialect| {
            let call = stack.call(&key, stream(31)).speaking(dialect);
            async { call.stream().await.rest().await }
        }));
        let left = async {
            let mut left = stack.call(&key, stream(32)).speaking(native.own()).stream().await;
            left.read_tokens(25).await;
            left.tag.clone()
        };
        let away = async {
            sleep(Duration::from_millis(500)).await;
            outage.begin(&stack);
            sleep(LEASE + Duration::from_secs(1)).await;
            outage.end(&stack).await;
        };
        let (whole, streams, left, ()) = tokio::join!(whole, streams, left, away);
        let place = format!("{native:?}, {outage:?}");
        assert!(whole.iter().all(|answer| answer.status == 200), "{place}: {whole:?}");
        assert!(streams.iter().all(|ended| ended.done && ended.tokens() == 40), "{place}: {streams:?}");
        stack.upstream.wait_for(&left, "end", |generation| generation.ended_by(End::Finished)).await;
        heals(&stack, &key).await;

        let asked = stack.upstream.generations().len();
        assert_eq!(asked, 7 + stack.gateways.len(), "{place}");
        let served: i64 = stack.cost_of_served(&key).nanos();
        let expected = 3 * cost_of(30, 7).nanos()
            + 3 * cost_of(31, 40).nanos()
            + cost_of(32, 40).nanos()
            + 2 * cost_of(12, 5).nanos();
        assert_eq!(served, expected, "{place}");
        billed_at_last(&stack, &key, NanoUsd::from_nanos(served)).await;
        let equal = compared(&stack, &record(&stack));
        assert_eq!((&equal["equal"], &equal["billed"]["requests"]), (&json!(true), &json!(asked)), "{equal}");
    }
}

#[apply(fact)]
async fn a_limit_holds_against_400_requests_at_vendors_over_both_gateways() {
    for native in Native::BOTH {
        storm(&two_of_each(native).await).await;
    }
}
