//! The gateway's metrics, with their explanations for `/metrics` and `docs/observe.md`.

use shared_observe::metrics::{CALLS, Family, SECONDS, TOKENS};

pub const FAMILIES: &[Family] = &[
    Family::counter("gateway_http_requests_total", "HTTP requests answered").labelled(),
    Family::gauge("gateway_inflight_requests", "requests in flight"),
    Family::histogram(
        "gen_ai_server_request_duration",
        SECONDS,
        "seconds from a request to the settlement of its generation",
    )
    .labelled(),
    Family::histogram("gen_ai_server_time_to_first_token", SECONDS, "seconds to the first token of a stream")
        .labelled(),
    Family::histogram(
        "gen_ai_server_time_per_output_token",
        SECONDS,
        "seconds for each further token of a stream",
    )
    .labelled(),
    Family::histogram(
        "gen_ai_client_token_usage",
        TOKENS,
        "tokens of a generation: `input`, `cached_input`, `output`",
    )
    .labelled(),
    Family::counter("gen_ai_client_inference_usage_input_tokens_total", "tokens of prompts").labelled(),
    Family::counter("gen_ai_client_inference_usage_output_tokens_total", "tokens generated").labelled(),
    Family::counter("gen_ai_client_inference_usage_cache_read_input_tokens_total", "tokens of prompts that upstreams had cached").labelled(),
    Family::counter("gen_ai_client_inference_usage_cache_write_input_tokens_total", "tokens of prompts that upstreams wrote to their caches").labelled(),
    Family::counter("gen_ai_client_inference_usage_reasoning_output_tokens_total", "generated tokens that are reasoning").labelled(),
    Family::gauge(
        "gateway_ready",
        "1 while `/readyz` reports the gateway as ready: a key-service answers, and the process is not \
         stopping; otherwise 0",
    ),
    Family::gauge(
        "gateway_key_service_sessions",
        "sessions with key-services, one for each worker and key-service: `open`, `connecting`",
    )
    .labelled(),
    Family::gauge(
        "gateway_upstreams",
        "upstreams of the catalogue in use: `serving`, `set_aside` (until it answers again), `drained` (by command)",
    )
    .labelled(),
    Family::counter("gateway_upstream_errors_total", "failures of upstreams").labelled(),
    Family::counter(
        "gateway_upstreams_set_aside_total",
        "times that an upstream was set aside for a while after failures",
    ),
    Family::counter("gateway_client_disconnects_total", "clients that left before the end"),
    Family::counter(
        "gateway_usage_estimates_total",
        "bills that are estimates because usage was not reported, or only in part",
    ),
    Family::counter(
        "gateway_usage_beyond_catalogue_total",
        "answers whose reported usage exceeds the catalogue's limits; billed as reported",
    ),
    Family::counter(
        "gateway_usage_false_reports_total",
        "answers whose reported counts exceed both four times the catalogue's limits and a million tokens, or contradict their total; such counts are not billed",
    ),
    Family::counter(
        "gateway_answers_of_other_models_total",
        "answers from a model other than the requested model; billed at the vendor's own cost if that cost is \
         reported and higher",
    ),
    Family::counter(
        "gateway_upstream_oddities_total",
        "answers in a form that no API documents, by kind of deviation; what could be read was passed on, the rest skipped",
    )
    .labelled(),
    Family::counter(
        "gateway_empty_answers_total",
        "answers that reported output but contained none; billed as reported",
    ),
    Family::counter(
        "gateway_prompts_not_counted_in_time_total",
        "prompts refused with 503 because counting their tokens exactly was necessary and took longer than 10 s",
    ),
    Family::counter(
        "gateway_prompts_without_room_total",
        "prompts refused because the memory for prompts was full",
    ),
    Family::counter(
        "gateway_answers_not_given_out_total",
        "answers and events not passed on: `too_large` and `no_room` (whole answers; billed), `calls` (too many tool calls, or too long names; billed), `nested` (nested too deeply; billed), `event` (an event that ended its stream; billed), `too_long` (an event that was left out of its stream), `unread` (a stream ended because its client read nothing)",
    )
    .labelled(),
    Family::counter(
        "gateway_account_share_used_up_total",
        "chat requests refused because their account already had its maximum number in flight",
    ),
    Family::histogram("gateway_frame_calls", CALLS, "calls in each frame sent to a key-service"),
    Family::counter(
        "gateway_silent_frames_total",
        "frames that a key-service did not answer in time, and that were therefore also sent to another key-service",
    ),
    Family::counter("gateway_renewals_failed_total", "leases that could not be renewed at the first attempt"),
    Family::counter("gateway_doubtful_holds_total", "authorizations with an unknown outcome"),
    Family::counter(
        "gateway_settle_failures_total",
        "captures and releases that must be retried",
    ),
    Family::gauge("gateway_spool_captures", "captures in the spool"),
    Family::gauge(
        "gateway_captures_in_memory_alone",
        "captures that are neither confirmed by a key-service nor in the spool: lost if the process ends",
    ),
    Family::counter(
        "gateway_spool_write_failures_total",
        "failed attempts to write a capture to the spool",
    ),
    Family::gauge(
        "gateway_spool_oldest_timestamp_seconds",
        "time of the oldest capture in the spool; 0 while the spool is empty",
    ),
];
