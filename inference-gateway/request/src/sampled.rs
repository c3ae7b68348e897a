//! Sampling parameters that telemetry reports.

use raw_json::Value;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub seed: Option<i64>,
}

impl Sampling {
    /// Notes a checked parameter, if telemetry reports it.
    pub(crate) fn note(&mut self, name: &str, value: &Value<'_, '_>) {
        match name {
            "temperature" => self.temperature = value.raw().parse().ok(),
            "top_p" => self.top_p = value.raw().parse().ok(),
            "seed" => self.seed = value.raw().parse().ok(),
            _ => {}
        }
    }
}
