//! Errors for the client when an upstream refused the request: the gateway's own sentence, and the location of the
//! cause if it is known.

use reply::Reply;
use shared::error::{ApiError, Code};
use upstream_error::{ContextSizes, PartAtFault};

use super::body::Forward;

impl Forward {
    /// Makes the error for a prompt that an upstream found too long, in the form that clients of the dialect expect.
    /// The error has the upstream's numbers or, without numbers, its `words`.
    pub fn too_long(&self, sizes: Option<ContextSizes>, words: Option<String>) -> ApiError {
        let input = self.reply.input();
        let message = match (&self.reply, sizes) {
            (Reply::Messages(_), sizes) => {
                let most = sizes.map_or(self.bounds.prompt, |sizes| sizes.most);
                let estimate = self.prompt_estimate.max(most.saturating_add(1));
                let prompt = sizes.and_then(|sizes| sizes.prompt).unwrap_or(estimate);
                format!("prompt is too long: {prompt} tokens > {most} maximum")
            }
            (_, Some(ContextSizes { prompt: Some(prompt), most })) => {
                format!(
                    "This model's maximum context length is {most} tokens. However, your {input} resulted in {prompt} tokens."
                )
            }
            (Reply::Chat { .. } | Reply::Responses(_) | Reply::Embeddings, _) => words.unwrap_or_else(|| {
                "The prompt, with the output it asks for, is longer than the model's context.".into()
            }),
        };
        ApiError::at(Code::ContextLengthExceeded, input, message)
    }

    /// Makes the error for a request that an upstream found invalid. The error names the location of the faulty part if
    /// it is known; otherwise it has the upstream's `words`.
    pub fn invalid(&self, part: Option<PartAtFault>, words: Option<String>) -> ApiError {
        let input = || (self.reply.input().to_owned(), TEMPLATE);
        let of_image = |problem| self.places.image.clone().map(|place| (place, problem));
        let found = match part {
            Some(PartAtFault::Messages) => Some(input()),
            Some(PartAtFault::CallArguments) => {
                let place = self.places.arguments.clone();
                Some(place.map_or_else(input, |place| (place, ARGUMENTS)))
            }
            Some(PartAtFault::Images) => of_image("this model does not accept images"),
            Some(PartAtFault::ImageData) => of_image("the model cannot read this image or a later image"),
            Some(PartAtFault::Tools) => {
                self.has_tools.then(|| ("tools".into(), "this model does not accept tools"))
            }
            None => None,
        };
        let Some((place, problem)) = found else {
            let words = words.unwrap_or_else(|| "The model refused the request as invalid.".into());
            return ApiError::new(Code::InvalidValue, words);
        };
        ApiError::at(Code::InvalidValue, place.clone(), format!("Invalid '{place}': {problem}."))
    }
}

/// Sentence for messages that a template refuses. The template's own sentence is not passed on, because it may name the
/// model.
const TEMPLATE: &str =
    "the model's template refuses these messages; it may require other roles, another order, or other parts";
/// Sentence for arguments of a call that are not JSON.
const ARGUMENTS: &str =
    "the model accepts only calls whose arguments are JSON; arguments that were cut off cannot be sent back";

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};
    use shared::error::Code;

    use super::*;
    use crate::{
        chat, messages,
        tests::{model, responses},
    };

    fn of_chat(messages: &Value) -> Forward {
        let body = json!({"model": "m", "messages": messages}).to_string();
        chat::parse(&Bytes::from(body)).unwrap().forward(&model("llama_cpp")).unwrap()
    }

    fn of_responses(input: &Value) -> Forward {
        let body = json!({"model": "m", "input": input}).to_string();
        responses(&Bytes::from(body)).unwrap().forward(&model("llama_cpp")).unwrap()
    }

    fn of_messages(content: &Value) -> Forward {
        let messages = json!([{"role": "user", "content": content}]);
        let body = json!({"model": "m", "max_tokens": 5, "messages": messages}).to_string();
        messages::parse(&Bytes::from(body)).unwrap().forward(&model("llama_cpp")).unwrap()
    }

    fn place(error: &ApiError) -> &str {
        error.param.as_deref().unwrap_or_default()
    }

    #[test]
    fn the_part_at_fault_is_named_by_its_place_in_a_sentence_of_ours() {
        let words = || Some("their words".to_owned());
        let user = |content: Value| json!({"role": "user", "content": content});
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
        let calls = json!([
            user(json!("a")),
            {"role": "assistant", "content": null, "tool_calls": [call("1", "{}"), call("2", r#"{"q": "ca"#)]},
            {"role": "tool", "tool_call_id": "1", "content": "b"},
        ]);
        let error = of_chat(&calls).invalid(Some(PartAtFault::CallArguments), words());
        assert_eq!(place(&error), "messages[1].tool_calls[1].function.arguments");
        assert!(error.message.contains("JSON") && !error.message.contains("their words"), "{error:?}");

        let url = "data:image/png;base64,AAAA";
        let image = json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": url}}]);
        let error = of_chat(&json!([user(image)])).invalid(Some(PartAtFault::Images), words());
        assert_eq!(place(&error), "messages[0].content[1].image_url.url");
        assert!(error.message.contains("does not accept images"), "{error:?}");

        let error = of_chat(&json!([user(json!("a"))])).invalid(Some(PartAtFault::Messages), words());
        assert_eq!((error.code, place(&error)), (Code::InvalidValue, "messages"));
        assert!(error.message.contains("template"), "{error:?}");
    }

    #[test]
    fn places_are_those_of_the_clients_dialect() {
        let input = json!([
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"},
            {"type": "function_call_output", "call_id": "c", "output": "b"},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
        ]);
        let forward = of_responses(&input);
        let invalid = |part| forward.invalid(Some(part), None);
        assert_eq!(place(&invalid(PartAtFault::CallArguments)), "input[0].arguments");
        assert_eq!(place(&invalid(PartAtFault::Images)), "input[2].content[0].image_url");
        assert_eq!(place(&invalid(PartAtFault::Messages)), "input");
        assert_eq!(place(&forward.too_long(None, None)), "input");

        let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
        let forward = of_messages(&json!([{"type": "image", "source": source}]));
        let error = forward.invalid(Some(PartAtFault::ImageData), None);
        assert_eq!(place(&error), "messages[0].content[0].source.data");
    }

    #[test]
    fn a_request_without_the_part_is_refused_in_the_upstreams_words() {
        let forward = of_chat(&json!([{"role": "user", "content": "a"}]));
        for part in [None, Some(PartAtFault::Images), Some(PartAtFault::ImageData), Some(PartAtFault::Tools)]
        {
            let error = forward.invalid(part, Some("their words".into()));
            assert_eq!((&*error.message, place(&error)), ("their words", ""), "{part:?}");
            let error = forward.invalid(part, None);
            assert_eq!(error.message, "The model refused the request as invalid.");
        }
        // If the arguments of all calls are JSON, the template may require an object.
        assert_eq!(place(&forward.invalid(Some(PartAtFault::CallArguments), None)), "messages");
    }

    #[test]
    fn a_prompt_that_is_too_long_is_told_in_the_upstreams_numbers() {
        let sizes = |prompt| Some(ContextSizes { prompt, most: 4096 });
        let message = |error: ApiError| error.message.into_owned();
        let chat = of_chat(&json!([{"role": "user", "content": "a"}]));
        let told = message(chat.too_long(sizes(Some(5000)), Some("their words".into())));
        assert!(told.contains("4096 tokens") && told.contains("5000 tokens"), "{told}");
        assert_eq!(message(chat.too_long(sizes(None), Some("their words".into()))), "their words");
        assert!(message(chat.too_long(None, None)).contains("longer than the model's context"));

        let messages = of_messages(&json!("a"));
        let told = |sizes| message(messages.too_long(sizes, Some("their words".into())));
        assert_eq!(told(sizes(Some(5000))), "prompt is too long: 5000 tokens > 4096 maximum");
        assert_eq!(told(sizes(None)), "prompt is too long: 4097 tokens > 4096 maximum");
        let window = messages.bounds.prompt;
        assert_eq!(told(None), format!("prompt is too long: {} tokens > {window} maximum", window + 1));
    }
}
