//! Sums by day: of all keys by model, and of the keys in groups by group.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::LazyLock};

use rusqlite::{Connection, Row, ToSql, params};
use shared::ids::{AccountId, GroupId};

use super::{group_if_any, money, tokens};
use crate::store::SpendLine;
use domain::usage::{COUNTED, Day, Margin, Sums, with_groupless};

/// Part of an account's spend that a sum is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part<'a> {
    Model(&'a str),
    Group(GroupId),
}

/// Columns of a sum, in the order of [`margin`].
const COLUMNS: [&str; 5] = ["charged", "requests", "tokens", "upstream_cost", "charged_at_known_cost"];

/// Statements that add to the sums of a day, by model and by group. Every capture needs them.
static ADD: LazyLock<[String; 2]> = LazyLock::new(|| {
    [("spend", "model"), ("group_spend", "group_id")].map(|(table, part)| adding(table, part))
});

fn adding(table: &str, part: &str) -> String {
    let changes = COLUMNS.map(|of| format!("{of} = min({of} + excluded.{of}, ?9)")).join(", ");
    let columns = COLUMNS.join(", ");
    format!(
        "INSERT INTO {table} (account, day, {part}, {columns}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (account, day, {part}) DO UPDATE SET {changes}"
    )
}

/// Adds to the sums of a day.
pub(crate) fn add(
    connection: &Connection,
    account: AccountId,
    day: Day,
    part: Part<'_>,
    margin: Margin,
) -> rusqlite::Result<()> {
    let [by_model, by_group] = &*ADD;
    let (sql, part): (_, &dyn ToSql) = match &part {
        Part::Model(model) => (by_model, model),
        Part::Group(group) => (by_group, group.as_bytes()),
    };
    let Margin { sums: Sums { requests, tokens, charged }, upstream_cost, charged_at_known_cost } = margin;
    connection.prepare_cached(sql)?.execute(params![
        account.as_bytes(),
        day.number(),
        part,
        charged.nanos(),
        requests.cast_signed(),
        tokens.cast_signed(),
        upstream_cost.nanos(),
        charged_at_known_cost.nanos(),
        COUNTED.cast_signed(),
    ])?;
    Ok(())
}

/// The sums of these days by model.
pub(crate) fn list(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
) -> rusqlite::Result<Vec<SpendLine>> {
    let sql = format!(
        "SELECT day, model, {} FROM spend WHERE account = ?1 AND day BETWEEN ?2 AND ?3 ORDER BY day, model",
        COLUMNS.join(", ")
    );
    let line = |row: &Row<'_>| {
        let day = Day::from_number(row.get(0)?);
        Ok(SpendLine { day, model: row.get(1)?, sums: margin(row, 2)?.sums })
    };
    let (from, to) = (days.start().number(), days.end().number());
    connection.prepare_cached(&sql)?.query_map(params![account.as_bytes(), from, to], line)?.collect()
}

/// The sums of all these days together, by model.
pub(crate) fn by_model(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
) -> rusqlite::Result<BTreeMap<String, Margin>> {
    let sql = together("spend", "model", "model");
    let line = |row: &Row<'_>| Ok((row.get(0)?, margin(row, 1)?));
    let (from, to) = (days.start().number(), days.end().number());
    connection.prepare_cached(&sql)?.query_map(params![account.as_bytes(), from, to], line)?.collect()
}

/// The sums of all these days together, by group; `None` stands for keys without a group.
pub(crate) fn by_group(
    connection: &Connection,
    account: AccountId,
    days: &RangeInclusive<Day>,
) -> rusqlite::Result<BTreeMap<Option<GroupId>, Margin>> {
    let (groups, all) =
        (together("group_spend", "group_id", "group_id"), together("spend", "NULL", "account"));
    // A statement sees a single moment.
    let sql = format!("{groups} UNION ALL {all}");
    let line = |row: &Row<'_>| Ok((group_if_any(row, 0)?, margin(row, 1)?));
    let (from, to) = (days.start().number(), days.end().number());
    let mut statement = connection.prepare_cached(&sql)?;
    let lines = statement.query_map(params![account.as_bytes(), from, to], line)?;
    let (mut groups, mut all) = (BTreeMap::new(), Margin::default());
    for line in lines {
        match line? {
            (Some(group), margin) => drop(groups.insert(group, margin)),
            (None, margin) => all = margin,
        }
    }
    Ok(with_groupless(groups, [all]))
}

/// Statement that adds up the sums of some days.
fn together(table: &str, part: &str, by: &str) -> String {
    let sums = COLUMNS.map(|of| format!("sum({of})")).join(", ");
    format!("SELECT {part}, {sums} FROM {table} WHERE account = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY {by}")
}

/// Reads a sum whose columns begin with this one.
fn margin(row: &Row<'_>, first: usize) -> rusqlite::Result<Margin> {
    let sums = Sums {
        charged: money(row, first)?,
        requests: tokens(row, first + 1)?,
        tokens: tokens(row, first + 2)?,
    };
    let (upstream_cost, charged_at_known_cost) = (money(row, first + 3)?, money(row, first + 4)?);
    // Sums of several days stop at the bound of counters.
    Ok(Margin::default().plus(Margin { sums, upstream_cost, charged_at_known_cost }))
}
