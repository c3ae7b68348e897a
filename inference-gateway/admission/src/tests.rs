//! Shares of accounts, and work that waits for its turn.

use request::{ProgressReports, UpstreamParams};
use shared::clock::System;

use super::*;

/// Returns an admission with eight slots, three of them for one account, and ten bytes for prompts, six of them for one
/// account.
fn admission() -> Admission {
    Admission::new(&sizes())
}

fn sizes() -> AdmissionSizes {
    AdmissionSizes {
        in_flight: 8,
        in_flight_per_account: 3,
        checked_at_once: 2,
        prompts_bytes: 10,
        prompts_bytes_per_account: 6,
        answers_bytes: 0,
        answers_bytes_per_account: 0,
        unauthenticated_bytes: 8,
        parsed_at_once: 2,
    }
}

fn account() -> AccountId {
    AccountId::generate(&System)
}

#[tokio::test(start_paused = true)]
async fn an_account_takes_its_share_of_the_slots_and_a_request_is_charged_once() {
    let (admission, one) = (admission(), account());
    let admit = || {
        let caller = Caller(ConnectionTrust::default());
        admission.admit(caller, admission.small_body())
    };
    let mut taken = Vec::new();
    for expected in [true, true, true, false] {
        let mut request = admit().await.unwrap();
        assert_eq!(request.charge_to(one).is_ok(), expected);
        let hold = request.slot();
        if expected {
            request.charge_to(one).unwrap();
            taken.push((request, hold));
        }
    }
    admit().await.unwrap().charge_to(account()).unwrap();
    // A slot stays taken until the last hold is settled.
    let (request, hold) = taken.pop().unwrap();
    drop(request);
    assert!(admit().await.unwrap().charge_to(one).is_err());
    drop(hold);
    admit().await.unwrap().charge_to(one).unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_bodies_of_one_account_leave_a_turn_to_others() {
    let (admission, one) = (admission(), Owner::Account(account()));
    let turn = admission.turn_to_parse(one).await.unwrap();
    assert!(admission.turn_to_parse(Owner::Account(account())).await.is_ok());
    let late = admission.turn_to_parse(one).await.err().unwrap();
    assert_eq!(late.code, Code::Overloaded);
    drop(turn);
    assert!(admission.turn_to_parse(one).await.is_ok());
}

#[test]
fn what_would_never_fit_is_too_large_and_what_may_fit_later_is_not() {
    let (admission, one) = (admission(), account());
    let _other = admission.0.prompts.try_take(Owner::Service, 5).unwrap();
    let mut permit = admission.prompt(one);
    grow_to(&mut permit, 4).unwrap();
    grow_to(&mut permit, 3).unwrap();
    assert_eq!(permit.amount(), 4);
    assert_eq!(grow_to(&mut permit, 6).err().unwrap().code, Code::Overloaded);
    assert_eq!(grow_to(&mut permit, 7).err().unwrap().code, Code::RequestTooLarge);
}

#[tokio::test]
async fn the_body_of_a_large_count_is_written_in_the_turn_of_its_account_and_within_its_bytes() {
    let (mut sizes, one) = (sizes(), Owner::Account(account()));
    (sizes.prompts_bytes, sizes.prompts_bytes_per_account) = (4 * LARGE_BODY, 2 * LARGE_BODY);
    let admission = Admission::new(&sizes);
    let content = "x".repeat(LARGE_BODY);
    let request = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": content}]});
    let catalogue = r#"
        [service]
        name = "n"
        provider = "p"
        docs = "d"
        [[model]]
        id = "m"
        owned_by = "o"
        context_window = 1048576
        max_output_tokens = 4096
        price = { input = "1", cached_input = "1", output = "1" }
        [[model.upstream]]
        kind = "anthropic"
        url = "http://127.0.0.1/v1"
        model = "m"
    "#;
    let catalogue = shared_catalog::Catalog::parse(catalogue, "test").unwrap();
    let parsed = request::messages::parse_to_count(&Bytes::from(request.to_string())).unwrap();
    let forward = parsed.forward(&catalogue.models[0]).unwrap();
    let question = || {
        forward.count_body(UpstreamParams {
            form: forward.form(&catalogue.models[0].upstreams[0]),
            account: None,
            model: "m",
            limit_param: shared_catalog::LimitParam::MaxTokens,
            max_tokens: None,
            progress: ProgressReports::None,
            cache_salt: None,
            folded: false,
            refused: request::RefusedMembers::of_bits(0),
        })
    };
    let turn = admission.turn_to_parse(one).await.unwrap();
    let mut waiting = std::pin::pin!(admission.count_body(one, question()));
    assert!(timeout(Duration::from_millis(20), &mut waiting).await.is_err(), "it has no turn yet");
    drop(turn);
    let BodyPieces { head, rest } = waiting.await.unwrap();
    let written: serde_json::Value = serde_json::from_slice(&[&head[..], &rest].concat()).unwrap();
    assert!(written == request);
    // A second copy does not fit next to the first one.
    assert_eq!(admission.count_body(one, question()).await.err().unwrap().code, Code::Overloaded);
    drop(rest);
    assert!(admission.count_body(one, question()).await.is_ok());
}

#[test]
fn a_large_body_waits_for_a_thread_no_longer_than_for_its_turn() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().max_blocking_threads(1).start_paused(true).build().unwrap();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        let (admission, one) = (admission(), account());
        spawn_blocking(move || stuck.recv());
        let mut permit = admission.prompt(one);
        take_bytes(&mut permit, 6).unwrap();
        // The clock is paused while a thread works.
        let began = tokio::spawn({
            let admission = admission.clone();
            async move { admission.apart(&mut permit, |_| ()).await }
        });
        tokio::task::yield_now().await;
        tokio::time::advance(PARSING_TIMEOUT).await;
        let late = began.await.unwrap().err().unwrap();
        assert_eq!((late.code, late.retry_after()), (Code::Overloaded, Some(1)));
        // The turn and the bytes are free again.
        let mut permit = admission.prompt(one);
        take_bytes(&mut permit, 6).unwrap();
        release.send(()).unwrap();
        assert_eq!(admission.apart(&mut permit, |permit| permit.amount()).await.unwrap(), 6);
    });
}

#[tokio::test]
async fn bytes_of_an_unauthenticated_body_move_to_the_share_of_the_account_that_pays() {
    let (admission, one) = (admission(), account());
    let mut greedy = admission.prompt(one);
    assert!(take_bytes(&mut greedy, 6).is_ok() && take_bytes(&mut greedy, 1).is_err());
    for (bytes, payer, fits) in [(4, account(), true), (5, account(), false), (1, one, false)] {
        let mut body = admission.small_body();
        take_bytes(&mut body, bytes).unwrap();
        let mut request = admission.admit(Caller(ConnectionTrust::default()), body).await.unwrap();
        assert_eq!(request.charge_to(payer).is_ok(), fits, "{bytes}");
    }
}

#[test]
fn a_body_of_many_values_is_parsed_apart_however_short_it_is() {
    let of =
        |part: &str, number: usize| parses_slowly(format!("[{}]", vec![part; number].join(",")).as_bytes());
    for (part, fits, many) in
        [("{}", 4095, 4096), (r#"{"role":"user","content":[]}"#, 1023, 1024), ("\"x\"", 60_000, 70_000)]
    {
        assert!(!of(part, fits) && of(part, many), "{part}");
    }
    let long = "x".repeat(LARGE_BODY - 1);
    assert!(!parses_slowly(long.as_bytes()) && parses_slowly(format!("{long}x").as_bytes()));
}
