//! Metrics of the key-service, as `/metrics` and `docs/observe.md` explain them.

use shared_observe::metrics::{CALLS, Family, SECONDS};

pub const FAMILIES: &[Family] = &[
    Family::gauge("keyservice_sessions", "sessions of gateways that are open"),
    Family::histogram("keyservice_frame_calls", CALLS, "calls in a frame, received"),
    Family::counter("keyservice_denials_total", "refusals").labelled(),
    Family::counter("keyservice_billed_nanousd_total", "money billed").labelled(),
    Family::counter(
        "keyservice_shortfall_nanousd_total",
        "cost beyond what was left, or generated after a stream was cut, which was not billed",
    )
    .labelled(),
    Family::gauge("keyservice_held_nanousd", "money held by requests in flight, of all accounts"),
    Family::gauge("keyservice_accounts_with_holds", "accounts that have, or lately had, requests in flight"),
    Family::counter("keyservice_expired_holds_total", "holds that ended without a capture"),
    Family::gauge(
        "keyservice_sweeper_lag_seconds",
        "longest time for which the leases of an account with holds were not looked at",
    ),
    Family::histogram(
        "keyservice_store_duration_seconds",
        SECONDS,
        "seconds of the store: `ledger` (holds and bills of an account, until they are durable); `script` (commits to Redis), `command` (other calls to it); `write`, `read` (SQLite)",
    )
    .labelled(),
    Family::gauge("keyservice_ready", "1 while the key-service is ready, as `/readyz` says"),
    Family::gauge("keyservice_store_up", "1 while the store answers; looked at every second"),
    Family::gauge(
        "keyservice_store_used_ratio",
        "share of the store's room that is used: of the memory of the fullest Redis, or of the disk under the SQLite file; 0 if unknown",
    ),
    Family::gauge(
        "keyservice_store_file_gone",
        "1 while the SQLite file is removed or replaced under the process: not ready, nothing is written",
    ),
    Family::counter(
        "keyservice_store_conflicts_total",
        "commits that were decided again, as another process had changed what they were decided by",
    ),
    Family::counter(
        "keyservice_store_damaged_records_total",
        "times that a record could not be read: the log names it; what needs it is refused",
    ),
    Family::counter(
        "keyservice_store_failovers_total",
        "replicas of Redis that took over; charges and other changes that one had not received are lost",
    ),
    Family::counter(
        "keyservice_store_forgot_total",
        "times that Redis had forgotten writes of seconds that it had confirmed",
    ),
    Family::counter(
        "keyservice_webhook_attempts_total",
        "attempts to deliver an event: `delivered`, `refused` (another status), `no_answer`",
    )
    .labelled(),
    Family::counter(
        "keyservice_webhooks_disabled_total",
        "webhooks that were disabled since an event could not be delivered for a day, or 410 was answered",
    ),
];
