//! Parts that the tests of all dialects share.

use serde_json::Value;
use shared::catalog::{Catalog, LimitParam, Model};

use super::{Forward, ProgressReports, Request, UpstreamParams};

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

/// The body for an upstream, without the head's members.
pub(crate) fn body(forward: &Forward) -> Value {
    let to = UpstreamParams {
        model: "m",
        limit_param: LimitParam::MaxTokens,
        max_tokens: None,
        progress: ProgressReports::None,
        cache_salt: None,
        folded: false,
    };
    let (head, rest) = forward.body(to);
    let mut body: Value = serde_json::from_slice(&[head, rest].concat()).unwrap();
    let members = body.as_object_mut().unwrap();
    for name in ["model", "stream", "stream_options"] {
        members.remove(name);
    }
    body
}
