//! Report of an import: what became of each field.

use std::collections::BTreeMap;

/// What became of each field that has a value, with the number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: BTreeMap<(String, String, String), RowCount>,
    /// Number of the row that is read.
    row: usize,
}

/// Rows of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RowCount {
    rows: usize,
    /// Number of the last row that was counted.
    last: usize,
}

/// Fields with the same fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportLine<'a> {
    /// Table of the export that the rows are from.
    pub table: &'a str,
    /// Column of the table; empty for the rows themselves.
    pub column: &'a str,
    /// What became of the values.
    pub became: &'a str,
    pub rows: usize,
}

impl Report {
    /// Begins another row. Whatever is added before the next one belongs to it.
    pub(super) fn begin_row(&mut self) {
        self.row += 1;
    }

    /// Counts the row as one whose column became this, once however many of its values did.
    pub(super) fn add(&mut self, table: &str, column: &str, became: impl Into<String>) {
        let count = self.lines.entry((table.to_owned(), column.to_owned(), became.into())).or_default();
        if count.last != self.row {
            *count = RowCount { rows: count.rows + 1, last: self.row };
        }
    }

    /// The lines, in the order of tables and columns.
    pub fn lines(&self) -> impl Iterator<Item = ReportLine<'_>> {
        self.lines.iter().map(|((table, column, became), count)| ReportLine {
            table,
            column,
            became,
            rows: count.rows,
        })
    }
}
