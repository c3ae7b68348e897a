//! Parts that the tests of all dialects share.

mod fuzz;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use shared::{error::ApiError, ids::AccountId, time::Timestamp};
use shared_catalog::{Catalog, LimitParam, Model};

use crate::{
    checked::Request,
    draft::ChatTerms,
    forward::{BodyForm, BodyPieces, Forward, ProgressReports, UpstreamParams},
};

/// Returns a model whose upstream is of this kind.
pub(crate) fn model(kind: &str) -> Model {
    Catalog::parse(&catalogue(kind), "test").unwrap().models.remove(0)
}

pub(crate) fn catalogue(kind: &str) -> String {
    format!(
        r#"
        [service]
        name = "n"
        provider = "p"
        docs = "d"
        [[model]]
        id = "Model Flash"
        owned_by = "o"
        context_window = 1048576
        max_output_tokens = 4096
        max_tokens_per_image = 1000
        [model.price]
        input = "1"
        cached_input = "1"
        output = "1"
        [[model.upstream]]
        kind = "{kind}"
        url = "http://127.0.0.1/v1"
        model = "m"
        image_urls = "any"
    "#
    )
}

/// Parses a body of the Responses API for a model some of whose answers are not passed on.
pub(crate) fn responses(body: &Bytes) -> Result<Request, ApiError> {
    crate::responses::parse(body, |_| false)
}

/// Returns a model that serves these APIs.
pub(crate) fn serving(serves: &str) -> Model {
    let catalogue = catalogue("vllm").replace("owned_by", &format!("serves = {serves}\n        owned_by"));
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

pub(crate) fn json_of(words: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let word = prop::sample::select(words);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        ".{0,4}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Returns the request that an upstream of this kind reads, without the head's members.
pub(crate) fn sent(request: Request, kind: &str) -> Value {
    let forward = request.forward(&model(kind)).unwrap_or_else(|error| panic!("{error:?}"));
    body(&forward)
}

/// Returns a model with one upstream of the kind `openai`, configured with these lines.
pub(crate) fn model_with(lines: &str) -> Model {
    let catalogue = catalogue("openai").replace("image_urls", &format!("{lines}\n        image_urls"));
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

/// Returns the account whose pseudonyms bodies contain.
pub(crate) fn account() -> AccountId {
    AccountId::new(Timestamp::from_millis(1), [7; 10])
}

/// Returns the text that this model's only upstream reads.
pub(crate) fn text_for(forward: &Forward, model: &Model) -> String {
    let form = forward.form(&model.upstreams[0]);
    let BodyPieces { head, rest } = forward.body(UpstreamParams { form, account: Some(account()), ..TO });
    String::from_utf8([head, rest].concat()).unwrap()
}

pub(crate) const TO: UpstreamParams<'_> = UpstreamParams {
    form: BodyForm::Checked(ChatTerms::NO_CHAT),
    account: None,
    model: "m",
    limit_param: LimitParam::MaxTokens,
    max_tokens: None,
    progress: ProgressReports::None,
    cache_salt: None,
    folded: false,
    refused: upstream_error::RefusedMembers::of_bits(0),
};

/// Returns the same parameters, with the form of the first body.
pub(crate) fn to_first<'p>(forward: &Forward, to: UpstreamParams<'p>) -> UpstreamParams<'p> {
    UpstreamParams { form: forward.bodies.first_form().unwrap(), ..to }
}

/// Returns the body for an upstream, without the head's members.
pub(crate) fn body(forward: &Forward) -> Value {
    let BodyPieces { head, rest } = forward.body(to_first(forward, TO));
    let mut body: Value = serde_json::from_slice(&[head, rest].concat()).unwrap();
    let members = body.as_object_mut().unwrap();
    for name in ["model", "stream", "stream_options"] {
        members.remove(name);
    }
    body
}

/// Returns a model with an upstream for each API.
fn model_of_all() -> Model {
    let catalogue = catalogue("openai");
    let (service, upstream) = catalogue.split_once("[[model.upstream]]").unwrap();
    let of = |api: &str| format!("[[model.upstream]]\nspeaks = [\"{api}\"]{upstream}\n");
    let all = ["chat", "responses", "messages"].map(of).concat();
    Catalog::parse(&format!("{service}{all}"), "test").unwrap().models.remove(0)
}

#[test]
fn what_is_kept_of_a_request_is_each_body_and_what_its_answer_repeats() {
    const LONG: usize = 100 << 10;
    let long = "x".repeat(LONG);
    let text = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": long}]}).to_string();
    let chat =
        |model: &Model| crate::chat::parse(&Bytes::from(text.clone())).unwrap().forward(model).unwrap();
    let (one, all) = (chat(&model("openai")).kept_bytes(), chat(&model_of_all()).kept_bytes());
    assert!((LONG..LONG + 999).contains(&one) && (3 * LONG..3 * LONG + 999).contains(&all), "{one} {all}");

    let text =
        serde_json::json!({"model": "m", "input": "Hi", "instructions": long, "stream": true}).to_string();
    let mut forward = responses(&Bytes::from(text)).unwrap().forward(&model("openai")).unwrap();
    assert!(forward.kept_bytes() > 2 * LONG, "the response repeats the instructions");
    forward.forget_prompt();
    assert!((LONG..2 * LONG).contains(&forward.kept_bytes()));
}

#[test]
fn memory_is_asked_for_before_each_body_is_written_and_a_refusal_ends_the_request() {
    const LONG: usize = 100 << 10;
    let text = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(LONG)}]});
    let request = || crate::chat::parse(&Bytes::from(text.to_string())).unwrap();
    let mut asked = Vec::new();
    let forward = request().forward_within(&model_of_all(), &mut |bytes| {
        asked.push(bytes / LONG);
        Ok(())
    });
    assert!(forward.is_ok());
    assert_eq!(asked, [2, 3], "with the draft, which the chat is");
    let mut none_left = |_| Err(ApiError::internal());
    assert!(request().forward_within(&model_of_all(), &mut none_left).is_err());
}

#[test]
fn a_body_whose_long_member_is_left_out_keeps_no_room_for_that() {
    let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
    let text =
        serde_json::json!({"model": "m", "messages": messages, "user": "x".repeat(1 << 20)}).to_string();
    let forward = crate::chat::parse(&Bytes::from(text)).unwrap().forward(&model("openai")).unwrap();
    let rest = forward.body(to_first(&forward, TO)).rest;
    drop(forward);
    let Ok(body) = rest.try_into_mut() else { panic!("the body is shared") };
    assert!(body.capacity() < 1 << 10, "{}", body.capacity());
}
