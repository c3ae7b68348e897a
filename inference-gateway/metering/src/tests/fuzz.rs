//! Fuzz targets for metered streams.

use std::sync::Arc;

use reply::{MessagesReply, ResponsesReply, ToolNames};
use shared_fuzz::{Examples, Input, fuzz};

use super::*;

#[test]
fn metered_chat_streams() {
    fuzz(&Examples::folder("chat-streams"), |input: &Input| check_stream(UpstreamApi::Chat, input));
}

#[test]
fn metered_messages_streams() {
    fuzz(&Examples::folder("messages-streams"), |input: &Input| check_stream(UpstreamApi::Messages, input));
}

#[test]
fn metered_responses_streams() {
    fuzz(&Examples::folder("responses-streams"), |input: &Input| check_stream(UpstreamApi::Responses, input));
}

/// Checks that neither the bill nor what a client reads depends on where the body is cut. Also checks that the bill
/// covers at least the reported counts that are believed.
fn check_stream(api: UpstreamApi, input: &Input) {
    let bytes = Bytes::copy_from_slice(input.bytes());
    let pieces: Vec<Bytes> = input.pieces().into_iter().map(Bytes::copy_from_slice).collect();
    let scopes = [UsageScope::Answer, UsageScope::ChunkChoice, UsageScope::Choice];
    for reply in replies() {
        for passes in [false, true] {
            let scope = scopes[input.choice(3)];
            let (first, available) = (1 + input.choice(40) as u64, input.choice(200) as u64);
            let run = |pieces: &[Bytes]| {
                let mut meter = meter_for(api, &reply, passes, scope, first);
                let end = match carry(&mut meter, pieces, available.max(first)) {
                    StreamEnd::Complete => "complete",
                    StreamEnd::GrantUsedUp => "used up",
                    StreamEnd::Beyond => "beyond",
                    StreamEnd::Complained(_) => "complained",
                    StreamEnd::Broken(_) => "broken",
                };
                let (usage, cut) = (meter.usage(), meter.usage_up_to_cut());
                assert!(usage.completion >= meter.counter().reported().completion.unwrap_or(0));
                assert!(usage.completion >= cut.completion && usage.prompt >= usage.cached);
                (end, usage, cut, meter.output().take())
            };
            assert_eq!(run(&pieces), run(std::slice::from_ref(&bytes)));
        }
    }
    check_folded(api, &pieces, &bytes);
}

pub(super) fn replies() -> [Reply; 3] {
    let earlier_calls = Arc::default();
    let responses = ResponsesReply {
        echo: String::new(),
        names: ToolNames::default(),
        summary: false,
        earlier_calls: Arc::clone(&earlier_calls),
    };
    let messages = MessagesReply { thinking: false, stops: vec!["END".into()], earlier_calls };
    [
        Reply::Chat { include_usage: true },
        Reply::Responses(Arc::new(responses)),
        Reply::Messages(Arc::new(messages)),
    ]
}

pub(super) fn counter(scope: UsageScope) -> UsageCounter {
    let catalogue = Usage::of(100_000, 100_000, 100_000);
    let bounds = UsageBounds { prompt_estimate: 10, images: 0, max_tokens: 100, choices: 2, catalogue };
    UsageCounter::new(bounds, scope)
}

pub(super) fn meter_for(
    api: UpstreamApi,
    reply: &Reply,
    passes: bool,
    scope: UsageScope,
    granted: u64,
) -> StreamMeter {
    let id = GenerationId::new(Timestamp::from_millis(1), [7; 10]);
    let generation = Generation { id, created: 1, model: "m", server: reply::carried::ServerId::default() };
    let writer = StreamWriter::new(generation, reply, 10, passes && reply.api() == api);
    StreamMeter::new(AnswerReader::new(api), writer, counter(scope), GrantedTokens::new(granted, 200), 2)
}

/// Checks that a folded answer is valid JSON, and the same wherever the body is cut.
fn check_folded(api: UpstreamApi, pieces: &[Bytes], whole: &Bytes) {
    let run = |pieces: &[Bytes]| {
        let mut meter = FoldMeter::new(AnswerReader::new(api), counter(UsageScope::Choice), 2);
        let ended = pieces.iter().any(|piece| meter.push(piece.clone()).is_some());
        let answer = (!ended).then(|| meter.upstream_ended());
        let is_whole = matches!(answer, Some(FoldEnd::Complete));
        (ended, is_whole, meter.counter().usage(), meter.take_answer().and_then(Result::ok))
    };
    let folded = run(pieces);
    assert_eq!(folded, run(std::slice::from_ref(whole)));
    assert!(folded.3.is_none_or(|answer| serde_json::from_slice::<&shared::json::RawValue>(&answer).is_ok()));
}
