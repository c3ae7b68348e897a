//! The metrics of the key-service, with the explanations for `/metrics` and `docs/observe.md`.

use shared_observe::metrics::{CALLS, Family, SECONDS};

pub const FAMILIES: &[Family] = &[
    Family::gauge("keyservice_sessions", "open sessions of gateways"),
    Family::histogram("keyservice_frame_calls", CALLS, "calls in each frame received from a gateway"),
    Family::counter("keyservice_denials_total", "refusals").labelled(),
    Family::counter(
        "keyservice_operator_denials_total",
        "requests to the operator API whose key was refused, by the code of the error",
    )
    .labelled(),
    Family::counter("keyservice_billed_nanousd_total", "money billed").labelled(),
    Family::counter(
        "keyservice_shortfall_nanousd_total",
        "cost that was not billed, because it exceeded what was left to spend or arose after a stream was cut",
    )
    .labelled(),
    Family::gauge("keyservice_held_nanousd", "money held by requests in flight, over all accounts"),
    Family::gauge("keyservice_accounts_with_holds", "accounts that have or recently had requests in flight"),
    Family::counter(
        "keyservice_expired_holds_total",
        "holds that expired because neither a capture nor a release came in time",
    ),
    Family::gauge(
        "keyservice_sweeper_lag_seconds",
        "of all accounts with holds, the longest time since an account's leases were last checked",
    ),
    Family::histogram(
        "keyservice_store_duration_seconds",
        SECONDS,
        "seconds that the store takes: `ledger` (holds and bills of an account, until they are durable); `script` (commits to Redis), `command` (other Redis calls); `write`, `read` (SQLite)",
    )
    .labelled(),
    Family::gauge(
        "keyservice_ready",
        "1 while `/readyz` reports the key-service as ready; 0.5 while a part of the store is missing",
    ),
    Family::gauge(
        "keyservice_store_up",
        "1 while the store answers, 0.5 while only a part of it answers; checked every second",
    ),
    Family::gauge(
        "keyservice_store_used_ratio",
        "used share of the store's space: the memory of the fullest Redis, or the disk under the SQLite file; 0 if unknown",
    ),
    Family::gauge(
        "keyservice_store_file_gone",
        "1 while the SQLite file is removed or replaced although the process uses it: the process is not ready and writes nothing",
    ),
    Family::counter(
        "keyservice_store_conflicts_total",
        "commits that had to be decided again because another process had changed their records",
    ),
    Family::counter(
        "keyservice_store_damaged_records_total",
        "failed reads of damaged records: the log names the record; requests that need it are refused",
    ),
    Family::counter(
        "keyservice_store_failovers_total",
        "replicas of Redis that took over; charges and other changes that the replica had not received are lost",
    ),
    Family::counter(
        "keyservice_store_forgot_total",
        "number of times that Redis lost its last seconds of confirmed writes",
    ),
    Family::counter(
        "keyservice_webhook_attempts_total",
        "attempts to deliver an event: `delivered`, `refused` (another status), `no_answer`",
    )
    .labelled(),
    Family::counter(
        "keyservice_webhooks_disabled_total",
        "webhooks disabled because an event could not be delivered for a day, or the answer was 410",
    ),
    Family::counter("keyservice_alerts_raised_total", "messages of alerts, sent or queued, by rule").labelled(),
    Family::counter(
        "keyservice_alert_findings_suppressed_total",
        "findings that an alert did not report because it had reported their subject within its interval, or too many subjects",
    ),
    Family::counter(
        "keyservice_alert_attempts_total",
        "attempts to send a message of an alert, by channel: `sent`, `refused` (another status), `no_answer`",
    )
    .labelled(),
    Family::counter(
        "keyservice_alert_messages_dropped_total",
        "messages of alerts that were refused for good, could not be sent for a day, or found 64 others waiting",
    ),
];
