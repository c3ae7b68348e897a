//! What telemetry tells of the sampling that a request asks for.

use raw_json::Value;

/// Parameters of sampling that a request sets, for telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// The temperature.
    pub temperature: Option<f64>,
    /// The share of the likeliest tokens.
    pub top_p: Option<f64>,
    /// The seed.
    pub seed: Option<i64>,
}

impl Sampling {
    /// Notes a checked parameter, if it is one of these.
    pub(crate) fn note(&mut self, name: &str, value: &Value<'_, '_>) {
        match name {
            "temperature" => self.temperature = value.raw().parse().ok(),
            "top_p" => self.top_p = value.raw().parse().ok(),
            "seed" => self.seed = value.raw().parse().ok(),
            _ => {}
        }
    }
}
