//! Fuzz target for the tables of other gateways.

use serde_json::Value;
use shared::{ids::KeyId, money::NanoUsd, time::Timestamp};
use shared_fuzz::{Examples, Input, fuzz};

use super::*;
use litellm::Table;

/// Imported keys and groups have money within range, and nothing is imported twice.
#[test]
fn litellm_tables() {
    let examples = [
        include_str!("../../../tests/fixtures/moving/litellm-1.74.json"),
        include_str!("../../../tests/fixtures/moving/litellm-1.104.json"),
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Ok(Value::Object(tables)) = serde_json::from_slice(input.bytes()) else { return };
        let tables: Vec<Table> = tables.into_iter().filter_map(|(name, rows)| table(name, rows)).collect();
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        let Ok((draft, report)) = litellm::read(tables) else { return };
        assert!(draft.keys.len() + draft.groups.len() <= rows && draft.repeated().is_empty());
        let now = Timestamp::from_millis(1_795_140_665_000);
        let id = KeyId::new(now, [7; 10]);
        for key in &draft.keys {
            let made = key.key(id, now);
            assert!((NanoUsd::ZERO..=NanoUsd::MAX).contains(&made.spend.budget.used));
            assert!(!made.hint.contains(&hex::encode(key.foreign.as_bytes())));
        }
        assert!(report.lines().all(|line| line.rows <= rows));
    });
}

fn table(name: String, rows: Value) -> Option<Table> {
    let Value::Array(rows) = rows else { return None };
    let row = |(at, row)| match row {
        Value::Object(row) => Some((format!("row {at}"), row)),
        _ => None,
    };
    Some(Table { rows: rows.into_iter().enumerate().filter_map(row).collect(), name })
}
