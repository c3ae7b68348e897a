//! The scripted upstream follows its scripts. All other tests rely on this.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tests::{
    harness::{Answer, Event, Events, Http},
    upstream::{End, Fault, ReasoningField, Script, Shape, Style, Told, Upstream, Usage, text},
};

fn request(upstream: &Upstream, script: &Script, more: &Value) -> Request<Full<Bytes>> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": script.message()}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let url = format!("{}/chat/completions", upstream.url());
    Request::post(url).body(Full::new(Bytes::from(body.to_string()))).unwrap()
}

async fn whole(upstream: &Upstream, script: &Script, more: Value) -> Result<Answer, String> {
    Answer::read(Http::new().open(request(upstream, script, &more)).await?).await
}

async fn stream(upstream: &Upstream, script: &Script, more: Value) -> Vec<Result<Event, String>> {
    let mut more = more;
    more["stream"] = true.into();
    let mut events =
        Events::new(Http::new().open(request(upstream, script, &more)).await.unwrap().into_body());
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        let broken = event.is_err();
        all.push(event);
        if broken {
            break;
        }
    }
    all
}

fn data(events: &[Result<Event, String>]) -> Vec<&Value> {
    events
        .iter()
        .filter_map(|event| if let Ok(Event::Data(data)) = event { Some(data) } else { None })
        .collect()
}

fn streamed_text(events: &[Result<Event, String>], field: &str) -> String {
    data(events).iter().filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str()).collect()
}

fn tagged(script: Script) -> Script {
    Script { tag: "it".into(), ..script }
}

#[tokio::test]
async fn it_answers_whole_with_the_tokens_of_its_script() {
    let upstream = Upstream::start();
    let script = tagged(Script { cached_tokens: 3, ..Script::tokens(12, 7) });
    let answer = whole(&upstream, &script, json!({})).await.unwrap().json();
    assert_eq!(answer["choices"][0]["message"]["content"], text(7).as_str());
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["total_tokens"], 19);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    let record = upstream.tagged("it").pop().unwrap();
    assert_eq!(record.served, Usage { prompt: 12, cached: 3, completion: 7 });
    assert!(record.ended_by(End::Finished) && !record.streamed);
    assert_eq!(record.json()["model"], "m");
}

#[tokio::test]
async fn it_streams_the_same_and_says_usage_only_when_asked() {
    let upstream = Upstream::start();
    let script = tagged(Script::tokens(12, 7));
    let quiet = stream(&upstream, &script, json!({})).await;
    assert_eq!(streamed_text(&quiet, "content"), text(7));
    assert_eq!(quiet.last(), Some(&Ok(Event::Done)));
    assert!(data(&quiet).iter().all(|chunk| chunk.get("usage").is_none()));

    let asked = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let told = stream(&upstream, &script, asked).await;
    let counts: Vec<u64> =
        data(&told).iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]);
    assert_eq!(data(&told).last().unwrap()["choices"], json!([]));
}

/// Returns the options that request every kind of usage that a stream may report.
fn all_usage(choices: u64) -> Value {
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    json!({"n": choices, "stream_options": options, "timings_per_token": true})
}

#[tokio::test]
async fn it_counts_by_choice_as_vllm_does_and_choices_finish_apart() {
    let upstream = Upstream::start();
    let script = Script { style: Style::vllm(), ..Script::choices(12, &[1, 3]) };
    let events = stream(&upstream, &script, all_usage(2)).await;
    let told = |chunk: &Value| {
        let choice = &chunk["choices"][0];
        let completion = chunk["usage"]["completion_tokens"].as_u64().unwrap();
        (choice["index"].as_u64(), completion, choice["finish_reason"].is_string())
    };
    let told: Vec<_> = data(&events).into_iter().map(told).collect();
    let (first, second) = (Some(0), Some(1));
    let tokens = [(first, 1, true), (second, 1, false), (second, 2, false), (second, 3, true)];
    assert_eq!(told, [&[(first, 0, false), (second, 0, false)][..], &tokens, &[(None, 4, false)]].concat());
    let answer = whole(&upstream, &script, json!({"n": 2, "max_tokens": 2})).await.unwrap().json();
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let reasons = [&answer["choices"][0]["finish_reason"], &answer["choices"][1]["finish_reason"]];
    assert_eq!(reasons, ["stop", "length"]);
}

#[tokio::test]
async fn it_finishes_all_choices_at_the_end_as_sglang_does() {
    let upstream = Upstream::start();
    let script = Script { cached_tokens: 4, style: Style::sglang(), ..Script::choices(12, &[1, 3]) };
    let events = stream(&upstream, &script, all_usage(2)).await;
    let chunks = data(&events);
    let (last, finishes) = (chunks[chunks.len() - 1], &chunks[chunks.len() - 3..chunks.len() - 1]);
    assert!(finishes.iter().all(|chunk| chunk["choices"][0]["finish_reason"] == "stop"), "{finishes:?}");
    assert!(finishes.iter().all(|chunk| chunk.get("usage").is_none()), "{finishes:?}");
    let cached = |chunk: &Value| chunk["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!((cached(last), chunks.iter().filter_map(|chunk| cached(chunk)).count()), (Some(4), 1));
}

#[tokio::test]
async fn it_reports_each_choice_apart_as_llama_cpp_does() {
    let upstream = Upstream::start();
    let script = Script { style: Style::llama_cpp(), ..Script::choices(12, &[1, 3]) };
    let events = stream(&upstream, &script, all_usage(2)).await;
    let ends: Vec<_> = data(&events)
        .into_iter()
        .filter(|chunk| chunk["choices"] == json!([]))
        .map(|chunk| (&chunk["usage"]["completion_tokens"], &chunk["timings"]["predicted_n"]))
        .collect();
    assert_eq!(ends, [(&json!(1), &json!(1)), (&json!(3), &json!(3))]);
    let answer = whole(&upstream, &script, json!({"n": 2})).await.unwrap().json();
    assert_eq!(answer["usage"]["completion_tokens"], 1, "of the first choice alone");
}

#[tokio::test]
async fn it_reports_false_usage_first_or_verbatim() {
    let upstream = Upstream::start();
    let false_one = Usage { prompt: u64::from(u32::MAX), cached: 0, completion: 0 };
    let first = Script { told: Told::First(false_one), ..Script::tokens(12, 2) };
    let prompts = |events: &[Result<Event, String>]| -> Vec<Value> {
        data(events).into_iter().map(|chunk| chunk["usage"]["prompt_tokens"].clone()).collect()
    };
    let told = prompts(&stream(&upstream, &first, all_usage(1)).await);
    assert_eq!(told, [json!(u32::MAX), json!(12), json!(12), json!(12), json!(12)]);
    let (begin, last) =
        (r#"{"input_tokens":12.0}"#, r#"{"output_tokens":"2","total_tokens":18446744073709551616}"#);
    let split = Told::Json { first: Some(begin.into()), last: last.into() };
    let split = Script { told: split, style: Style::openai(), ..Script::tokens(12, 2) };
    let events = stream(&upstream, &split, json!({"stream_options": {"include_usage": true}})).await;
    let told: Vec<_> = data(&events).into_iter().filter_map(|chunk| chunk.get("usage")).collect();
    assert_eq!(told, [&json!({"input_tokens": 12.0}), &serde_json::from_str::<Value>(last).unwrap()]);
    let text = whole(&upstream, &split, json!({})).await.unwrap().text().to_string();
    assert!(text.contains(&format!(r#""usage":{last}"#)), "{text}");
}

#[tokio::test]
async fn it_reports_late_and_sends_bodies_late() {
    let upstream = Upstream::start();
    let late = Script { usage_after_ms: 60, ..Script::tokens(12, 2) };
    let asked = json!({"stream": true, "stream_options": {"include_usage": true}});
    let response = Http::new().open(request(&upstream, &late, &asked)).await.unwrap();
    let mut events = Events::new(response.into_body());
    let finished =
        |event: &Event| matches!(event, Event::Data(data) if data["choices"][0]["finish_reason"].is_string());
    while !finished(&events.next().await.unwrap().unwrap()) {}
    let waited = Instant::now();
    assert!(matches!(events.next().await, Some(Ok(Event::Data(data))) if data["usage"].is_object()));
    assert!(waited.elapsed() >= Duration::from_millis(50), "{:?}", waited.elapsed());
    let slow = Script { body_after_ms: 60, ..Script::tokens(12, 2) };
    let response = Http::new().open(request(&upstream, &slow, &json!({}))).await.unwrap();
    let waited = Instant::now();
    assert_eq!(Answer::read(response).await.unwrap().json()["usage"]["completion_tokens"], 2);
    assert!(waited.elapsed() >= Duration::from_millis(50), "{:?}", waited.elapsed());
}

#[tokio::test]
async fn it_generates_at_its_own_pace_for_a_reader_that_takes_nothing() {
    let upstream = Upstream::start();
    // The answer is larger than all buffers between the two.
    let script = tagged(Script { own_pace: true, ..Script::tokens(1, 60_000) });
    let asked = json!({"stream": true});
    let unread = Http::new().open(request(&upstream, &script, &asked)).await.unwrap();
    let record = upstream.wait_for("it", "end", |record| record.ended.is_some()).await;
    assert!(record.ended_by(End::Finished) && record.served.completion == 60_000, "{record:?}");
    drop(unread);
    let script = Script { tag: "left".into(), ..script.pace(1) };
    drop(Http::new().open(request(&upstream, &script, &asked)).await.unwrap());
    let record = upstream.wait_for("left", "end", |record| record.ended.is_some()).await;
    assert!(record.ended_by(End::ClientLeft) && record.served.completion < 60_000, "{record:?}");
}

#[tokio::test]
async fn it_obeys_max_tokens_unless_its_script_differs() {
    let upstream = Upstream::start();
    let answer = whole(&upstream, &Script::tokens(1, 9), json!({"max_tokens": 4})).await.unwrap().json();
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(4), &json!("length"))
    );
    let deaf = Script { ignores_max_tokens: true, ..Script::tokens(1, 9) };
    let answer = whole(&upstream, &deaf, json!({"max_tokens": 4})).await.unwrap().json();
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(9), &json!("stop"))
    );
}

#[tokio::test]
async fn it_generates_so_many_choices_and_counts_them_all() {
    let upstream = Upstream::start();
    let answer = whole(&upstream, &Script::tokens(1, 3), json!({"n": 4})).await.unwrap().json();
    assert_eq!(
        (answer["choices"].as_array().unwrap().len(), &answer["usage"]["completion_tokens"]),
        (4, &json!(12))
    );
    let events = stream(&upstream, &Script::tokens(1, 3), json!({"n": 2})).await;
    let of_second = data(&events).iter().filter(|chunk| chunk["choices"][0]["index"] == 1).count();
    assert_eq!(of_second, 5, "a role, three tokens, a finish");
}

#[tokio::test]
async fn it_reasons_and_calls_tools_in_either_dialect() {
    let upstream = Upstream::start();
    let style = Style { reasoning: ReasoningField::Reasoning, role_everywhere: true, ..Style::default() };
    let script = Script { reasoning_tokens: 2, tool_calls: 1, style, ..Script::tokens(1, 3) };
    let answer = whole(&upstream, &script, json!({})).await.unwrap().json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning"], &message["content"]), (&json!(text(2)), &json!(text(1))));
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"q":"x"}"#);
    assert_eq!(answer["usage"]["completion_tokens"], 6);
    let events = stream(&upstream, &script, json!({})).await;
    assert_eq!(streamed_text(&events, "reasoning"), text(2));
    let calls = data(&events).iter().filter(|c| c["choices"][0]["delta"]["tool_calls"].is_array()).count();
    assert_eq!(calls, 3);
    let roles = data(&events).iter().filter(|c| c["choices"][0]["delta"]["role"] == "assistant").count();
    assert_eq!(roles, 7, "the first chunk and every token");
}

#[tokio::test]
async fn it_answers_as_scripted_with_probabilities_where_they_are_wanted() {
    let upstream = Upstream::start();
    let script = Script { says: "{\"town\": \"Köln\"}".into(), ..Script::tokens(1, 0) };
    let answer = whole(&upstream, &script, json!({})).await.unwrap().json();
    assert_eq!(answer["choices"][0]["message"]["content"], script.says);
    assert_eq!(
        (&answer["choices"][0]["logprobs"], &answer["usage"]["completion_tokens"]),
        (&Value::Null, &json!(2))
    );
    let wanted = json!({"logprobs": true, "top_logprobs": 2});
    let answer = whole(&upstream, &script, wanted.clone()).await.unwrap().json();
    let told = answer["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(told.iter().filter_map(|t| t["token"].as_str()).collect::<String>(), script.says);
    assert_eq!((&told[0]["logprob"], &told[0]["top_logprobs"][1]["logprob"]), (&json!(-0.25), &json!(-0.5)));
    let events = stream(&upstream, &script, wanted).await;
    assert_eq!(streamed_text(&events, "content"), script.says);
    let streamed = data(&events)
        .iter()
        .filter_map(|c| c["choices"][0]["logprobs"]["content"].get(0))
        .cloned()
        .collect::<Vec<_>>();
    assert_eq!(streamed, told);
}

#[tokio::test]
async fn it_lies_about_usage_or_keeps_it_to_itself() {
    let upstream = Upstream::start();
    let lie = Usage { prompt: 1, cached: 9, completion: 1_000_000 };
    let script = Script { told: Told::Lie(lie), ..Script::tokens(5, 5) };
    let answer = whole(&upstream, &script, json!({})).await.unwrap().json();
    assert_eq!(answer["usage"]["completion_tokens"], 1_000_000);
    let silent = Script { told: Told::Nothing, ..Script::tokens(5, 5) };
    assert!(whole(&upstream, &silent, json!({})).await.unwrap().json().get("usage").is_none());
    let events = stream(&upstream, &silent, json!({"stream_options": {"include_usage": true}})).await;
    assert!(data(&events).iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn it_fails_before_it_answers() {
    let upstream = Upstream::start();
    for (shape, inside) in [(Shape::Nested, true), (Shape::Flat, false)] {
        let script = Script::default().fault(Fault::Error { status: 418, shape });
        let answer = whole(&upstream, &script, json!({})).await.unwrap();
        assert_eq!(answer.status, 418);
        assert_eq!(answer.json()["error"].is_object(), inside);
    }
    assert!(whole(&upstream, &Script::default().fault(Fault::CutBeforeHead), json!({})).await.is_err());
    let nonsense = Script::default().fault(Fault::Nonsense { after: 0 });
    assert!(
        serde_json::from_slice::<Value>(&whole(&upstream, &nonsense, json!({})).await.unwrap().body).is_err()
    );
}

#[tokio::test]
async fn it_fails_in_the_middle() {
    let upstream = Upstream::start();
    let broken = |fault| Script::tokens(1, 9).fault(fault);
    let cut = stream(&upstream, &broken(Fault::Cut { after: 3 }), json!({})).await;
    assert!(cut.last().unwrap().is_err() && streamed_text(&cut, "content") == text(3), "{cut:?}");
    let ended = stream(&upstream, &broken(Fault::End { after: 3 }), json!({})).await;
    assert!(ended.len() == 4 && ended.iter().all(Result::is_ok), "{ended:?}");
    let error = Fault::ErrorEvent { after: 2, shape: Shape::Nested };
    let error = stream(&upstream, &broken(error), json!({})).await;
    assert_eq!(data(&error).last().unwrap()["error"]["code"], 500);
    let finishes = |events: &[Result<Event, String>]| {
        data(events).iter().filter(|c| c["choices"][0]["finish_reason"].is_string()).count()
    };
    let unfinished = stream(&upstream, &broken(Fault::NoFinishReason), json!({})).await;
    assert_eq!((finishes(&unfinished), unfinished.last()), (0, Some(&Ok(Event::Done))));
    let undone = stream(&upstream, &broken(Fault::NoDone), json!({})).await;
    assert!(finishes(&undone) == 1 && undone.last() != Some(&Ok(Event::Done)), "{undone:?}");
    let abort = Script { finish_reason: Some("abort".into()), ..Script::default() };
    let abort = stream(&upstream, &abort, json!({})).await;
    assert!(data(&abort).iter().any(|c| c["choices"][0]["finish_reason"] == "abort"), "{abort:?}");
}

#[tokio::test]
async fn it_notices_at_once_when_a_client_leaves() {
    let upstream = Upstream::start();
    let script = tagged(Script::tokens(1, 1_000).fault(Fault::Stall { after: 3 }));
    let response = Http::new().open(request(&upstream, &script, &json!({"stream": true}))).await.unwrap();
    let mut events = Events::new(response.into_body());
    for _ in 0..4 {
        events.next().await.unwrap().unwrap();
    }
    assert_eq!(upstream.open_connections(), 1);
    let left = Instant::now();
    drop(events);
    let record = upstream.wait_for("it", "end", |record| record.ended.is_some()).await;
    assert!(record.ended_by(End::ClientLeft) && record.served.completion == 3, "{record:?}");
    assert!(left.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn it_waits_where_its_script_does() {
    let upstream = Upstream::start();
    let script = Script { head_after_ms: 50, ..Script::tokens(1, 5).pace(20) };
    let started = Instant::now();
    stream(&upstream, &script, json!({})).await;
    assert!(started.elapsed() >= Duration::from_millis(130), "{:?}", started.elapsed());
}

#[tokio::test]
async fn it_remembers_what_it_has_read_of_prompts_for_each_salt() {
    let upstream = Upstream::start();
    let script = Script { caches: true, ..Script::default() };
    let mut messages = vec![json!({"role": "system", "content": "Be brief. ".repeat(100)})];
    let mut cached = Vec::new();
    for (turn, salt) in ["a", "a", "b", "a"].into_iter().enumerate() {
        messages.push(json!({"role": "user", "content": format!("{turn} {}", script.message())}));
        let body = json!({"messages": messages, "cache_salt": salt});
        let answer = whole(&upstream, &script, body).await.unwrap().json();
        cached.push(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    }
    assert!(cached[0] == 0 && cached[1] >= 240 && cached[2] == 0 && cached[3] > cached[1], "{cached:?}");
}

#[tokio::test]
async fn it_reports_timings_as_llama_cpp_does() {
    let upstream = Upstream::start();
    let style = Style { timings: true, ..Style::default() };
    let script = Script { cached_tokens: 4, style, ..Script::tokens(12, 2) };
    let quiet = stream(&upstream, &script, json!({})).await;
    assert!(data(&quiet).iter().all(|chunk| chunk.get("timings").is_none()));
    let told = stream(&upstream, &script, json!({"timings_per_token": true})).await;
    let last = &data(&told).last().unwrap()["timings"];
    assert_eq!(
        (&last["cache_n"], &last["prompt_n"], &last["predicted_n"]),
        (&json!(4), &json!(8), &json!(2))
    );
}

#[tokio::test]
async fn it_refuses_what_does_not_fit_its_context() {
    let upstream = Upstream::start();
    let script = Script { context: Some(20), ..Script::tokens(12, 100) };
    let answer = whole(&upstream, &script, json!({"max_tokens": 9})).await.unwrap();
    assert!(answer.status == 400 && answer.text().contains("maximum context length"), "{answer}");
    let answer = whole(&upstream, &script, json!({})).await.unwrap().json();
    assert_eq!(answer["usage"]["completion_tokens"], 8, "as many tokens as the context has left");
}
