//! Tables for terminals. Each column is as wide as its widest cell.

use std::io::{self, Write};

/// The gap between two columns.
const GAP: &str = "  ";

/// Writes a table. Each row must have as many cells as the header.
pub fn write<R: AsRef<[String]>>(
    out: &mut dyn Write,
    head: &[&str],
    rows: impl Iterator<Item = R>,
) -> io::Result<()> {
    let rows: Vec<R> = rows.collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        writeln!(out, "{}", cells.join(GAP).trim_end())
    };
    line(&mut head.iter().copied())?;
    for row in &rows {
        line(&mut row.as_ref().iter().map(String::as_str))?;
    }
    Ok(())
}
