//! Logs, metrics and probes: set up once, the same in every process.

mod common;
mod counted;
mod family;
mod lines;
mod machine;

use std::{
    fmt,
    io::{self, IsTerminal},
    mem,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::ValueEnum;
use lines::LOG;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::time::sleep;
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

pub use self::{
    common::{count_reload, show_catalogue},
    counted::Counted,
    family::Family,
};
use super::traces;

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line, for machines.
    Json,
}

/// Upper bounds of the buckets of durations, in seconds: from a cache hit to a long generation.
pub const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Upper bounds of the buckets of token counts, as the GenAI semantic conventions advise.
pub const TOKENS: &[f64] =
    &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
/// Upper bounds of the buckets of batch sizes.
pub const CALLS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Words of a filter that are levels by themselves.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The filter of log lines, once the log has started.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging to standard error; `filter` in the syntax of `RUST_LOG`.
pub fn log(chosen: LogFormat, filter: &str) -> Result<(), String> {
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

/// Reads a filter. A word by itself has to be a level: a level that is misspelled would be the name of a target, and leave
/// the log empty.
fn read_filter(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let is_plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match words.filter(is_plain).find(|word| !is_level(word)) {
        Some(word) => {
            let levels = LEVELS.join(", ");
            Err(format!("'{word}' is no level ({levels}); name a part of the program as TARGET=LEVEL"))
        }
        None => EnvFilter::try_new(text).map_err(|e| format!("'{text}' is no filter: {e}")),
    }
}

/// The filter in use; empty before the log has started.
pub fn filter() -> String {
    FILTER.get().and_then(|handle| handle.with_current(ToString::to_string).ok()).unwrap_or_default()
}

/// Replaces the filter, or changes nothing and says why.
pub fn replace_filter(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("send a level or a filter".to_owned());
    }
    let (filter, handle) = (read_filter(text)?, FILTER.get().ok_or("the log has not started")?);
    handle.reload(filter).map_err(|e| e.to_string())
}

/// Waits for the last lines of the log, within a bound.
pub fn flush_log() {
    LOG.flush();
}

/// Lines of JSON that name the span that they were written in, as log collectors look for it.
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

/// The time of a line in UTC, to the microsecond, at a third of the default's cost.
struct UtcTime;

impl FormatTime for UtcTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "lines of the log tell microseconds, which nothing decides by"
    )]
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        line.write_str(&DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

/// Fields in the default format, but without handling of colours, and with no formatting machinery for numbers and
/// plain texts.
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut line = PlainLine { writer, before: "", written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

/// The fields of a line while written.
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

/// Time between two rounds of the upkeep of metrics: at a thousand requests a second, a histogram keeps some hundred kilobytes of
/// samples meanwhile.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Metrics of a program.
pub struct Exported {
    /// Name of the program.
    pub program: &'static str,
    /// Families beside those of every program.
    pub families: &'static [&'static [Family]],
}

impl Exported {
    fn all(&self) -> impl Iterator<Item = &'static Family> {
        common::COMMON.iter().chain(self.families.iter().copied().flatten())
    }
}

/// The metrics of a process, collected.
pub struct Metrics {
    handle: PrometheusHandle,
    exported: &'static Exported,
}

impl Metrics {
    /// Starts collecting metrics; once a process, inside a runtime.
    ///
    /// Histograms keep every sample until folded into buckets. A task folds regularly, so that memory is flat even
    /// without a scraper.
    pub fn start(exported: &'static Exported) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for family in exported.all() {
            builder = family.configure(builder)?;
        }
        let handle = builder.install_recorder()?;
        for family in exported.all() {
            family.register();
        }
        common::show_build(exported.program);
        let folded = handle.clone();
        tokio::spawn(async move {
            loop {
                sleep(UPKEEP_EVERY).await;
                folded.run_upkeep();
            }
        });
        Ok(Self { handle, exported })
    }

    /// The text that a scraper reads: every family, also those without a series.
    pub fn render(&self) -> String {
        let mut text = self.handle.render();
        for family in self.exported.all() {
            family.declare(&mut text);
        }
        machine::render(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_a_word_that_is_no_level_is_refused_by_name() {
        for filter in
            ["info", "DEBUG", "warn,inference_gateway=debug", "inference_gateway::keys=trace", "off"]
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
