//! Helpers for the output of commands.

use std::{
    error::Error as Cause,
    io::{self, Write},
};

use serde::Serialize;

/// Maximum number of entries or events in memory during an export: about 200 KiB.
pub(crate) const EXPORTED_AT_ONCE: usize = 500;

pub(crate) fn write_json<T: Serialize>(
    out: &mut (dyn Write + Send),
    lines: impl Iterator<Item = T>,
) -> anyhow::Result<()> {
    write_json_object(out, &lines.collect::<Vec<T>>())
}

pub(crate) fn write_json_object(out: &mut (dyn Write + Send), value: &impl Serialize) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// Ignores a broken pipe, since a reader such as `head` may stop early.
pub(crate) fn unless_read_enough(error: anyhow::Error) -> anyhow::Result<()> {
    let kind = |cause: &(dyn Cause + 'static)| {
        let json = || cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(json)
    };
    if error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe)) {
        Ok(())
    } else {
        Err(error)
    }
}
