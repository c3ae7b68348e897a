//! Metrics of a process: families, each declared once, and the text for a scraper.

mod common;
mod counted;
mod family;
mod machine;

use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::time::sleep;

pub use self::{
    common::{count_reload, show_catalogue},
    counted::Counted,
    family::Family,
};

/// Upper bounds of duration buckets in seconds, from a cache hit to a long generation.
pub const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];
/// Upper bounds of token buckets, as recommended by the GenAI semantic conventions.
pub const TOKENS: &[f64] =
    &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];
/// Upper bounds of batch-size buckets.
pub const CALLS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Time between two rounds of upkeep. At a thousand requests per second, a histogram collects a few hundred kilobytes
/// of samples in between.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

pub struct Exported {
    pub program: &'static str,
    /// Families in addition to those of every program.
    pub families: &'static [&'static [Family]],
}

impl Exported {
    fn all(&self) -> impl Iterator<Item = &'static Family> {
        common::COMMON.iter().chain(self.families.iter().copied().flatten())
    }
}

/// Metrics of a process, collected for a scraper.
pub struct Metrics {
    handle: PrometheusHandle,
    exported: &'static Exported,
}

impl Metrics {
    /// Starts collecting metrics. Call it once per process, inside a runtime.
    ///
    /// Histograms keep every sample until it is folded into buckets. A task folds them regularly, so that memory stays
    /// constant even without a scraper.
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

    /// Returns a function that renders the current metrics, for pages of this process.
    pub fn reader(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let handle = self.handle.clone();
        move || handle.render()
    }

    /// Returns the text for a scraper. It contains every family, even one without series.
    pub fn render(&self) -> String {
        let mut text = self.handle.render();
        for family in self.exported.all() {
            family.declare(&mut text);
        }
        machine::render(&mut text);
        text
    }
}
