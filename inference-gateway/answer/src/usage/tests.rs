use super::*;

fn read(usage: &str) -> Reported {
    Reported::read(ReportForm::Usage, serde_json::from_str(usage).unwrap())
}

fn read_timings(timings: &str) -> Reported {
    Reported::read(ReportForm::Timings, serde_json::from_str(timings).unwrap())
}

fn reported(prompt: u64, cached: Option<u64>, completion: u64) -> Reported {
    Reported { prompt: Some(prompt), cached, completion: Some(completion), ..Reported::default() }
}

/// A report with the counts that it stands for, under the names of [`Reported`].
type Form = (&'static str, &'static str, &'static [(&'static str, u64)]);

/// Reports of every kind of upstream, in every form that occurs.
const FORMS: &[Form] = &[
    (
        "openai: without details",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}"#,
        &[("total", 17)],
    ),
    (
        "openai: read from the cache and written to it",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,
            "prompt_tokens_details":{"audio_tokens":0,"cache_write_tokens":3,"cached_tokens":8},
            "completion_tokens_details":{"accepted_prediction_tokens":0,"audio_tokens":0,"reasoning_tokens":2}}"#,
        &[
            ("total", 17),
            ("audio_input", 0),
            ("written", 3),
            ("cached", 8),
            ("audio_output", 0),
            ("reasoning", 2),
        ],
    ),
    (
        "openai: audio",
        r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"audio_tokens":7,"text_tokens":5},
            "completion_tokens_details":{"audio_tokens":4,"text_tokens":1}}"#,
        &[("audio_input", 7), ("audio_output", 4)],
    ),
    (
        "openai: the names of its newer API",
        r#"{"input_tokens":12,"output_tokens":5,"total_tokens":17,
            "input_tokens_details":{"cached_tokens":8,"cache_write_tokens":3},
            "output_tokens_details":{"reasoning_tokens":2}}"#,
        &[("total", 17), ("cached", 8), ("written", 3), ("reasoning", 2)],
    ),
    (
        "openai: written for two times",
        r#"{"input_tokens":12,"output_tokens":5,"total_tokens":17,"input_tokens_details":{"cached_tokens":4,
            "cache_write_tokens":7,"cache_write_tokens_details":{"ttl_30m_tokens":5,"ttl_12h_tokens":2}}}"#,
        &[("total", 17), ("cached", 4), ("written", 7), ("written_long", 2)],
    ),
    (
        "anthropic: thoughts",
        r#"{"input_tokens":12,"output_tokens":5,"output_tokens_details":{"thinking_tokens":3},"service_tier":"standard"}"#,
        &[("reasoning", 3)],
    ),
    (
        "openai: null details",
        r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":null}"#,
        &[],
    ),
    (
        "openai: unknown members",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":null,"unknown":[{}],"prompt_tokens_details":7}"#,
        &[],
    ),
    (
        "vllm",
        r#"{"prompt_tokens":12,"total_tokens":17,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8}}"#,
        &[("total", 17), ("cached", 8)],
    ),
    (
        "sglang",
        r#"{"prompt_tokens":12,"total_tokens":17,"completion_tokens":5,"prompt_tokens_details":null,"reasoning_tokens":3}"#,
        &[("total", 17), ("reasoning", 3)],
    ),
    (
        "llama_cpp",
        r#"{"completion_tokens":5,"prompt_tokens":12,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":8}}"#,
        &[("total", 17), ("cached", 8)],
    ),
    ("ollama", r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}"#, &[("total", 17)]),
    (
        "deepseek",
        r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":4}"#,
        &[("cached", 8)],
    ),
    (
        "deepseek: hit and miss alone",
        r#"{"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":4}"#,
        &[("cached", 8)],
    ),
    ("moonshot", r#"{"prompt_tokens":12,"completion_tokens":5,"cached_tokens":8}"#, &[("cached", 8)]),
    (
        "openrouter: Anthropic's numbers",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,
            "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":6,"audio_tokens":0,"video_tokens":0},
            "completion_tokens_details":{"reasoning_tokens":0,"image_tokens":0}}"#,
        &[("total", 17), ("cached", 4), ("written", 6), ("audio_input", 0), ("reasoning", 0)],
    ),
    (
        "litellm: Anthropic's numbers, twice",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,
            "prompt_tokens_details":{"cached_tokens":4,"cache_creation_tokens":6,"cache_creation_token_details":
                {"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":5}},
            "cache_read_input_tokens":4,"cache_creation_input_tokens":6}"#,
        &[("total", 17), ("cached", 4), ("written", 6), ("written_long", 5)],
    ),
    (
        "new-api: Anthropic's numbers",
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"input_tokens":0,"output_tokens":0,
            "prompt_tokens_details":{"cached_tokens":4,"cached_creation_tokens":6},
            "claude_cache_creation_5_m_tokens":1,"claude_cache_creation_1_h_tokens":5}"#,
        &[("total", 17), ("cached", 4), ("written", 6), ("written_long", 5)],
    ),
    (
        "dashscope: written to the cache",
        r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0,"cache_type":"ephemeral",
            "cache_creation_input_tokens":6,"cache_creation":{"ephemeral_5m_input_tokens":6}}}"#,
        &[("cached", 0), ("written", 6)],
    ),
    (
        "anthropic: in OpenAI's form, with what was read and written",
        r#"{"prompt_tokens":12,"completion_tokens":5,"cache_read_input_tokens":4,"cache_creation_input_tokens":6,
            "cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":5}}"#,
        &[("cached", 4), ("written", 6), ("written_long", 5)],
    ),
    (
        "anthropic: its own form, beside what was read and written",
        r#"{"input_tokens":2,"output_tokens":5,"cache_read_input_tokens":4,"cache_creation_input_tokens":6,
            "cache_creation":{"ephemeral_5m_input_tokens":6,"ephemeral_1h_input_tokens":0},"service_tier":"standard"}"#,
        &[("cached", 4), ("written", 6), ("written_long", 0)],
    ),
    (
        "anthropic: its own form, by time alone",
        r#"{"input_tokens":2,"output_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":7}}"#,
        &[("written", 10), ("written_long", 7)],
    ),
    (
        "anthropic: its own form, all of the prompt read",
        r#"{"input_tokens":0,"output_tokens":5,"cache_read_input_tokens":12,"cache_creation_input_tokens":null}"#,
        &[("cached", 12)],
    ),
    (
        "anthropic: its own form, nothing read or written",
        r#"{"input_tokens":12,"output_tokens":5,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}"#,
        &[("cached", 0), ("written", 0)],
    ),
    (
        "anthropic: the total shows a prompt beside its parts",
        r#"{"prompt_tokens":2,"completion_tokens":5,"total_tokens":17,"cache_read_input_tokens":4,"cache_creation_input_tokens":6}"#,
        &[("total", 17), ("cached", 4), ("written", 6)],
    ),
    (
        "anthropic: the total shows a prompt with its parts",
        r#"{"input_tokens":12,"output_tokens":5,"total_tokens":17,"cache_read_input_tokens":4,"cache_creation_input_tokens":6}"#,
        &[("total", 17), ("cached", 4), ("written", 6)],
    ),
    (
        "anthropic: a total of what was neither read nor written",
        r#"{"input_tokens":2,"output_tokens":5,"total_tokens":7,"cache_read_input_tokens":4,"cache_creation_input_tokens":6}"#,
        &[("total", 7), ("cached", 4), ("written", 6)],
    ),
    (
        "two names, one of them not filled",
        r#"{"prompt_tokens":0,"completion_tokens":0,"input_tokens":12,"output_tokens":5}"#,
        &[],
    ),
    (
        "a cost as the vendor counts it",
        r#"{"prompt_tokens":12,"completion_tokens":5,"cost":0.0012,"cost_details":{"cost":9}}"#,
        &[("cost", 1_200_000)],
    ),
    (
        "names twice: tokens of the cache cost less, so the smaller count",
        r#"{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":8,"cached_tokens":3,"cached_tokens":null}}"#,
        &[("cached", 3)],
    ),
    (
        "names twice: Anthropic's prompt has the larger count, of which the smaller costs less",
        r#"{"input_tokens":4,"output_tokens":5,"cache_read_input_tokens":8,"cache_read_input_tokens":1}"#,
        &[("cached", 1)],
    ),
    (
        "names twice: totals that contradict each other, and the larger prompt",
        r#"{"input_tokens":8,"output_tokens":5,"cache_read_input_tokens":4,"total_tokens":17,"total_tokens":99}"#,
        &[("cached", 4), ("total", 99)],
    ),
    (
        "names twice: a round that may be apart",
        r#"{"input_tokens":2,"output_tokens":1,"iterations":[{"type":"compaction","type":"message","input_tokens":10,"output_tokens":4}]}"#,
        &[],
    ),
    (
        "names twice: the larger count",
        r#"{"prompt_tokens":3,"prompt_tokens":12,"completion_tokens":5,"completion_tokens":0}"#,
        &[],
    ),
];

/// Returns a report of 12 prompt tokens and 5 output tokens, with these further counts.
fn with(counts: &[(&str, u64)]) -> Reported {
    let count = |name| counts.iter().find(|(of, _)| *of == name).map(|(_, tokens)| *tokens);
    Reported {
        prompt: Some(12),
        cached: count("cached"),
        written: count("written"),
        written_long: count("written_long"),
        audio_input: count("audio_input"),
        completion: Some(5),
        reasoning: count("reasoning"),
        audio_output: count("audio_output"),
        total: count("total"),
        cost: count("cost"),
    }
}

#[test]
fn usage_is_read_in_every_form_in_which_it_comes() {
    for (form, usage, counts) in FORMS {
        assert_eq!(read(usage), with(counts), "{form}");
        let body = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        assert_eq!(Reported::find_last(body.as_bytes()), with(counts), "{form}, at the end of a body");
    }
    assert_eq!(read(r#"{"total_tokens":17}"#), Reported { total: Some(17), ..Reported::default() });
    let cache_alone = r#"{"cache_read_input_tokens":8,"output_tokens":5}"#;
    assert_eq!(read(cache_alone).prompt, None, "parts of a prompt are no prompt");
}

#[test]
fn parts_that_contradict_their_whole_are_read_as_reported() {
    // Without a total, nothing shows that the prompt's count leaves them out.
    let usage = r#"{"prompt_tokens":194,"completion_tokens":7,"cache_creation_input_tokens":9474,"cache_read_input_tokens":0}"#;
    let Reported { prompt, written, .. } = read(usage);
    assert_eq!((prompt, written), (Some(194), Some(9_474)));
}

#[test]
fn a_prompt_of_no_tokens_was_not_counted() {
    let completion = Reported { completion: Some(5), ..Reported::default() };
    for prompt in ["0", "0.0", "\"0\"", "-0.0"] {
        let usage = format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":5}}"#);
        assert_eq!(read(&usage), completion, "{usage}");
    }
}

#[test]
fn integral_floats_and_numeric_texts_are_numbers() {
    for twelve in ["12", "12.0", "1.2e1", "120e-1", "\"12\"", "\"12.0\""] {
        let usage = format!(r#"{{"prompt_tokens":{twelve},"completion_tokens":{twelve}}}"#);
        assert_eq!(read(&usage), reported(12, None, 12), "{usage}");
    }
}

#[test]
fn a_member_that_is_no_number_of_tokens_is_as_good_as_absent() {
    for wrong in
        ["-1", "1.5", "-1.0", "1e400", "\"twelve\"", "\"nan\"", "\"inf\"", "\"\"", "null", "[]", "{}", "true"]
    {
        let (five, none) = (Some(5), Reported::default());
        let usage = format!(r#"{{"prompt_tokens":{wrong},"completion_tokens":5}}"#);
        assert_eq!(read(&usage), Reported { completion: five, ..none }, "{usage}");
        let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":{wrong}}}"#);
        assert_eq!(read(&usage), Reported { prompt: five, ..none }, "{usage}");
    }
    for no_usage in ["{}", "[]", "7", "\"x\"", "null"] {
        assert_eq!(read(no_usage), Reported::default(), "{no_usage}");
    }
}

#[test]
fn a_number_beyond_all_bounds_stays_beyond_them() {
    for tokens in ["9223372036854775807", "99999999999999999999", "1e30", "\"1e300\""] {
        let usage = format!(r#"{{"prompt_tokens":5,"completion_tokens":{tokens}}}"#);
        assert_eq!(read(&usage), reported(5, None, MOST_TOKENS), "{tokens}");
    }
}

#[test]
fn timings_contain_what_a_choice_has_used_so_far() {
    let timings =
        r#"{"cache_n":236,"prompt_n":1,"prompt_ms":30.958,"predicted_n":35,"predicted_ms":661.064}"#;
    assert_eq!(read_timings(timings), reported(237, Some(236), 35));
    assert_eq!(read_timings(r#"{"prompt_n":9,"predicted_n":1}"#), reported(9, None, 1));
    assert_eq!(read_timings(r#"{"cache_n":0,"prompt_n":0,"predicted_n":0}"#).prompt, None);
    assert_eq!(read_timings(r#"{"prompt_n":-1,"predicted_n":1}"#).completion, Some(1));
    for none in ["{}", "[]", r#"{"prompt_tokens":12,"completion_tokens":5}"#] {
        assert_eq!(read_timings(none), Reported::default(), "{none}");
    }
}

#[test]
fn usage_is_found_at_the_end_of_a_body() {
    let end = br#""}],"usage" : {"prompt_tokens":12,"completion_tokens":60000}, "id": "x"}"#;
    assert_eq!(Reported::find_last(end), reported(12, None, 60_000));
    let timed = br#""}],"usage":{"prompt_tokens":12,"completion_tokens":5},"timings":{"cache_n":4,"prompt_n":8,"predicted_n":5}}"#;
    assert_eq!(Reported::find_last(timed), reported(12, Some(4), 5));
    let twice = br#""}],"usage":{"prompt_tokens":12,"completion_tokens":5},"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    assert_eq!(Reported::find_last(twice), reported(12, None, 5));
    assert_eq!(Reported::find_last(br#"{"usage": {"prompt_tok"#), Reported::default());
    assert_eq!(Reported::find_last(b"{}"), Reported::default());
}

#[test]
fn usage_is_written_with_its_cost_to_the_last_nano_usd() {
    let mut out = BytesMut::new();
    put_usage(Usage::of(12, 0, 5), Some(NanoUsd::from_nanos(3200)), &mut out);
    assert_eq!(
        out,
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},"cost":0.0000032}"#
    );
    out.clear();
    put_usage(Usage::of(12, 0, 5), None, &mut out);
    assert!(out.ends_with(br#""completion_tokens_details":{"reasoning_tokens":0}}"#));
}

#[test]
fn what_was_written_to_the_cache_and_audio_are_shown_where_there_are_any() {
    let details = UsageDetails {
        cache_write: 2,
        cache_write_long: 3,
        audio_input: 6,
        images: 9,
        reasoning: 1,
        audio_output: 4,
    };
    let mut out = BytesMut::new();
    put_usage(Usage { details, ..Usage::of(12, 1, 5) }, None, &mut out);
    assert_eq!(
        out,
        r#"{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":1,"cache_write_tokens":5,"audio_tokens":6},"completion_tokens_details":{"reasoning_tokens":1,"audio_tokens":4}}"#
    );
}

#[test]
fn rounds_that_an_answer_of_anthropics_leaves_out_of_its_totals_are_added() {
    let usage = r#"{"input_tokens":23000,"cache_read_input_tokens":10,"cache_creation_input_tokens":5,"output_tokens":1000,
        "iterations":[
            {"type":"compaction","input_tokens":180000,"output_tokens":3500,"cache_read_input_tokens":7,
                "cache_creation_input_tokens":4,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":3}},
            {"type":"message","input_tokens":23000,"output_tokens":1000},
            {"type":"fallback_message","model":"m","input_tokens":1,"output_tokens":1},
            {"type":"advisor_message","model":"m","input_tokens":100,"output_tokens":20},
            7, {"type":null}]}"#;
    let expected = Reported {
        prompt: Some(23_015 + 180_011 + 100),
        cached: Some(17),
        written: Some(9),
        written_long: Some(3),
        completion: Some(4520),
        ..Reported::default()
    };
    assert_eq!(read(usage), expected);
    for rounds in ["null", "7", "{}", r#"["type"]"#] {
        let usage = format!(r#"{{"input_tokens":1,"output_tokens":2,"iterations":{rounds}}}"#);
        assert_eq!(read(&usage), reported(1, None, 2), "{rounds}");
    }
    let nested = format!(
        "{}1{}",
        r#"{"type":"compaction","output_tokens":1,"iterations":["#.repeat(100_000),
        "]}".repeat(100_000)
    );
    assert_eq!(read(&nested).completion, Some(2));
}

#[test]
fn the_usage_at_the_end_of_a_body_is_found_behind_members_of_the_same_name() {
    let end = br#"ext"}],"usage":{"input_tokens":3,"output_tokens":2},"tools":[{"parameters":{"properties":{"usage":{"type":"object"}}}}]}"#;
    assert_eq!(Reported::find_last(end), reported(3, None, 2));
    let many = format!(r#"{{"usage":{{"output_tokens":2}},{}"x":1}}"#, r#""usage":{},"#.repeat(1000));
    assert_eq!(Reported::find_last(many.as_bytes()), Reported::default());
}

#[test]
fn cached_tokens_are_beside_the_prompt_only_where_the_total_says_so() {
    for (total, prompt) in [("5110", 5_010), ("110", 10), ("null", 10)] {
        let usage = format!(
            r#"{{"prompt_tokens":10,"completion_tokens":100,"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":5000}}}}"#
        );
        assert_eq!(read(&usage).prompt, Some(prompt), "{total}");
    }
}

#[test]
fn cached_tokens_are_read_by_the_names_of_mistral() {
    for details in [r#""num_cached_tokens":600"#, r#""prompt_token_details":{"cached_tokens":600}"#] {
        let usage = format!(r#"{{"prompt_tokens":1000,"completion_tokens":100,{details}}}"#);
        assert_eq!(read(&usage), reported(1000, Some(600), 100), "{details}");
    }
}
