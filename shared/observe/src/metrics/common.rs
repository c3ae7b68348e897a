//! Metrics of every program: its version, its catalogue, and its connections.

use shared::clock::{Clock, System};

use super::family::Family;

const DONE: &str = "done";
const REFUSED: &str = "refused";

pub(super) const COMMON: &[Family] = &[
    Family::gauge("faregate_build_info", "always 1; the labels name the program and its version").labelled(),
    Family::gauge(
        "faregate_catalogue_version",
        "checksum (CRC-32) of the catalogue in use; processes with the same catalogue show the same number",
    ),
    Family::gauge(
        "faregate_catalogue_loaded_timestamp_seconds",
        "time at which the catalogue in use was read",
    ),
    Family::gauge(
        "faregate_certificate_not_after_timestamp_seconds",
        "expiry of a certificate in use: of a chain the earliest, of several authorities the latest",
    )
    .labelled(),
    Family::counter("faregate_reloads_total", "reloads at SIGHUP: `done`, `refused` (nothing changed)")
        .labelled(),
    Family::counter(
        "faregate_usage_contradictions_total",
        "answers whose reported parts (cached, written, audio, reasoning) exceed the reported total; billed as the \
         most expensive parts that fit into the total",
    ),
    Family::counter(
        "faregate_spans_dropped_total",
        "spans that did not reach their receiver: `queue_full`, `export_failed`",
    )
    .labelled(),
    Family::counter(
        "http_connections_evicted_total",
        "connections closed to make room for a new one: `unauthenticated`, `authenticated`",
    )
    .labelled(),
    Family::counter(
        "http_connections_overdue_total",
        "connections closed because the client was too slow: `head`, `idle`, `unread`",
    )
    .labelled(),
    Family::counter(
        "log_lines_dropped_total",
        "log lines dropped because standard error was blocked and 1 MiB of lines was waiting",
    ),
];

/// Shows the program's version in a metric, and makes the counters of reloads start at zero.
pub(super) fn show_build(program: &'static str) {
    metrics::gauge!("faregate_build_info", "program" => program, "version" => env!("CARGO_PKG_VERSION"))
        .set(1);
    for result in [DONE, REFUSED] {
        reloads(result).increment(0);
    }
}

/// Shows in a metric the checksum of the catalogue that is now in use.
pub fn show_catalogue(checksum: u32) {
    metrics::gauge!("faregate_catalogue_version").set(checksum);
    #[expect(clippy::cast_precision_loss, reason = "a metric")]
    let now = System.now().seconds() as f64;
    metrics::gauge!("faregate_catalogue_loaded_timestamp_seconds").set(now);
}

/// Counts a reload by SIGHUP as done or as refused.
pub fn count_reload(is_done: bool) {
    reloads(if is_done { DONE } else { REFUSED }).increment(1);
}

fn reloads(result: &'static str) -> metrics::Counter {
    metrics::counter!("faregate_reloads_total", "result" => result)
}
