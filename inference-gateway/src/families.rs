//! Metrics of the gateway, as `/metrics` and `docs/observe.md` explain them.

use shared_observe::metrics::{CALLS, Family, SECONDS, TOKENS};

pub const FAMILIES: &[Family] = &[
    Family::counter("gateway_http_requests_total", "answers").labelled(),
    Family::gauge("gateway_inflight_requests", "requests under way"),
    Family::histogram(
        "gen_ai_server_request_duration",
        SECONDS,
        "seconds of a generation, to its settlement",
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
    Family::counter("gen_ai_client_inference_usage_reasoning_output_tokens_total", "tokens generated that are reasoning").labelled(),
    Family::gauge("gateway_ready", "1 while a key-service answers, as `/readyz`; 0 otherwise, and once the process stops"),
    Family::gauge(
        "gateway_key_service_sessions",
        "sessions with key-services, one for each worker and key-service: `open`, `connecting`",
    )
    .labelled(),
    Family::gauge(
        "gateway_upstreams",
        "upstreams of the catalogue in use: `serving`, `set_aside` (until an answer), `drained` (by command)",
    )
    .labelled(),
    Family::counter("gateway_upstream_errors_total", "failures of upstreams").labelled(),
    Family::counter(
        "gateway_upstreams_set_aside_total",
        "upstreams that failed and are left alone for a while",
    ),
    Family::counter("gateway_client_disconnects_total", "clients that left before the end"),
    Family::counter(
        "gateway_usage_estimates_total",
        "bills that are estimates, since usage was not reported, or not all of it",
    ),
    Family::counter(
        "gateway_usage_beyond_catalogue_total",
        "answers with reports beyond the catalogue's bounds; billed as reported",
    ),
    Family::counter(
        "gateway_usage_false_reports_total",
        "answers with reports of more than four times what the catalogue allows and a million tokens, or of a false total; such counts are not billed",
    ),
    Family::counter(
        "gateway_answers_of_other_models_total",
        "answers of another model than the upstream was asked for; billed at the vendor's own cost where that is reported and higher",
    ),
    Family::counter(
        "gateway_upstream_oddities_total",
        "answers in a form that no API documents, by its kind; what could be read was given out, the rest was skipped",
    )
    .labelled(),
    Family::counter(
        "gateway_empty_answers_total",
        "answers that reported output and showed none; billed as reported",
    ),
    Family::counter(
        "gateway_prompts_not_counted_in_time_total",
        "prompts refused with 503, since their exact count was needed and did not come within 10 s",
    ),
    Family::counter(
        "gateway_prompts_without_room_total",
        "prompts refused, since the memory for prompts was taken",
    ),
    Family::counter(
        "gateway_answers_not_given_out_total",
        "answers and events that are not given out: `too_large` and `no_room` (whole answers; billed), `calls` (more calls of tools, or longer names, than are given out; billed), `nested` (nested too deeply to pass on; billed), `event` (a stream ended, and is billed), `too_long` (an event was left out, and its stream went on), `unread` (a stream ended whose client took nothing)",
    )
    .labelled(),
    Family::counter(
        "gateway_account_share_used_up_total",
        "chat requests refused, since their account has its share in flight",
    ),
    Family::histogram("gateway_frame_calls", CALLS, "calls in a frame, sent"),
    Family::counter(
        "gateway_silent_frames_total",
        "frames that a key-service did not answer in time, and that went to another one too",
    ),
    Family::counter("gateway_renewals_failed_total", "leases that could not be renewed at once"),
    Family::counter("gateway_doubtful_holds_total", "authorizations of unknown outcome"),
    Family::counter(
        "gateway_settle_failures_total",
        "captures and releases that have to be tried again",
    ),
    Family::gauge("gateway_spool_captures", "captures in the spool"),
    Family::gauge(
        "gateway_captures_in_memory_alone",
        "captures that no key-service has confirmed and no spool has: lost if the process ends",
    ),
    Family::counter(
        "gateway_spool_write_failures_total",
        "attempts to write a capture to the spool that failed",
    ),
    Family::gauge(
        "gateway_spool_oldest_timestamp_seconds",
        "time since which the oldest capture waits in the spool; 0 while none waits",
    ),
];
