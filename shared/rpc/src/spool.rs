//! The spool: captures that were not confirmed before their answers were sent. They stay on disk until they are
//! delivered.
//!
//! The file has JSON lines: `{"capture":{…}}` for a new capture and `{"done":"gen_…"}` after its delivery. Unreadable
//! lines are moved to another file, since each may be a charge that is owed. A crash may cut the last line short; its
//! capture was then never confirmed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use shared::{
    generation::Course,
    ids::{AccountId, GenerationId, KeyId},
    time::Timestamp,
    tokens::Usage,
};
use shared_catalog::{Price, Rates, Tier};

use crate::contract::{Capture, HoldRef, UpstreamCost};

/// Returns the spool's file in a data directory.
pub fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("spool").join("captures.jsonl")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledCapture {
    /// When it was written, in milliseconds since 1970.
    pub at_ms: i64,
    pub generation: GenerationId,
    pub account: AccountId,
    pub key: KeyId,
    /// The model's id in the catalogue.
    pub model: String,
    /// Rates in nano-USD: input, cached input and output, and any other rate that differs from its default.
    pub price: Rates,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// Position, from 1, of the serving upstream among the model's upstreams; 0 if none was chosen.
    #[serde(default, skip_serializing_if = "is_none_chosen")]
    pub upstream: u32,
    /// The operator's cost at this upstream; absent if the hold did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_cost: Option<SpooledCost>,
    pub usage: Usage,
    /// The part of the usage to charge, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<Usage>,
    pub estimated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
}

/// The operator's cost at an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledCost {
    /// Rates in the same form as `price`; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

impl From<UpstreamCost> for Option<SpooledCost> {
    fn from(cost: UpstreamCost) -> Self {
        match cost {
            UpstreamCost::OfCatalogue => None,
            UpstreamCost::OfHold(None) => Some(SpooledCost { rates: None, tiers: Vec::new() }),
            UpstreamCost::OfHold(Some(price)) => {
                let Price { base, tiers } = Arc::unwrap_or_clone(price);
                Some(SpooledCost { rates: Some(base), tiers })
            }
        }
    }
}

impl From<Option<SpooledCost>> for UpstreamCost {
    fn from(cost: Option<SpooledCost>) -> Self {
        let Some(SpooledCost { rates, tiers }) = cost else { return Self::OfCatalogue };
        Self::OfHold(rates.map(|base| Arc::new(Price { base, tiers })))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none_chosen(upstream: &u32) -> bool {
    *upstream == 0
}

/// A line of the file.
#[expect(clippy::large_enum_variant, reason = "a line is written or read, and then gone")]
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpoolLine {
    /// A capture to deliver.
    Capture(SpooledCapture),
    /// The capture of this generation was delivered.
    Done(GenerationId),
}

impl SpoolLine {
    /// Returns the text of the line, with a line end.
    pub fn to_text(&self) -> io::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

/// Returns the file next to the spool for lines that cannot be read.
pub fn damaged_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".damaged");
    name.into()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SpoolContents {
    /// Undelivered captures, in the order of writing.
    pub pending: Vec<SpooledCapture>,
    /// The lines that cannot be read.
    pub damaged: Vec<Vec<u8>>,
}

/// Reads the file. A missing file counts as empty.
pub fn read(file: &Path) -> io::Result<SpoolContents> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(SpoolContents::default()),
        Err(e) => return Err(e),
    };
    let (mut pending, mut damaged) = (BTreeMap::new(), Vec::new());
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(SpoolLine::Capture(capture)) => {
                pending.insert(capture.generation, (number, capture));
            }
            Ok(SpoolLine::Done(generation)) => {
                pending.remove(&generation);
            }
            Err(_) if line.trim_ascii().is_empty() => {}
            Err(e) => {
                tracing::warn!(file = %file.display(), line = number + 1, error = ?e.classify(), "a line of the spool cannot be read");
                damaged.push(line.to_owned());
            }
        }
    }
    let mut pending: Vec<_> = pending.into_values().collect();
    pending.sort_unstable_by_key(|(number, _)| *number);
    let pending = pending.into_iter().map(|(_, capture)| capture).collect();
    Ok(SpoolContents { pending, damaged })
}

impl SpooledCapture {
    /// Makes a spooled capture that is written at `now`.
    pub fn new(capture: &Capture, now: Timestamp) -> Self {
        let Capture { hold, usage, charged, estimated, course } = capture;
        let HoldRef { generation, account, key, model, price, upstream, upstream_cost } = hold.clone();
        let Price { base, tiers } = Arc::unwrap_or_clone(price);
        Self {
            at_ms: now.millis(),
            generation,
            account,
            key,
            model,
            price: base,
            tiers,
            upstream,
            upstream_cost: upstream_cost.into(),
            usage: *usage,
            charged: *charged,
            estimated: *estimated,
            course: course.as_deref().cloned(),
        }
    }
}

impl From<SpooledCapture> for Capture {
    fn from(spooled: SpooledCapture) -> Self {
        let SpooledCapture { generation, account, key, model, usage, charged, estimated, course, .. } =
            spooled;
        let price = Arc::new(Price { base: spooled.price, tiers: spooled.tiers });
        let (upstream, upstream_cost) = (spooled.upstream, spooled.upstream_cost.into());
        let hold = HoldRef { generation, account, key, model, price, upstream, upstream_cost };
        Self { hold, usage, charged, estimated, course: course.map(Arc::new) }
    }
}

#[cfg(test)]
mod tests {
    use shared::{clock::System, tokens::UsageDetails};

    use super::*;

    #[test]
    fn delivered_captures_are_passed_over_and_unreadable_lines_kept_apart() {
        let rates: Rates = vec![Some(1), Some(2), Some(3), None, Some(4)].try_into().unwrap();
        let capture = |number: i64| SpooledCapture {
            at_ms: number,
            generation: GenerationId::generate(&System),
            account: AccountId::generate(&System),
            key: KeyId::generate(&System),
            model: "m \"x\"".into(),
            price: rates,
            tiers: vec![Tier { above: 200_000, rates }],
            upstream: 2,
            upstream_cost: (number > 1)
                .then(|| SpooledCost { rates: (number > 2).then_some(rates), tiers: Vec::new() }),
            usage: Usage {
                details: UsageDetails { images: 1, ..UsageDetails::default() },
                ..Usage::of(1, 0, 2)
            },
            charged: Some(Usage::of(1, 0, 1)),
            estimated: true,
            course: (number > 1).then(|| {
                let latency_ms = (number > 2).then_some(950);
                Course {
                    upstream: Some("10.0.0.5:8000".into()),
                    latency_ms,
                    least_cost_nanos: latency_ms.map(|_| 9),
                    ..Course::default()
                }
            }),
        };
        let (first, second, third) = (capture(1), capture(2), capture(3));
        let lines = [
            SpoolLine::Capture(first.clone()),
            SpoolLine::Capture(second.clone()),
            SpoolLine::Done(first.generation),
            SpoolLine::Capture(third.clone()),
        ];
        let text: String = lines.iter().map(|line| line.to_text().unwrap()).collect();
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(b"\n{\"a\":1}\n\xff\xfe \0\n{\"capture\":{\"at_");
        let file = std::env::temp_dir().join(format!("faregate-spool-{}.jsonl", std::process::id()));
        fs::write(&file, bytes).unwrap();
        let found = read(&file).unwrap();
        assert_eq!(found.pending, [second.clone(), third]);
        assert_eq!(found.damaged, [&b"{\"a\":1}\n"[..], b"\xff\xfe \0\n", b"{\"capture\":{\"at_"]);
        fs::remove_file(&file).unwrap();
        assert_eq!(read(&file).unwrap(), SpoolContents::default());
        assert_eq!(SpooledCapture::new(&Capture::from(second.clone()), Timestamp::from_millis(2)), second);
    }

    #[test]
    fn a_capture_without_further_prices_is_written_as_it_was_before_there_were_any() {
        let line = concat!(
            r#"{"capture":{"at_ms":7,"generation":"gen_GENERATION","account":"acct_ACCOUNT","key":"ak_KEY","model":"m","#,
            r#""price":[1,2,3],"usage":{"prompt":1,"cached":0,"completion":2},"estimated":false}}"#,
            "\n"
        );
        let ids = (GenerationId::generate(&System), AccountId::generate(&System), KeyId::generate(&System));
        let line = line
            .replace("gen_GENERATION", &ids.0.to_string())
            .replace("acct_ACCOUNT", &ids.1.to_string())
            .replace("ak_KEY", &ids.2.to_string());
        let read: SpoolLine = serde_json::from_str(&line).unwrap();
        assert_eq!(read.to_text().unwrap(), line);
    }
}
