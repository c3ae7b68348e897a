//! LiteLLM's tables, as JSON or CSV.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};

use crate::import::file::{name, open};
use key_service_moving::{
    Row,
    litellm::{Table, table_with},
};

/// Reads the tables of all files.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Table>> {
    let mut tables = Vec::new();
    for file in files {
        let is_csv = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let read = if is_csv { from_csv(file).map(|table| vec![table]) } else { from_json(file) };
        tables.extend(read.with_context(|| format!("nothing was imported: {}", name(file)))?);
    }
    Ok(tables)
}

fn from_json(file: &Path) -> anyhow::Result<Vec<Table>> {
    let tables: Map<String, Value> = serde_json::from_reader(open(file)?)
        .context("is not a JSON object of tables: {\"table\": [row, …]}")?;
    tables.into_iter().map(|(table, rows)| table_of(&name(file), table, rows)).collect()
}

fn table_of(file: &str, name: String, rows: Value) -> anyhow::Result<Table> {
    let Value::Array(rows) = rows else { bail!("`{name}` is not an array of rows") };
    let row = |(at, row): (usize, Value)| {
        let Value::Object(row) = row else { bail!("row {at} of `{name}` is not an object") };
        Ok((format!("{file} {name} row {at}"), row))
    };
    let rows = (1..).zip(rows).map(row).collect::<anyhow::Result<_>>()?;
    Ok(Table { name, rows })
}

/// Reads a table with a header. An empty value is null.
fn from_csv(file: &Path) -> anyhow::Result<Table> {
    let mut reader = csv::Reader::from_reader(open(file)?);
    let columns: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let table = table_with(&columns);
    let table = table.ok_or_else(|| {
        anyhow!("does not have the columns of any table that can be imported: {}", columns.join(", "))
    })?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let value = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        let row: Row = columns.iter().cloned().zip(record.iter().map(value)).collect();
        rows.push((format!("{} line {line}", name(file)), row));
    }
    Ok(Table { name: table.to_owned(), rows })
}
