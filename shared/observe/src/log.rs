//! The log: lines on standard error, in one of two formats, with a replaceable filter.

mod lines;

use std::{
    fmt,
    io::{self, IsTerminal},
    mem,
    sync::OnceLock,
    time::SystemTime,
};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::ValueEnum;
use lines::LOG;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Registry,
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, Writer},
        layer,
        time::FormatTime,
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use crate::traces;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for machines.
    Json,
}

/// Words that are levels if they are the whole filter.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The filter of log lines, once the log has started.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging to standard error. `filter` is in the syntax of `RUST_LOG`.
pub fn start(chosen: LogFormat, filter: &str) -> Result<(), String> {
    let (filter, handle) = reload::Layer::new(read_filter(filter)?);
    // A second start fails below.
    let _ = FILTER.set(handle);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match chosen {
        LogFormat::Text => {
            let lines = layer().with_timer(UtcTime).with_writer(|| &LOG).with_target(false);
            if io::stderr().is_terminal() {
                registry.with(lines).try_init()
            } else {
                registry.with(lines.with_ansi(false).fmt_fields(PlainFields)).try_init()
            }
        }
        LogFormat::Json => {
            let object = WithTrace(format::format().json().flatten_event(true).with_timer(UtcTime));
            registry.with(layer().json().event_format(object).with_writer(|| &LOG)).try_init()
        }
    };
    started.map_err(|e| e.to_string())?;
    LOG.start().map_err(|e| e.to_string())
}

/// Reads a filter. A single word must be a level: a misspelled one would count as a target, and the log would stay
/// empty.
fn read_filter(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let is_plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match words.filter(is_plain).find(|word| !is_level(word)) {
        Some(word) => {
            let levels = LEVELS.join(", ");
            Err(format!(
                "'{word}' is not a level ({levels}); to filter a part of the program, use TARGET=LEVEL"
            ))
        }
        None => EnvFilter::try_new(text).map_err(|e| format!("'{text}' is not a valid filter: {e}")),
    }
}

/// Returns the filter in use; empty before the log has started.
pub fn filter() -> String {
    FILTER.get().and_then(|handle| handle.with_current(ToString::to_string).ok()).unwrap_or_default()
}

/// Replaces the filter. On an error, nothing changes.
pub fn replace_filter(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("send a level or a filter".to_owned());
    }
    let (filter, handle) = (read_filter(text)?, FILTER.get().ok_or("the log has not started")?);
    handle.reload(filter).map_err(|e| e.to_string())
}

/// Waits a bounded time for the last lines of the log.
pub fn flush() {
    LOG.flush();
}

/// JSON lines with the ids of the current span, in the form that log collectors expect.
struct WithTrace<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some((trace, span)) = traces::current_ids() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let open = line.trim_end().strip_suffix('}').ok_or(fmt::Error)?;
        writeln!(writer, r#"{open},"trace_id":"{trace}","span_id":"{span}"}}"#)
    }
}

/// Writes a line's time in UTC with microseconds, at a third of the cost of the default.
struct UtcTime;

impl FormatTime for UtcTime {
    #[expect(clippy::disallowed_methods, reason = "log lines show microseconds, and nothing depends on them")]
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str(&DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

/// Fields in the default format, without colours, and without formatting machinery for numbers and plain text.
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = PlainLine { writer, before: "", written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

/// The fields of a line that is being written.
struct PlainLine<'writer> {
    writer: Writer<'writer>,
    /// The separator in front of the next field.
    before: &'static str,
    written: fmt::Result,
}

impl PlainLine<'_> {
    fn field(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.written.is_ok() {
            self.written = self.name(field).and_then(|()| value(&mut self.writer));
        }
    }

    fn name(&mut self, field: &Field) -> fmt::Result {
        self.writer.write_str(mem::replace(&mut self.before, " "))?;
        if field.name() == "message" {
            return Ok(());
        }
        self.writer.write_str(field.name())?;
        self.writer.write_str("=")
    }
}

impl Visit for PlainLine<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field, |writer| writer.write_str(itoa::Buffer::new().format(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let plain = value.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\');
        self.field(field, |writer| {
            if !plain || field.name() == "message" {
                return write!(writer, "{value:?}");
            }
            writer.write_str("\"")?;
            writer.write_str(value)?;
            writer.write_str("\"")
        });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, |writer| write!(writer, "{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_a_word_that_is_no_level_is_refused_by_name() {
        for filter in
            ["info", "DEBUG", "warn,inference_gateway=debug", "inference_gateway_holds::keys=trace", "off"]
        {
            read_filter(filter).unwrap_or_else(|e| panic!("{filter}: {e}"));
        }
        for (filter, named) in [("inof", "'inof'"), ("info,keys", "'keys'"), ("shared=loud", "'shared=loud'")]
        {
            let refused = read_filter(filter).unwrap_err();
            assert!(refused.starts_with(named), "{refused}");
        }
    }
}
