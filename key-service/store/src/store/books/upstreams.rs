//! Counts of upstreams' bills in recent hours, over all accounts. Losing some does no harm. An upstream is identified
//! by its model and its name in the catalogue.

use std::collections::BTreeMap;

use domain::{
    upstream_calls::{CLASSES, UpstreamCalls},
    usage::Hour,
};
use key_service_ledger::{
    StoreError,
    stored::{UpstreamHour, UpstreamHours},
    view::View,
};
use records::{Answer, Question, Set, Space};

use crate::store::{
    base::{Store, no_answer, value},
    layout,
};

/// Number of hours kept: a day, plus the current hour.
pub const UPSTREAM_HOURS: i64 = 25;
/// Separates a model's id from an upstream's name. Neither contains control characters.
const SEPARATOR: u8 = 0;

impl Store {
    /// Adds to the counts of an upstream in an hour, and drops hours that ended more than a day ago.
    pub async fn add_upstream_calls(
        &self,
        model: &str,
        upstream: &str,
        hour: Hour,
        calls: UpstreamCalls,
    ) -> Result<(), StoreError> {
        let name =
            layout::name(layout::UPSTREAMS, [model.as_bytes(), &[SEPARATOR], upstream.as_bytes()].concat());
        let add = |view: &mut View| {
            let UpstreamHours { mut hours } = view.get(&name)?.unwrap_or_default();
            let number = number(hour);
            hours.retain(|kept| i64::from(kept.hour) > hour.0 - UPSTREAM_HOURS);
            match hours.binary_search_by_key(&number, |kept| kept.hour) {
                Ok(place) => hours[place] = written(number, read(&hours[place]).plus(calls)),
                Err(place) => hours.insert(place, written(number, calls)),
            }
            view.put(&name, UpstreamHours { hours });
            Ok(())
        };
        self.note(&space(), add).await
    }

    /// Sums the counts of each upstream since an hour, by model and name. Upstreams without a bill since then are
    /// omitted.
    pub async fn upstream_calls(
        &self,
        since: Hour,
    ) -> Result<BTreeMap<(String, String), UpstreamCalls>, StoreError> {
        let set = Set { table: layout::UPSTREAMS, part: 0 };
        let (mut upstreams, mut cursor) = (BTreeMap::new(), None);
        loop {
            let page = self.read().ask(&space(), vec![Question::Set(set, cursor)]).await?.pop();
            let Some(Answer::Set(records, next)) = page else { return Err(no_answer()) };
            for (name, record) in &records {
                let hours = value::<UpstreamHours>(record)?.hours;
                let recent = hours.iter().filter(|kept| i64::from(kept.hour) >= since.0);
                let sum = recent.fold(UpstreamCalls::default(), |sum, kept| sum.plus(read(kept)));
                if sum.bills > 0 {
                    upstreams.insert(read_name(name)?, sum);
                }
            }
            match next {
                Some(place) => cursor = Some(place),
                None => return Ok(upstreams),
            }
        }
    }
}

/// Decodes an upstream's model and name.
fn read_name(name: &[u8]) -> Result<(String, String), StoreError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let place = name.iter().position(|byte| *byte == SEPARATOR);
    let place = place.ok_or_else(|| StoreError::Damaged("the name of an upstream".into()))?;
    Ok((text(&name[..place]), text(&name[place + 1..])))
}

fn space() -> Space {
    Space::new("upstreams")
}

/// Returns the number of an hour. Hours before 1970 get the first number.
fn number(hour: Hour) -> u32 {
    u32::try_from(hour.0).unwrap_or_default()
}

fn written(hour: u32, UpstreamCalls { bills, first_tokens }: UpstreamCalls) -> UpstreamHour {
    UpstreamHour { hour, bills, first_tokens: first_tokens.to_vec() }
}

/// Decodes counts. Classes that only a newer version has are ignored.
fn read(UpstreamHour { hour: _, bills, first_tokens }: &UpstreamHour) -> UpstreamCalls {
    let mut classes = [0; CLASSES];
    for (class, count) in classes.iter_mut().zip(first_tokens) {
        *class = *count;
    }
    UpstreamCalls { bills: *bills, first_tokens: classes }
}
