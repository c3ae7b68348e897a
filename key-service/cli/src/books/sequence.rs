//! Where an export goes on.

use anyhow::anyhow;
use domain::sequence::{CannotGoOn, Sequence};

/// Finds the number after which an export goes on. `ends` says what ends with `last`.
pub(super) fn read_on(sequence: &Sequence, after: u64, last: u64, ends: &str) -> anyhow::Result<u64> {
    sequence.after(after, last).map_err(|why| match why {
        CannotGoOn::Unknown => {
            let last = sequence.exported(last);
            anyhow!(
                "--after: {ends} at {last}, so {after} is of another store, or was lost; import everything again, with --after 0"
            )
        }
        CannotGoOn::MayBeLost(sure) => anyhow!(
            "--after: a replica of Redis took over, and {after} may have been lost, and its number given to another; remove \
             what you imported with a seq above {sure}, and go on with --after {sure}"
        ),
    })
}
