//! `store copy` and `store show`.

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use shared::{
    clock::Clock,
    secret::{ExposeSecret, SecretString},
    text::grouped,
};
use tokio::time::Instant;

use crate::config::{Backend, Options, Seen};
use key_service_cli::{StoreCopy, StoreShow};
use key_service_records::{
    copy::{self, Copied, CopyError, Phase, Step},
    sqlite,
};
use key_service_store::store::Store;

const SHOWN_EVERY: Duration = Duration::from_secs(1);
const BAR: usize = 30;
/// File in the data directory that identifies the Redis that was used, so that another Redis is noticed.
const REDIS_SEEN: &str = "redis-seen";

pub(crate) async fn copy(
    StoreCopy { from, to }: &StoreCopy,
    options: &Options,
    clock: &Arc<dyn Clock>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    check_urls(from, to)?;
    let source = options.open_backend(from, clock, Seen::Compared).await.context("--from")?;
    let target = options.open_backend(to, clock, Seen::New).await.context("--to")?;
    tokio::try_join!(check_unserved(&source, "--from"), check_unserved(&target, "--to"))?;
    let progress = TransferProgress::new();
    let copied = copy::copy(&source.records(), &target.records(), |step| progress.show(step)).await;
    progress.end();
    let Copied { records, entries, values, .. } = copied.map_err(|error| advise(&error))?;
    writeln!(out, "copied and compared: {}", counts(records, entries, values))?;
    match target {
        // The target drops no journal entries, but the source may already have dropped some.
        Backend::Sqlite(_) => options.store_over(&target, clock).note_first_entries().await?,
        Backend::Redis(_) => {}
    }
    options.store_over(&target, clock).keep_losses(&options.store_over(&source, clock)).await?;
    for (backend, whose) in [(&source, "--from"), (&target, "--to")] {
        let audited = audit(&options.store_over(backend, clock)).await;
        writeln!(
            out,
            "{whose}: {}",
            audited.with_context(|| format!("{whose}, which was copied completely"))?
        )?;
    }
    tell_what_is_next(&target, options, out)?;
    Ok(())
}

/// Refuses impossible copies. This happens before anything is opened, because a missing file would be created when it
/// is opened.
fn check_urls(from: &SecretString, to: &SecretString) -> anyhow::Result<()> {
    ensure!(from.expose_secret() != to.expose_secret(), "--to: is the same store as --from");
    for (flag, url) in [("--from", from), ("--to", to)] {
        ensure!(
            url.expose_secret() != "memory:",
            "{flag}: a memory: store cannot be copied, since it exists only inside its process"
        );
    }
    let [source, target] = [from, to].map(|url| url.expose_secret().strip_prefix("sqlite:").map(Path::new));
    if let Some(source) = source {
        ensure!(source.exists(), "--from: there is no file {}", source.display());
        sqlite::copy::check_unserved(source).context("--from")?;
    }
    if let Some(target) = target {
        if let (Some(source), Ok(found)) = (source, target.canonicalize()) {
            ensure!(source.canonicalize()? != found, "--to: is the same file as --from");
        }
        sqlite::copy::check_unserved(target).context("--to")?;
    }
    Ok(())
}

/// Refuses a Redis that is in use. Files were checked before they were opened.
async fn check_unserved(backend: &Backend, flag: &str) -> anyhow::Result<()> {
    match backend {
        Backend::Sqlite(_) => {}
        Backend::Redis(redis) => {
            ensure!(
                !redis.is_served().await.context(flag.to_owned())?,
                "{flag}: this Redis is in use: stop every faregate and key-service that uses it, and try again"
            );
        }
    }
    Ok(())
}

/// Writes an error, and adds what the operator can do about it.
fn advise(error: &CopyError) -> anyhow::Error {
    let advice = match error {
        CopyError::NotEmpty(_) => {
            "Nothing was written. Use an empty store: another file, another FAREGATE_REDIS_PREFIX or another Redis."
        }
        CopyError::Differs(_) => {
            "One of the stores changed during the copy: stop every program that uses either, empty the target, and copy again."
        }
        CopyError::Unavailable(_) | CopyError::Damaged(_) => {
            "The source is unchanged. Run the same command again to complete the copy."
        }
    };
    anyhow::anyhow!("{error}\n{advice}")
}

/// Audits all accounts, and returns the totals as a sentence.
async fn audit(store: &Store) -> anyhow::Result<String> {
    let (mut accounts, mut keys, mut entries) = (0, 0, 0);
    for (id, name) in store.audited_accounts().await? {
        let Some(audit) = store.audit(id).await? else { continue };
        let wrong = audit.wrong.len();
        if wrong > 0 {
            bail!("the books of {name} do not balance (wrong figures: {wrong}): `audit` lists them");
        }
        (accounts, keys, entries) = (accounts + 1, keys + audit.keys, entries + audit.entries);
    }
    Ok(format!("the books balance (accounts: {accounts}, keys: {keys}, journal entries: {entries})"))
}

fn tell_what_is_next(target: &Backend, options: &Options, out: &mut (dyn Write + Send)) -> io::Result<()> {
    writeln!(
        out,
        "\nNext: set FAREGATE_STORE (or the file of FAREGATE_STORE_FILE) to the URL of --to, keep the pepper, and \
         start. Never start a program with the store of --from again: what it spends would be missing from the copy."
    )?;
    match target {
        Backend::Sqlite(_) => {}
        Backend::Redis(_) => {
            let pepper = options.data_dir.join("pepper");
            if pepper.exists() {
                writeln!(
                    out,
                    "With Redis, name the pepper explicitly: FAREGATE_PEPPER_FILE={}",
                    pepper.display()
                )?;
            }
            let seen = options.data_dir.join(REDIS_SEEN);
            if seen.exists() {
                writeln!(
                    out,
                    "If {} remembers another Redis, a start with this one is refused. Before the first start, \
                     remove that file here and in every other data directory.",
                    seen.display()
                )?;
            }
            writeln!(
                out,
                "Redis keeps the last {} journal entries of each account (FAREGATE_REDIS_JOURNAL_ENTRIES) and {} \
                 days of usage (FAREGATE_REDIS_USAGE_DAYS); older data is dropped. To keep more, raise both before \
                 the first start.",
                options.redis_journal_entries, options.redis_usage_days
            )?;
        }
    }
    Ok(())
}

/// Shows the progress of a copy: on a terminal as a bar, otherwise with one line per second.
struct TransferProgress {
    on_terminal: bool,
    shown: Mutex<Instant>,
}

impl TransferProgress {
    fn new() -> Self {
        Self { on_terminal: io::stderr().is_terminal(), shown: Mutex::new(Instant::now()) }
    }

    fn show(&self, Step { phase, done, places }: Step) {
        let mut shown = self.shown.lock();
        if shown.elapsed() < SHOWN_EVERY {
            return;
        }
        *shown = Instant::now();
        let Copied { places: ended, records, entries, values } = done;
        let done = match phase {
            Phase::Copying => "copied",
            Phase::Comparing => "compared",
        };
        let line = format!("{done} {}", counts(records, entries, values));
        // An error here does not matter: it only means that nobody reads the progress.
        let _ = if self.on_terminal {
            let share = usize::try_from(ended * BAR as u64 / places.max(1)).unwrap_or_default();
            write!(io::stderr(), "\r[{:<BAR$}] {line}\x1b[K", "#".repeat(share))
        } else {
            writeln!(io::stderr(), "{line}")
        };
    }

    fn end(&self) {
        if self.on_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn counts(records: u64, entries: u64, values: u64) -> String {
    let [records, entries, values] = [records, entries, values].map(|count| grouped(&count.to_string()));
    format!("{records} records, {entries} entries of indexes, {values} entries of journals and events")
}

pub(crate) async fn show(
    StoreShow { account, id }: &StoreShow,
    options: &Options,
    clock: &Arc<dyn Clock>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let store = options.open_store(clock, false).await?;
    let Some(owner) = store.account_named(account).await? else {
        bail!("--account: there is no account {account}; see `accounts list`");
    };
    let records = store.show(owner, *id).await?;
    ensure!(!records.is_empty(), "--id: the account has nothing with this id");
    for record in &records {
        writeln!(out, "{}", serde_json::to_string(record)?)?;
    }
    Ok(())
}
