//! JSON lines of the journal and of usage. Scripts rely on the names: add names, but never rename one.

use serde::Serialize;
use shared::{
    generation::{FinishReason, ModelApi},
    ids::{GenerationId, GroupId, KeyId, RequestId},
    money::NanoUsd,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
};

use domain::ledger::{Entry, Payer, Settlement};
use key_service_store::store::{JournalEntry, UsageLine};

#[derive(Serialize)]
pub(crate) struct EntryLine<'a> {
    seq: u64,
    /// Null for a late capture, which is not the bill of its generation.
    generation_id: Option<GenerationId>,
    /// The generation of a late capture; null otherwise.
    late_generation_id: Option<GenerationId>,
    #[serde(flatten)]
    payer: PayerJson<'a>,
    #[serde(flatten)]
    tokens: BilledTokens,
    cost: NanoUsd,
    /// Null if the catalogue does not have the upstream's prices.
    upstream_cost: Option<NanoUsd>,
    charged: NanoUsd,
    shortfall: NanoUsd,
    estimated: bool,
    ending: &'static str,
    at: Timestamp,
    charged_change: NanoUsd,
    key_used: NanoUsd,
    /// Null if the gateway did not report how the request was sent. The fields below are then null too.
    dialect: Option<ModelApi>,
    stream: Option<bool>,
    user: Option<&'a str>,
    request_id: Option<RequestId>,
    upstream: Option<&'a str>,
    finish_reason: Option<FinishReason>,
    authorized_ms: Option<u64>,
    first_token_ms: Option<u64>,
    latency_ms: Option<u64>,
}

/// Counters for one payer and one day.
#[derive(Serialize)]
pub(crate) struct UsageLineJson<'a> {
    day: String,
    #[serde(flatten)]
    payer: PayerJson<'a>,
    requests: u64,
    #[serde(flatten)]
    tokens: BilledTokens,
    charged: NanoUsd,
    /// Null if no upstream cost is known. The margin is then null too.
    upstream_cost: Option<NanoUsd>,
    margin: Option<NanoUsd>,
}

/// Key, groups and model. Groups are null if the key has no group.
#[derive(Serialize)]
struct PayerJson<'a> {
    key_id: KeyId,
    group_id: Option<GroupId>,
    parent_group_id: Option<GroupId>,
    model: &'a str,
}

#[derive(Serialize)]
struct BilledTokens {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    cache_write_tokens: u64,
    cache_write_long_tokens: u64,
    audio_input_tokens: u64,
    images: u64,
    reasoning_tokens: u64,
    audio_output_tokens: u64,
}

impl<'a> EntryLine<'a> {
    /// Creates the line for an entry. `seq` is the entry's exported number.
    pub(crate) fn of(entry: &'a JournalEntry, seq: u64) -> Self {
        let JournalEntry { generation, entry: Entry { settlement, delta, used_after }, .. } = entry;
        let Settlement { payer, origin, course, .. } = settlement;
        let Settlement { usage, cost, upstream_cost, charged, ending, estimated, at, .. } = *settlement;
        let (origin, course) = (origin.as_deref(), course.as_deref());
        Self {
            seq,
            generation_id: Some(*generation).filter(|_| ending.is_bill()),
            late_generation_id: Some(*generation).filter(|_| !ending.is_bill()),
            payer: payer.into(),
            tokens: usage.into(),
            cost,
            upstream_cost,
            charged,
            shortfall: settlement.shortfall(),
            estimated,
            ending: ending.as_str(),
            at,
            charged_change: *delta,
            key_used: *used_after,
            dialect: origin.map(|origin| origin.api),
            stream: origin.map(|origin| origin.stream),
            user: settlement.user(),
            request_id: settlement.request(),
            upstream: settlement.upstream(),
            finish_reason: course.and_then(|course| course.finish_reason),
            authorized_ms: course.and_then(|course| course.authorized_ms),
            first_token_ms: course.and_then(|course| course.first_token_ms),
            latency_ms: course.and_then(|course| course.latency_ms),
        }
    }
}

impl<'a> UsageLineJson<'a> {
    pub(crate) fn of(UsageLine { day, payer, counts }: &'a UsageLine) -> Self {
        let (counts, margin) = (&counts.of, counts.of.margin());
        Self {
            day: day.to_string(),
            payer: payer.into(),
            requests: counts.requests,
            tokens: counts.usage.into(),
            charged: counts.charged,
            upstream_cost: margin.map(|_| counts.upstream_cost),
            margin,
        }
    }
}

impl<'a> From<&'a Payer> for PayerJson<'a> {
    fn from(Payer { key, model, groups: [group_id, parent_group_id] }: &'a Payer) -> Self {
        Self { key_id: *key, group_id: *group_id, parent_group_id: *parent_group_id, model }
    }
}

impl From<Usage> for BilledTokens {
    fn from(Usage { prompt, cached, completion, details }: Usage) -> Self {
        let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
            details;
        Self {
            prompt_tokens: prompt,
            cached_tokens: cached,
            completion_tokens: completion,
            cache_write_tokens: cache_write,
            cache_write_long_tokens: cache_write_long,
            audio_input_tokens: audio_input,
            images,
            reasoning_tokens: reasoning,
            audio_output_tokens: audio_output,
        }
    }
}
