//! Report of an import: what became of each field.

use std::collections::BTreeMap;

/// What became of each field that has a value, with the number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: BTreeMap<(String, String, String), usize>,
}

/// Fields with the same fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportLine<'a> {
    /// Table of the export.
    pub table: &'a str,
    /// Column of the table; empty for the rows themselves.
    pub column: &'a str,
    /// What became of the values.
    pub became: &'a str,
    /// Number of rows.
    pub rows: usize,
}

impl Report {
    /// Counts a row whose column became this.
    pub(super) fn add(&mut self, table: &str, column: &str, became: impl Into<String>) {
        *self.lines.entry((table.to_owned(), column.to_owned(), became.into())).or_default() += 1;
    }

    /// The lines, in the order of tables and columns.
    pub fn lines(&self) -> impl Iterator<Item = ReportLine<'_>> {
        self.lines.iter().map(|((table, column, became), rows)| ReportLine {
            table,
            column,
            became,
            rows: *rows,
        })
    }
}
