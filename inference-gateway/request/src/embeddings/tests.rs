use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::tests::{body, model, serving};

fn parse(body: &Value) -> Result<Request, ApiError> {
    super::parse(&Bytes::from(body.to_string()))
}

#[test]
fn every_form_of_input_is_passed_on_as_it_is() {
    for input in [json!("a"), json!(["a", "b"]), json!([1, 2]), json!([[1, 2], [3]])] {
        let request = json!({"model": "m", "input": input, "encoding_format": "base64", "dimensions": 8, "user": "u", "x": 1});
        let forward = parse(&request).unwrap().forward(&serving("[\"embeddings\"]")).unwrap();
        assert_eq!(body(&forward), json!({"encoding_format": "base64", "dimensions": 8, "input": input}));
        assert_eq!((forward.max_tokens, forward.n, forward.stream), (0, 1, false));
    }
}

#[test]
fn a_prompt_of_tokens_counts_each() {
    let bound = |input: Value| {
        let request = parse(&json!({"model": "m", "input": input})).unwrap();
        request.forward(&serving("[\"embeddings\"]")).unwrap().prompt_bound
    };
    assert_eq!(bound(json!(vec![7; 1000])) - bound(json!([7])), 999);
    assert!(bound(json!(["a", "b"])) > bound(json!("a")));
}

#[test]
fn a_fault_is_named_by_its_place() {
    for (request, code, place) in [
        (json!({"input": []}), Code::EmptyArray, "input"),
        (json!({"input": ""}), Code::EmptyString, "input"),
        (json!({"input": ["a", ""]}), Code::EmptyString, "input[1]"),
        (json!({"input": [[]]}), Code::EmptyArray, "input[0]"),
        (json!({"input": [-1]}), Code::IntegerBelowMinValue, "input[0]"),
        (json!({"input": [{}]}), Code::InvalidType, "input[0]"),
        (json!({"input": 1}), Code::InvalidType, "input"),
        (json!({"input": [5, "a"]}), Code::InvalidType, "input[1]"),
        (json!({"input": ["a", 5]}), Code::InvalidType, "input[1]"),
        (json!({"input": ["a", "b", [1]]}), Code::InvalidType, "input[2]"),
        (json!({"input": [[1], "a"]}), Code::InvalidType, "input[1]"),
        (json!({"input": [[1, "a"]]}), Code::InvalidType, "input[0][1]"),
        (json!({"input": [1, [1]]}), Code::InvalidType, "input[1]"),
        (json!({"input": vec!["a"; MAX_PROMPTS + 1]}), Code::ArrayAboveMaxLength, "input"),
        (json!({"input": "a", "encoding_format": "int8"}), Code::InvalidValue, "encoding_format"),
        (json!({"input": "a", "dimensions": 0}), Code::IntegerBelowMinValue, "dimensions"),
        (json!({}), Code::MissingRequiredParameter, "input"),
    ] {
        let mut request = request;
        request["model"] = "m".into();
        let error = parse(&request).err().unwrap();
        assert_eq!((error.code, error.param.as_deref()), (code, Some(place)), "{}", error.message);
    }
}

#[test]
fn a_model_serves_what_its_catalogue_says() {
    let embeddings = || parse(&json!({"model": "m", "input": "a"})).unwrap();
    let chat = || {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]}).to_string();
        crate::chat::parse(&Bytes::from(body)).unwrap()
    };
    let code =
        |request: Request, serves: &str| request.forward(&serving(serves)).err().map(|error| error.code);
    assert_eq!(code(embeddings(), "[\"chat\"]"), Some(Code::UnsupportedValue));
    assert_eq!(code(chat(), "[\"embeddings\"]"), Some(Code::UnsupportedValue));
    assert_eq!((code(embeddings(), "[\"chat\", \"embeddings\"]"), code(chat(), "[\"chat\"]")), (None, None));
    assert_eq!(model("vllm").id, "Model Flash");
}

proptest! {
    #[test]
    fn whatever_comes_is_survived(body in "[\\[\\]{}\":,a-z0-9 ]{0,40}") {
        let _ = parse(&json!({"model": "m", "input": serde_json::from_str::<Value>(&body).unwrap_or_default()}));
        let _ = super::parse(&Bytes::from(body));
    }
}
