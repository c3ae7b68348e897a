//! Reports how an import handled each field.

use std::collections::BTreeMap;

/// For each field, how its values were handled and in how many rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    lines: BTreeMap<(String, String, String), RowCount>,
    /// Number of the current row.
    row: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RowCount {
    rows: usize,
    last: usize,
}

/// A line of the report: how a column's values were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportLine<'a> {
    /// The export's table.
    pub table: &'a str,
    /// Column of the table; empty for the row as a whole.
    pub column: &'a str,
    pub became: &'a str,
    pub rows: usize,
}

impl Report {
    /// Starts a row. Everything added before the next row belongs to it.
    pub(super) fn begin_row(&mut self) {
        self.row += 1;
    }

    /// Counts the current row for this column and result, at most once.
    pub(super) fn add(&mut self, table: &str, column: &str, became: impl Into<String>) {
        let count = self.lines.entry((table.to_owned(), column.to_owned(), became.into())).or_default();
        if count.last != self.row {
            *count = RowCount { rows: count.rows + 1, last: self.row };
        }
    }

    /// Returns the lines, sorted by table and column.
    pub fn lines(&self) -> impl Iterator<Item = ReportLine<'_>> {
        self.lines.iter().map(|((table, column, became), count)| ReportLine {
            table,
            column,
            became,
            rows: count.rows,
        })
    }
}
