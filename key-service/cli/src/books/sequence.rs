use anyhow::anyhow;
use domain::sequence::{CannotGoOn, Sequence};

/// Returns the number after which an export continues. `ends` describes the log in errors.
pub(super) fn read_on(sequence: &Sequence, after: u64, last: u64, ends: &str) -> anyhow::Result<u64> {
    sequence.after(after, last).map_err(|why| match why {
        CannotGoOn::Unknown => {
            let last = sequence.exported(last);
            anyhow!(
                "--after: {ends} at {last}, so {after} is from another store or was lost; import everything again with --after 0"
            )
        }
        CannotGoOn::MayBeLost(sure) => anyhow!(
            "--after: a Redis replica took over, so {after} may have been lost and its number used again; remove \
             what you imported with a seq above {sure}, and continue with --after {sure}"
        ),
    })
}
