//! Tables for terminals: the widest cell of a column sets the width.

use std::io::{self, Write};

/// The gap between two columns.
const GAP: &str = "  ";

/// Writes a table with a header.
pub(super) fn write<const N: usize>(
    out: &mut dyn Write,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join(GAP).trim_end())?;
    }
    Ok(())
}
