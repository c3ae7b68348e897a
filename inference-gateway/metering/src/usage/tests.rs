use answer::Event;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Maximum number of tokens that the catalogue of these tests allows: four times its prompt exceeds what is believed
/// for any request.
const CATALOGUE: Usage = Usage::of(300_000, 300_000, 1_000);
const BELIEVED_PROMPT: u64 = 1_200_000;

fn counter(scope: UsageScope, choices: u64) -> UsageCounter {
    let bounds =
        UsageBounds { prompt_estimate: 100, images: 0, max_tokens: 1_000, choices, catalogue: CATALOGUE };
    UsageCounter::new(bounds, scope)
}

/// Returns the counter of a single choice after this many bytes of output.
fn counter_after(bytes: u64) -> UsageCounter {
    let mut counter = counter(UsageScope::Answer, 1);
    counter.count_text(0, size(bytes));
    counter
}

fn size(bytes: u64) -> OutputSize {
    OutputSize { bytes, listed_tokens: 0 }
}

fn reported(prompt: u64, completion: u64) -> Reported {
    Reported { prompt: Some(prompt), completion: Some(completion), ..Reported::default() }
}

fn usage(prompt: u64, cached: u64, completion: u64) -> Usage {
    Usage::of(prompt, cached, completion)
}

/// Returns a chunk with eight bytes of text for a choice.
fn text(choice: u64) -> Value {
    json!({"choices": [{"index": choice, "delta": {"content": "12345678"}}]})
}

/// Returns a chunk with this usage; `timings` is the name that llama.cpp's server gives it.
fn with(mut chunk: Value, name: &str, usage: Value) -> Value {
    chunk[name] = usage;
    chunk
}

fn tokens(prompt: u64, completion: u64) -> Value {
    json!({"prompt_tokens": prompt, "completion_tokens": completion})
}

fn timings(prompt: u64, completion: u64) -> Value {
    json!({"cache_n": 4, "prompt_n": prompt - 4, "predicted_n": completion})
}

fn last(usage: Value) -> Value {
    with(json!({"choices": []}), "usage", usage)
}

fn finish(choice: u64) -> Value {
    json!({"choices": [{"index": choice, "delta": {}, "finish_reason": "stop"}]})
}

fn after(mut counter: UsageCounter, chunks: &[Value]) -> UsageCounter {
    for chunk in chunks {
        let chunk = chunk.to_string();
        let Ok(Event::Chunk(chunk)) = Event::read(chunk.as_bytes()) else { panic!("{chunk}") };
        counter.count_chunk(&chunk);
    }
    counter
}

fn whole(counter: UsageCounter, answer: &Value) -> UsageCounter {
    counter.with_answer(
        &Completion::read(&reply::Reply::Chat { include_usage: false }, answer.to_string().as_bytes())
            .unwrap(),
    )
}

/// Returns a whole answer whose choices have texts of these lengths.
fn answer(lengths: &[usize], usage: &Value) -> Value {
    let choice =
        |length: &usize| json!({"message": {"content": "x".repeat(*length)}, "finish_reason": "stop"});
    json!({"choices": lengths.iter().map(choice).collect::<Vec<_>>(), "usage": usage})
}

/// Asserts the usage of streams with two choices, and whether it is an estimate.
fn assert_counted<const N: usize>(scope: UsageScope, streams: [(&str, Vec<Value>, Usage, bool); N]) {
    for (case, chunks, expected, estimate) in streams {
        let counted = after(counter(scope, 2), &chunks);
        assert_eq!((counted.usage(), counted.is_estimate()), (expected, estimate), "{case}");
        assert_eq!(counted.disbelieved, Reported::default(), "{case}");
    }
}

#[test]
fn reports_of_the_whole_answer_count_as_they_are() {
    assert_counted(
        UsageScope::Answer,
        [
            ("openai: nothing before the end", vec![text(0), text(1)], usage(100, 0, 4), true),
            ("openai: at the end", vec![text(0), text(1), last(tokens(12, 9))], usage(12, 0, 9), false),
            (
                "openai, in every chunk: of all",
                vec![with(text(0), "usage", tokens(12, 3)), with(text(1), "usage", tokens(12, 7))],
                usage(12, 0, 7),
                false,
            ),
            (
                "ollama: with the finish reason",
                vec![text(0), with(finish(0), "usage", tokens(12, 9))],
                usage(12, 0, 9),
                false,
            ),
            (
                "input and output tokens, in chunks of their own",
                vec![
                    last(json!({"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}})),
                    text(0),
                    last(json!({"output_tokens": "9.0"})),
                ],
                usage(12, 8, 9),
                false,
            ),
        ],
    );
}

#[test]
fn reports_of_a_chunks_choice_are_added_up() {
    let both = json!({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]});
    assert_counted(
        UsageScope::ChunkChoice,
        [
            (
                "vllm: by choice",
                vec![
                    with(text(0), "usage", tokens(12, 2)),
                    with(text(1), "usage", tokens(12, 2)),
                    with(text(0), "usage", tokens(12, 4)),
                ],
                usage(12, 0, 6),
                false,
            ),
            (
                "vllm: by choice, then of all",
                vec![
                    with(text(0), "usage", tokens(12, 2)),
                    with(text(1), "usage", tokens(12, 2)),
                    last(tokens(12, 5)),
                ],
                usage(12, 0, 5),
                false,
            ),
            (
                "vllm: a last report of less takes nothing back",
                vec![
                    with(text(0), "usage", tokens(12, 3)),
                    with(text(1), "usage", tokens(12, 3)),
                    last(tokens(12, 3)),
                ],
                usage(12, 0, 6),
                false,
            ),
            (
                "vllm: a chunk of several choices counts all",
                vec![with(both, "usage", tokens(12, 7))],
                usage(12, 0, 7),
                false,
            ),
            (
                "vllm: behind its text",
                vec![with(text(0), "usage", tokens(12, 3)), text(1)],
                usage(12, 0, 5),
                true,
            ),
        ],
    );
}

#[test]
fn reports_that_are_always_of_one_choice_are_added_up() {
    assert_counted(
        UsageScope::Choice,
        [
            (
                "llama_cpp: timings by choice",
                vec![with(text(0), "timings", timings(12, 3)), with(text(1), "timings", timings(12, 2))],
                usage(12, 4, 5),
                false,
            ),
            (
                "llama_cpp: each choice's usage follows its end",
                vec![
                    with(text(0), "timings", timings(12, 3)),
                    with(text(1), "timings", timings(12, 2)),
                    finish(0),
                    with(last(tokens(12, 4)), "timings", timings(12, 4)),
                    finish(1),
                    with(last(tokens(12, 3)), "timings", timings(12, 3)),
                ],
                usage(12, 4, 7),
                false,
            ),
        ],
    );
}

#[test]
fn with_one_choice_all_kinds_count_alike() {
    for scope in [UsageScope::Answer, UsageScope::ChunkChoice, UsageScope::Choice] {
        let chunks = [
            with(text(0), "usage", tokens(12, 2)),
            with(text(0), "usage", tokens(12, 4)),
            finish(0),
            last(tokens(12, 5)),
        ];
        let counted = after(counter(scope, 1), &chunks);
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), false), "{scope:?}");
        let counted = whole(counter(scope, 1), &answer(&[8_000], &tokens(12, 5)));
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), false), "{scope:?}");
    }
}

#[test]
fn a_member_that_is_missing_is_estimated_alone() {
    let counted = after(counter(UsageScope::Answer, 1), &[text(0), last(json!({"completion_tokens": 9}))]);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(100, 0, 9), true));
    assert!(!counted.completion_is_estimate());
    let mut counted = counted;
    counted.set_prompt(40);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(40, 0, 9), false), "counted exactly");
    let counted = after(counter(UsageScope::Answer, 1), &[text(0), last(json!({"prompt_tokens": 12}))]);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 2), true));
}

#[test]
fn a_report_of_no_output_after_some_came_is_none() {
    let counted = after(counter(UsageScope::Answer, 1), &[text(0), last(tokens(12, 0))]);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 2), true));
    let begun = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": tokens(12, 0)});
    let counted = after(counter(UsageScope::Answer, 1), &[begun]);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 0), false));
}

#[test]
fn output_that_the_total_shows_alone_counts_as_far_as_the_request_allows() {
    let with_total = |completion: u64, total: u64| {
        let usage = json!({"prompt_tokens": 12, "completion_tokens": completion, "total_tokens": total});
        let counted = after(counter(UsageScope::Answer, 1), &[text(0), last(usage)]);
        let Usage { prompt, completion, details, .. } = counted.usage();
        assert_eq!((prompt, counted.is_estimate()), (12, false));
        (completion, details.reasoning, counted.disbelieved().total)
    };
    assert_eq!(with_total(1, 399), (387, 386, None), "reasoning beside the completion");
    assert_eq!(with_total(5, 17), (5, 0, None));
    assert_eq!(with_total(5, 7), (5, 0, None));
    assert_eq!(with_total(5, 1_012), (1_000, 995, None));
    assert_eq!(with_total(5, 1_013), (5, 0, Some(1_013)), "more than was allowed");
    assert_eq!(with_total(5, 2_147_483_647), (5, 0, Some(2_147_483_647)));
    assert_eq!(with_total(1_500, 1_512), (1_500, 0, None), "stated as well, it is no total alone");
}

#[test]
fn a_false_report_is_ignored_until_a_true_one_comes() {
    for tokens in [1_000_000_000_000, u64::MAX, u64::from(u32::MAX), 1_200_001] {
        let lie = Reported { cached: Some(tokens), total: Some(tokens), ..reported(tokens, tokens) };
        let mut counted = counter_after(8);
        counted.learn(lie, None);
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(100, 0, 2), true), "{tokens}");
        assert_ne!(*counted.disbelieved(), Reported::default());
        counted.learn(reported(12, 5), None);
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), false), "{tokens}");
        counted.learn(lie, None);
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), true), "{tokens} at the end");
    }
}

#[test]
fn a_false_member_says_nothing_against_the_others() {
    let mut counted = counter_after(8);
    counted.learn(reported(u64::MAX, 5), None);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(100, 0, 5), true));
    let mut counted = counter_after(8);
    counted.learn(Reported { cached: Some(u64::MAX), ..reported(12, 5) }, None);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), true), "nothing is cached");
}

#[test]
fn a_report_beyond_the_catalogue_and_within_belief_is_billed_as_reported() {
    let mut counted = counter_after(8);
    counted.learn(reported(BELIEVED_PROMPT, 1_000_000), None);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(BELIEVED_PROMPT, 0, 1_000_000), false));
    counted.learn(reported(BELIEVED_PROMPT + 1, 1_000_001), None);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(BELIEVED_PROMPT, 0, 1_000_000), true));
}

#[test]
fn choices_are_not_believed_together_what_is_not_believed_of_one() {
    let mut counted = counter(UsageScope::ChunkChoice, 8);
    counted.learn(reported(12, 900_000), Some(0));
    counted.learn(reported(12, 900_000), Some(1));
    assert_eq!((counted.completion(), counted.is_estimate()), (900_000, true));
    counted.learn(reported(12, 7), Some(1));
    assert_eq!((counted.completion(), counted.is_estimate()), (900_007, false));
}

#[test]
fn an_estimate_never_exceeds_the_upstreams_limit() {
    let mut counted = counter(UsageScope::Answer, 1);
    counted.count_text(0, size(40_000));
    assert_eq!((counted.completion(), counted.runs_away()), (1_000, false));
    counted.learn(reported(12, 1_070), None);
    counted.count_text(0, size(4));
    assert_eq!(counted.completion(), 1_070);
}

/// Counts the tokens under a limit of 1,000 after this many pieces of this many bytes.
fn counted(pieces: u64, bytes: u64) -> UsageCounter {
    let mut counted = counter(UsageScope::Answer, 1);
    (0..pieces).for_each(|_| counted.count_text(0, size(bytes)));
    counted
}

#[test]
fn output_beyond_any_doubt_shows_an_upstream_that_does_not_obey_its_limit() {
    for (pieces, bytes, runs_away) in [
        (2_000, 5, false),
        (2_001, 5, true),
        // Letter by letter, and long tokens.
        (4_000, 1, false),
        (1_000, 60, false),
        (1_100, 60, true),
        (100, 200, false),
    ] {
        assert_eq!(counted(pieces, bytes).runs_away(), runs_away, "{pieces} pieces of {bytes} bytes");
    }
    assert_eq!(counted(3_000, 5).completion(), 3_000, "what was delivered is billed");
}

#[test]
fn a_whole_answer_without_a_report_counts_by_its_bytes() {
    let silent = whole(counter(UsageScope::Answer, 8), &answer(&[40, 80, 0], &Value::Null));
    assert_eq!((silent.usage(), silent.is_estimate()), (usage(100, 0, 10 + 20 + 1), true));
    let of_all = whole(counter(UsageScope::ChunkChoice, 8), &answer(&[40, 80], &tokens(12, 9)));
    assert_eq!((of_all.usage(), of_all.is_estimate()), (usage(12, 0, 9), false));
}

#[test]
fn timings_of_a_whole_answer_are_read_as_those_of_a_stream() {
    let mut answer = answer(&[8_000], &tokens(12, 5));
    answer["timings"] = timings(12, 5);
    let counted = whole(counter(UsageScope::Choice, 1), &answer);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 4, 5), false));
    answer["usage"] = Value::Null;
    let counted = whole(counter(UsageScope::Choice, 1), &answer);
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 4, 5), false), "alone");
}

#[test]
fn parts_of_the_output_are_added_up_by_choice_as_the_output_is() {
    let of = |completion: u64, reasoning: u64, audio: u64| {
        json!({"prompt_tokens": 12, "completion_tokens": completion,
            "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": audio}})
    };
    let chunks = [
        with(text(0), "usage", of(30, 20, 3)),
        with(text(1), "usage", of(50, 40, 4)),
        with(text(0), "usage", of(35, 25, 3)),
        with(text(1), "usage", of(50, 30, 4)),
    ];
    let parts = |counted: &UsageCounter| {
        let Usage { completion, details, .. } = counted.usage();
        (completion, details.reasoning, details.audio_output, counted.is_estimate())
    };
    let counted = after(counter(UsageScope::ChunkChoice, 2), &chunks);
    assert_eq!(parts(&counted), (85, 65, 7, false));
    let ended = after(counted, &[last(of(90, 70, 8))]);
    assert_eq!(parts(&ended), (90, 70, 8, false), "the last report counts all choices");
    let of_all = after(counter(UsageScope::Answer, 2), &chunks);
    assert_eq!(parts(&of_all), (50, 40, 4, false), "where each report counts all choices");
}

#[test]
fn text_that_follows_a_report_of_its_own_tokens_is_billed_once() {
    let counted = |report: u64, texts: usize| {
        let mut chunks = vec![with(finish(0), "usage", tokens(12, report))];
        chunks.extend(std::iter::repeat_n(text(0), texts));
        let counted = after(counter(UsageScope::ChunkChoice, 2), &chunks);
        assert_eq!(counted.is_estimate(), texts > 0, "text came after the report");
        counted.completion()
    };
    // Each text has two tokens.
    assert_eq!([counted(1_000, 0), counted(1_000, 500), counted(1_000, 510)], [1_000, 1_000, 1_020]);
    assert_eq!([counted(1, 1), counted(1, 5)], [2, 10]);
    // How far a report is ahead of one choice says nothing about another choice.
    let chunks = [with(text(0), "usage", tokens(12, 100)), text(1), text(0)];
    assert_eq!(after(counter(UsageScope::ChunkChoice, 2), &chunks).completion(), 102);
    // A report of all choices is ahead of all of them together.
    let chunks = [text(0), text(1), last(tokens(12, 10)), text(0), text(1), text(1), text(0)];
    assert_eq!(after(counter(UsageScope::ChunkChoice, 2), &chunks).completion(), 12);
    // A report covers the text before it. Text of other choices still counts.
    let chunks = [text(0), text(1), with(text(0), "usage", tokens(12, 4))];
    let counted = after(counter(UsageScope::ChunkChoice, 2), &chunks);
    assert_eq!((counted.completion(), counted.completion_is_estimate()), (6, true));
}

#[test]
fn tokens_that_are_listed_alone_are_output() {
    let listed = |text: &str, tokens: usize| {
        let content: Vec<Value> = (0..tokens).map(|_| json!({"token": "a", "logprob": -1})).collect();
        json!({"choices": [{"index": 0, "delta": {"content": text}, "logprobs": {"content": content}}]})
    };
    let counted = |chunks: &[Value]| after(counter(UsageScope::Answer, 1), chunks).completion();
    assert_eq!(counted(&[listed("", 7), listed("", 0), listed("", 1)]), 8);
    assert_eq!(counted(&[listed("12345678", 1)]), 2, "by its text");
    assert_eq!(counted(&[listed("1234", 9)]), 9);
    let beyond = after(counter(UsageScope::Answer, 1), &[listed("", 2_001)]);
    assert!(beyond.runs_away() && beyond.completion() == 2_001, "an upstream that ignores its limit");
    let mut whole_answer = answer(&[4], &Value::Null);
    whole_answer["choices"][0]["logprobs"] = listed("", 7)["choices"][0]["logprobs"].take();
    assert_eq!(whole(counter(UsageScope::Answer, 1), &whole_answer).completion(), 7);
}

#[test]
fn an_answer_that_was_not_kept_counts_by_its_end_or_else_by_its_length() {
    let end = |scope, usage| counter(scope, 2).with_end_of_answer(4_000_000, usage);
    let counted = end(UsageScope::Answer, reported(12, 9));
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 9), false));
    let counted = end(UsageScope::Answer, Reported::default());
    assert_eq!((counted.usage(), counted.is_estimate()), (usage(100, 0, 2_000), true));
}

#[test]
fn parts_are_counted_apart_and_each_within_its_whole() {
    let bounds = UsageBounds { images: 3, ..counter(UsageScope::Answer, 1).bounds };
    let mut counted = UsageCounter::new(bounds, UsageScope::Answer);
    assert_eq!(counted.usage().details, UsageDetails { images: 3, ..UsageDetails::default() });
    let parts = Reported {
        written: Some(10),
        written_long: Some(4),
        audio_input: Some(2),
        reasoning: Some(3),
        audio_output: Some(5),
        ..reported(12, 9)
    };
    counted.learn(parts, None);
    let expected = UsageDetails {
        cache_write: 6,
        cache_write_long: 4,
        audio_input: 2,
        images: 3,
        reasoning: 3,
        audio_output: 5,
    };
    assert_eq!((counted.usage().details, counted.is_estimate()), (expected, false));
    assert!(!counted.has_part_beyond_whole());
    // In parts, in any order, and late. Pricing decides about written tokens.
    counted.learn(Reported { written: Some(40), audio_output: Some(40), ..Reported::default() }, None);
    let details = counted.usage().details;
    assert_eq!((details.cache_write, details.cache_write_long, details.audio_output), (36, 4, 9));
    assert!(counted.has_part_beyond_whole());
    counted.learn(Reported { written_long: Some(40), ..Reported::default() }, None);
    let details = counted.usage().details;
    assert_eq!((details.cache_write, details.cache_write_long), (0, 40));
}

#[test]
fn a_false_part_is_not_billed_and_makes_the_bill_an_estimate_until_a_true_one_comes() {
    let part = |name: &str, tokens: u64| {
        let (mut part, tokens) = (Reported::default(), Some(tokens));
        match name {
            "written" => part.written = tokens,
            "written_long" => part.written_long = tokens,
            "audio_input" => part.audio_input = tokens,
            "reasoning" => part.reasoning = tokens,
            _ => part.audio_output = tokens,
        }
        part
    };
    for name in ["written", "written_long", "audio_input", "reasoning", "audio_output"] {
        let mut counted = counter_after(8);
        counted.learn(reported(12, 5), None);
        counted.learn(part(name, u64::MAX), None);
        assert_eq!((counted.usage(), counted.is_estimate()), (usage(12, 0, 5), true), "{name}");
        assert!(!counted.completion_is_estimate(), "{name}: the counted output is exact");
        assert_ne!(*counted.disbelieved(), Reported::default(), "{name}");
        counted.learn(part(name, 0).max(reported(12, 5)), None);
        assert!(!counted.is_estimate(), "{name}");
    }
}

/// Generates counts that servers report, and counts that they never should.
fn any_count() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        (0..2_000_u64).prop_map(Some),
        (0..3_000_000_u64).prop_map(Some),
        any::<u64>().prop_map(Some)
    ]
}

fn any_report() -> impl Strategy<Value = Reported> {
    prop::array::uniform9(any_count()).prop_map(|counts| {
        let [prompt, cached, written, written_long, audio_input, completion, reasoning, audio_output, total] =
            counts;
        Reported {
            prompt,
            cached,
            written,
            written_long,
            audio_input,
            completion,
            reasoning,
            audio_output,
            total,
            cost: None,
        }
    })
}

fn any_scope() -> impl Strategy<Value = UsageScope> {
    prop::sample::select(vec![UsageScope::Answer, UsageScope::ChunkChoice, UsageScope::Choice])
}

proptest! {
    #[test]
    fn reports_take_nothing_back_and_nothing_is_billed_beyond_belief(
        scope in any_scope(),
        reports in prop::collection::vec((any_report(), prop::option::of(0..8_usize), 0..3_u64), 1..12),
    ) {
        let mut counted = counter(scope, 8);
        for (report, choice, outputs) in reports {
            let before = *counted.reported();
            (0..outputs).for_each(|choice| counted.count_text(usize::try_from(choice).unwrap(), size(8)));
            counted.learn(report, choice);
            prop_assert_eq!(counted.reported().max(before), *counted.reported());
            let Usage { prompt, cached, completion, details } = counted.usage();
            prop_assert!(prompt <= BELIEVED_PROMPT && completion <= BELIEVED_TOKENS, "{} {}", prompt, completion);
            for part in [cached, details.audio_input] {
                prop_assert!(part <= prompt, "{:?}", details);
            }
            prop_assert!(details.reasoning <= completion && details.audio_output <= completion, "{:?}", details);
            prop_assert!(completion >= counted.reported().completion.unwrap_or(0));
        }
    }

    #[test]
    fn members_that_come_one_by_one_count_as_those_that_come_together(
        report in any_report(),
        choice in prop::option::of(0..8_usize),
        order in Just([0, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle(),
    ) {
        let report = Reported { total: None, ..report };
        let none = Reported::default();
        let members = [
            Reported { prompt: report.prompt, ..none },
            Reported { cached: report.cached, ..none },
            Reported { written: report.written, ..none },
            Reported { written_long: report.written_long, ..none },
            Reported { audio_input: report.audio_input, ..none },
            Reported { completion: report.completion, ..none },
            Reported { reasoning: report.reasoning, ..none },
            Reported { audio_output: report.audio_output, ..none },
        ];
        let (mut together, mut apart) = (counter(UsageScope::ChunkChoice, 8), counter(UsageScope::ChunkChoice, 8));
        together.learn(report, choice);
        for place in order {
            apart.learn(members[place], choice);
        }
        prop_assert_eq!(apart.usage(), together.usage());
        prop_assert_eq!(apart.disbelieved(), together.disbelieved());
    }
}

#[test]
fn the_name_of_the_model_and_the_vendors_cost_are_those_of_the_answer() {
    let named = |model: &str, chunk: Value| with(chunk, "model", json!(model));
    let usage = with(tokens(12, 5), "cost", json!(0.36));
    let streamed =
        after(counter(UsageScope::Answer, 1), &[named("dear/pro", text(0)), named("m", last(usage.clone()))]);
    let of_whole = whole(counter(UsageScope::Answer, 1), &named("dear/pro", answer(&[3], &usage)));
    for counted in [streamed, of_whole] {
        assert_eq!((counted.model(), counted.reported().cost), (Some("dear/pro"), Some(360_000_000)));
        assert_eq!(counted.usage(), Usage::of(12, 0, 5));
    }
    let untold = after(counter(UsageScope::Answer, 1), &[text(0), last(tokens(12, 5))]);
    assert_eq!((untold.model(), untold.reported().cost), (None, None));
    for nothing in [json!(-1), json!("much"), json!(1e300), json!(null)] {
        let counted = after(counter(UsageScope::Answer, 1), &[last(with(tokens(12, 5), "cost", nothing))]);
        assert_eq!(counted.reported().cost, None);
    }
}
