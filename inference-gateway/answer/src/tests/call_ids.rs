//! Ids of calls in conversations with servers that number the calls of each answer from the start.

use shared_catalog::UpstreamApi;

use super::{
    dialects::{call, streamed},
    *,
};

/// An id in Kimi's form: the tool's name, and the number of the call within its answer.
const COUNTED_ID: &str = "functions.read:0";

const APIS: [UpstreamApi; 2] = [UpstreamApi::Messages, UpstreamApi::Responses];

/// Returns the reply to a Messages or Responses request after calls with these ids.
fn reply(api: UpstreamApi, earlier: &[&str]) -> Reply {
    let calls = earlier.iter();
    let body = if api == UpstreamApi::Messages {
        let calls: Vec<Value> =
            calls.map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}})).collect();
        let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": calls}]);
        json!({"model": "m", "max_tokens": 9, "messages": messages})
    } else {
        let call = |id| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let items: Vec<Value> =
            [json!({"role": "user", "content": "Hi"})].into_iter().chain(calls.map(call)).collect();
        json!({"model": "m", "input": items})
    };
    let body = Bytes::from(body.to_string());
    let parsed = match api {
        UpstreamApi::Messages => request::messages::parse(&body),
        UpstreamApi::Responses | UpstreamApi::Chat => request::responses::parse(&body, |_| false),
    };
    parsed.unwrap_or_else(|error| panic!("{error:?}")).reply
}

/// Returns the ids of an answer's calls as a client of this reply reads them, the same in a stream and in a whole
/// answer.
fn ids(reply: &Reply, own: &[Option<&str>]) -> Vec<String> {
    let pieces = (0..).zip(own).map(|(index, id)| call(index, *id, Some("f"), "{}"));
    let chunks: Vec<Value> = pieces.chain([finish("tool_calls")]).collect();
    let events = streamed(reply, &chunks, false);
    let is_message = matches!(reply, Reply::Messages(_));
    let opened = events.iter().filter_map(|(name, data)| {
        let block = if is_message { &data["content_block"]["id"] } else { &data["item"]["call_id"] };
        block.as_str().filter(|_| name.ends_with(if is_message { "_start" } else { ".added" }))
    });
    let opened: Vec<String> = opened.map(str::to_owned).collect();
    let calls: Vec<Value> =
        own.iter().map(|id| json!({"id": id, "function": {"name": "f", "arguments": "{}"}})).collect();
    let upstream = json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
    let whole = whole_of(reply, &upstream);
    let (list, member) = if is_message { ("content", "id") } else { ("output", "call_id") };
    let of_whole: Vec<&str> =
        whole[list].as_array().unwrap().iter().map(|block| block[member].as_str().unwrap()).collect();
    assert_eq!(opened, of_whole, "a whole answer has the ids of its stream");
    opened
}

#[test]
fn an_id_that_the_conversation_has_is_made_anew() {
    for api in APIS {
        let repeated = ids(&reply(api, &["functions.read:0", "other"]), &[Some(COUNTED_ID)]);
        assert!(is_made(&json!(repeated[0])), "{repeated:?}");
    }
}

#[test]
fn an_id_that_is_new_to_the_conversation_stays_as_it_is() {
    for api in APIS {
        for earlier in [&[][..], &["functions.read:00", "functions.read:1"]] {
            assert_eq!(
                ids(&reply(api, earlier), &[Some(COUNTED_ID), Some("D681PevKs")]),
                [COUNTED_ID, "D681PevKs"]
            );
        }
    }
}

#[test]
fn an_id_is_the_same_however_it_is_spelled() {
    for api in APIS {
        let earlier = reply(api, &["a/b é"]);
        let spelled = r#"{"choices":[{"message":{"tool_calls":[{"id":"a\/b \u00e9","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
        let completion = Completion::read(&earlier, spelled.as_bytes()).unwrap();
        let whole = completion.write(generation(), &earlier, SETTLED);
        assert!(!String::from_utf8_lossy(&whole).contains("a\\/b"));
    }
}

#[test]
fn calls_of_an_answer_with_equal_ids_get_different_ones() {
    for api in APIS {
        let made = ids(&reply(api, &[]), &[Some("call_0"), Some("call_0"), Some("call_0")]);
        assert_eq!(made[0], "call_0");
        assert!(is_made(&json!(made[1])) && is_made(&json!(made[2])) && made[1] != made[2], "{made:?}");
    }
}

#[test]
fn calls_without_an_id_get_ids_beside_those_that_have_one() {
    for api in APIS {
        let made = ids(&reply(api, &["call_0"]), &[None, Some(""), Some("call_1"), Some("call_0")]);
        assert_eq!(made[2], "call_1");
        for (place, id) in made.iter().enumerate().filter(|(place, _)| *place != 2) {
            assert!(
                is_made(&json!(id)) && made.iter().position(|other| other == id) == Some(place),
                "{made:?}"
            );
        }
    }
}

#[test]
fn a_call_whose_id_comes_with_every_piece_is_no_second_call() {
    for api in APIS {
        let piece = |arguments: &str| call(0, Some("call_0"), Some("f"), arguments);
        let events =
            streamed(&reply(api, &[]), &[piece("{\"q\""), piece(":1}"), finish("tool_calls")], false);
        let told = format!("{events:?}");
        assert!(told.contains("call_0"), "{told}");
    }
}

#[test]
fn ids_of_a_conversation_count_as_memory() {
    for api in APIS {
        let (none, two) = (reply(api, &[]), reply(api, &["a", "b"]));
        assert_eq!(two.kept_bytes() - none.kept_bytes(), 16);
    }
}

#[test]
fn a_chat_passes_with_the_upstreams_ids() {
    let calls =
        json!([{"id": "call_0", "function": {"name": "f"}}, {"id": "call_0", "function": {"name": "f"}}]);
    let upstream = json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
    let passed = whole(&upstream).unwrap();
    let ids: Vec<&Value> =
        (0..2).map(|call| &passed["choices"][0]["message"]["tool_calls"][call]["id"]).collect();
    assert_eq!(ids, ["call_0", "call_0"]);
}
