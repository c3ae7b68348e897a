//! Parts that the tests of all dialects share.

use bytes::Bytes;
use serde_json::Value;
use shared::{
    catalog::{Catalog, LimitParam, Model},
    error::ApiError,
    ids::AccountId,
    time::Timestamp,
};

use super::{BodyForm, Forward, ProgressReports, Request, UpstreamParams};

/// A model whose upstream is of this kind.
pub(crate) fn model(kind: &str) -> Model {
    Catalog::parse(&catalogue(kind), "test").unwrap().models.remove(0)
}

fn catalogue(kind: &str) -> String {
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

/// Parses a body of the Responses API, some of whose answers are written here.
pub(crate) fn responses(body: &Bytes) -> Result<Request, ApiError> {
    crate::responses::parse(body, |_| false)
}

/// A model that serves these APIs.
pub(crate) fn serving(serves: &str) -> Model {
    let catalogue = catalogue("vllm").replace("owned_by", &format!("serves = {serves}\n        owned_by"));
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

/// The request that an upstream of this kind reads, without the head's members.
pub(crate) fn sent(request: Request, kind: &str) -> Value {
    let forward = request.forward(&model(kind)).unwrap_or_else(|error| panic!("{error:?}"));
    body(&forward)
}

/// A model with one upstream of the kind `openai` that has these lines of its own.
pub(crate) fn model_with(lines: &str) -> Model {
    let catalogue = catalogue("openai").replace("image_urls", &format!("{lines}\n        image_urls"));
    Catalog::parse(&catalogue, "test").unwrap().models.remove(0)
}

/// An account whose pseudonyms bodies have.
pub(crate) fn account() -> AccountId {
    AccountId::new(Timestamp::from_millis(1), [7; 10])
}

/// The text that the only upstream of this model reads.
pub(crate) fn text_for(forward: &Forward, model: &Model) -> String {
    let form = BodyForm::of(&model.upstreams[0], &forward.reply);
    let (head, rest) = forward.body(UpstreamParams { form, account: Some(account()), ..TO });
    String::from_utf8([head, rest].concat()).unwrap()
}

const TO: UpstreamParams<'_> = UpstreamParams {
    form: BodyForm::Checked,
    account: None,
    model: "m",
    limit_param: LimitParam::MaxTokens,
    max_tokens: None,
    progress: ProgressReports::None,
    cache_salt: None,
    folded: false,
};

/// The body for an upstream, without the head's members.
pub(crate) fn body(forward: &Forward) -> Value {
    let (head, rest) = forward.body(TO);
    let mut body: Value = serde_json::from_slice(&[head, rest].concat()).unwrap();
    let members = body.as_object_mut().unwrap();
    for name in ["model", "stream", "stream_options"] {
        members.remove(name);
    }
    body
}
