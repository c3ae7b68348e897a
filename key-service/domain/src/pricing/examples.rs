//! Bills from hosted vendors, calculated by hand. Rates are USD per million tokens from the vendors' price pages in
//! 2025 and 2026.

use shared::tokens::UsageDetails;
use shared_catalog::{Rates, Tier};

use super::*;

fn usd(text: &str) -> NanoUsd {
    NanoUsd::parse(text).unwrap()
}

fn three(input: &str, cached_input: &str, output: &str) -> Rates {
    Rates::of_three(usd(input), usd(cached_input), usd(output))
}

fn above(tokens: u64, base: Rates, rates: Rates) -> Price {
    Price { base, tiers: vec![Tier { above: tokens, rates }] }
}

const NONE: UsageDetails = UsageDetails {
    cache_write: 0,
    cache_write_long: 0,
    audio_input: 0,
    images: 0,
    reasoning: 0,
    audio_output: 0,
};

fn with(usage: Usage, details: UsageDetails) -> Usage {
    Usage { details, ..usage }
}

#[track_caller]
fn costs(price: &Price, usage: Usage, expected: &str) {
    assert!(!contradicts(usage));
    assert_eq!(cost(price, usage), usd(expected));
    assert!(worst_case(price, usage.prompt, usage.completion, usage.details.images) >= usd(expected));
}

#[test]
fn openai_bills_cached_input_and_reasoning() {
    let gpt_4o = Price::flat(three("2.50", "1.25", "10.00"));
    // 86·2.50 + 1,920·1.25 + 300·10 = 215 + 2,400 + 3,000
    costs(&gpt_4o, Usage::of(2_006, 1_920, 300), "0.005615");
    // Reasoning is inside the completion: 80·15 + 2,305·7.50 + 2,535·60 = 1,200 + 17,287.5 + 152,100
    let o1 = Price::flat(three("15.00", "7.50", "60.00"));
    costs(&o1, with(Usage::of(2_385, 2_305, 2_535), UsageDetails { reasoning: 2_241, ..NONE }), "0.1705875");
}

#[test]
fn openai_bills_cache_writes_and_long_prompts() {
    let base = Rates { cache_write: usd("12.50"), cache_write_long: usd("12.50"), ..three("10", "1", "50") };
    let long = Rates { cache_write: usd("25"), cache_write_long: usd("25"), ..three("20", "2", "75") };
    let price = above(272_000, base, long);
    let usage =
        |prompt| with(Usage::of(prompt, 200_000, 1_000), UsageDetails { cache_write: 60_000, ..NONE });
    // 12,000·10 + 200,000·1 + 60,000·12.50 + 1,000·50 = 120,000 + 200,000 + 750,000 + 50,000
    costs(&price, usage(272_000), "1.12");
    // 12,001·20 + 200,000·2 + 60,000·25 + 1,000·75 = 240,020 + 400,000 + 1,500,000 + 75,000
    costs(&price, usage(272_001), "2.21502");
}

#[test]
fn openai_bills_audio() {
    let text = three("2.50", "2.50", "10.00");
    let price = Price::flat(Rates { audio_input: usd("40"), audio_output: usd("80"), ..text });
    // 313·2.50 + 476·40 + 9·10 + 23·80 = 782.5 + 19,040 + 90 + 1,840
    let audio = UsageDetails { audio_input: 476, audio_output: 23, ..NONE };
    costs(&price, with(Usage::of(789, 0, 32), audio), "0.0217525");
}

#[test]
fn anthropic_bills_a_session_with_and_without_its_cache() {
    let opus =
        Rates { cache_write: usd("6.25"), cache_write_long: usd("10"), ..three("5.00", "0.50", "25.00") };
    let opus = Price::flat(opus);
    // 50,000·5 + 15,000·25 = 250,000 + 375,000
    costs(&opus, Usage::of(50_000, 0, 15_000), "0.625");
    // 10,000·5 + 40,000·0.50 + 15,000·25 = 50,000 + 20,000 + 375,000
    costs(&opus, Usage::of(50_000, 40_000, 15_000), "0.445");
    // Writes at 1.25 and at 2 × input: 1,000·5 + 4,000·6.25 + 2,000·10 + 100·25 = 5,000 + 25,000 + 20,000 + 2,500
    let written = UsageDetails { cache_write: 4_000, cache_write_long: 2_000, ..NONE };
    costs(&opus, with(Usage::of(7_000, 0, 100), written), "0.0525");
}

#[test]
fn anthropic_bills_prompts_above_200_000_tokens_whole_at_the_higher_rates() {
    let base = Rates { cache_write: usd("3.75"), cache_write_long: usd("6"), ..three("3", "0.30", "15") };
    let long = Rates { cache_write: usd("7.50"), cache_write_long: usd("12"), ..three("6", "0.60", "22.50") };
    let sonnet = above(200_000, base, long);
    let usage = |prompt| {
        let details = UsageDetails { cache_write: 50_000, cache_write_long: 20_000, ..NONE };
        with(Usage::of(prompt, 100_000, 2_000), details)
    };
    // 30,000·3 + 100,000·0.30 + 50,000·3.75 + 20,000·6 + 2,000·15 = 90,000 + 30,000 + 187,500 + 120,000 + 30,000
    costs(&sonnet, usage(200_000), "0.4575");
    // 30,001·6 + 100,000·0.60 + 50,000·7.50 + 20,000·12 + 2,000·22.50
    // = 180,006 + 60,000 + 375,000 + 240,000 + 45,000
    costs(&sonnet, usage(200_001), "0.900006");
}

#[test]
fn google_bills_thoughts_as_output_and_long_prompts_at_two_rates() {
    let pro = above(200_000, three("1.25", "0.125", "10"), three("2.50", "0.25", "15"));
    // 1,500·1.25 + 10,000·0.125 + 11,000·10 = 1,875 + 1,250 + 110,000
    let thoughts = UsageDetails { reasoning: 10_000, ..NONE };
    costs(&pro, with(Usage::of(11_500, 10_000, 11_000), thoughts), "0.113125");
    // 100,000·1.25 + 50,000·10 = 125,000 + 500,000
    costs(&pro, Usage::of(100_000, 0, 50_000), "0.625");
    // 300,000·2.50 = 750,000
    costs(&pro, Usage::of(300_000, 0, 0), "0.75");
}

#[test]
fn google_bills_audio_apart_from_text_and_images() {
    let flash = Price::flat(Rates { audio_input: usd("1.00"), ..three("0.30", "0.03", "2.50") });
    // 25 tokens a second: 1,500·1.00 + 258·0.30 + 500·2.50 = 1,500 + 77.4 + 1,250
    let minute = UsageDetails { audio_input: 1_500, images: 1, ..NONE };
    costs(&flash, with(Usage::of(1_758, 0, 500), minute), "0.0028274");
}

#[test]
fn perplexity_bills_each_request_on_top() {
    let sonar = Price::flat(Rates { request: usd("0.005"), ..three("1", "1", "1") });
    // 9·1 + 411·1 + 5,000 = 5,420
    costs(&sonar, Usage::of(9, 0, 411), "0.00542");
    // Reasoning at a rate below the output's: 33·2 + 7,163·8 + 74,684·3 = 66 + 57,304 + 224,052
    let research = Price::flat(Rates { reasoning: usd("3"), ..three("2", "2", "8") });
    let thought = UsageDetails { reasoning: 74_684, ..NONE };
    costs(&research, with(Usage::of(33, 0, 81_847), thought), "0.281422");
}

#[test]
fn images_are_billed_each_on_top_of_their_tokens() {
    // 3·0.001315 + 0.002 + (1,000·1 + 10·2) / 10⁶ = 0.003945 + 0.002 + 0.00102
    let rates = Rates { image: usd("0.001315"), request: usd("0.002"), ..three("1", "1", "2") };
    let three_images = UsageDetails { images: 3, ..NONE };
    costs(&Price::flat(rates), with(Usage::of(1_000, 0, 10), three_images), "0.006965");
}
