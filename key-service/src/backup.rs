use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use shared::{clock::Clock, private_files};
use shared_config::{Common, ConfigError};

use crate::{
    config::{Backend, Options},
    installation::{Installation, InstallationParts},
};
use domain::digest::Peppers;
use key_service_cli::{BackupTo, Command, RestoreFrom};
use key_service_records::sqlite::{
    Sqlite,
    copy::{self, CopyError, LayoutVersion},
};

/// Name of the backup's file.
const NAME: &str = "faregate.db";

/// Copies the store's file while it is in use, audits the copy, and puts it in the place of the previous backup.
pub(crate) async fn backup(
    place: &BackupTo,
    common: &Common,
    options: &Options,
    peppers: Peppers,
    clock: Arc<dyn Clock>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let source = file(options)?;
    private_files::create_folder(&place.to).with_context(|| format!("cannot make {}", place.to.display()))?;
    let backup = place.to.join(NAME);
    let draft = place.to.join(format!("{NAME}.new-{}", std::process::id()));
    let proven = prove(&source, &draft, common, options, peppers, clock).await;
    copy::tidy(&draft);
    if proven.is_err() {
        // If this fails, the remaining file does not disturb a later backup, which uses another name.
        let _ = fs::remove_file(&draft);
    }
    let audited = proven?;
    copy::sync(&draft)?;
    fs::rename(&draft, &backup).with_context(|| format!("cannot write {}", backup.display()))?;
    copy::sync(&backup)?;
    let size = fs::metadata(&backup).map_or(0, |found| found.len());
    writeln!(out, "{}: {size} bytes, {audited}", backup.display())?;
    writeln!(out, "Back up the pepper too, in another place: neither is useful without the other.")?;
    Ok(())
}

/// Copies the file and audits the copy. Returns the result in words.
async fn prove(
    source: &Path,
    draft: &Path,
    common: &Common,
    options: &Options,
    peppers: Peppers,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<&'static str> {
    let version = copy::copy(source, draft)?;
    if !version.is_current() {
        // This version of the program cannot open the copy as a store.
        return Ok("intact; not audited, because a newer version wrote it");
    }
    let audit = Command::audit();
    let of_copy = Options {
        store: Some(format!("sqlite:{}", draft.display()).into()),
        store_file: None,
        ..options.clone()
    };
    let parts = InstallationParts { peppers, clock, catalog: None };
    let Some(installation) = Installation::open(common, &of_copy, parts, &audit).await? else {
        bail!("{} has no installation", source.display());
    };
    installation.audit().await.context("the books do not balance")?;
    Ok("intact, and its books balance")
}

/// Replaces the store's file with a backup. The old file is kept under another name.
pub(crate) async fn restore(
    place: &RestoreFrom,
    options: &Options,
    clock: Arc<dyn Clock>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let (backup, target) = (place.from.join(NAME), file(options)?);
    let LayoutVersion { found, known } = copy::check(&backup)?;
    copy::tidy(&backup);
    if found > known {
        bail!("{} was written by a newer version: restore it with that version", backup.display());
    }
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        private_files::create_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let draft = target.with_extension(format!("restoring-{}", std::process::id()));
    private_copy(&backup, &draft).with_context(|| format!("cannot write {}", draft.display()))?;
    if found == known {
        // Programs that export entries and events must not mistake new entries and events for those that they have
        // already read.
        let prepared = begin_numbers_anew(&draft, &target, options, &clock).await;
        copy::tidy(&draft);
        if prepared.is_err() {
            let _ = fs::remove_file(&draft);
        }
        prepared?;
    }
    let aside = target.with_extension(format!("db.{}", clock.now().seconds()));
    let was_there = copy::set_aside(&target, &aside);
    if was_there.is_err() {
        let _ = fs::remove_file(&draft);
    }
    let was_there = was_there?;
    fs::rename(&draft, &target).with_context(|| format!("cannot write {}", target.display()))?;
    copy::sync(&target)?;
    if was_there {
        writeln!(out, "{} is now {}", target.display(), aside.display())?;
    }
    writeln!(
        out,
        "{} is restored from {}. Start the program, then check the books with `audit`",
        target.display(),
        backup.display()
    )?;
    Ok(())
}

/// Makes sure that new entries and events in a restored file get higher numbers than those in the file that it
/// replaces. The replaced file may be missing or unreadable.
async fn begin_numbers_anew(
    restored: &Path,
    replaced: &Path,
    options: &Options,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    let store = |file: Sqlite| options.store_over(&Backend::Sqlite(Arc::new(file)), clock);
    // A missing file must not be created, and a file in use must be left alone.
    let replaced = match copy::check_unserved(replaced) {
        Err(served @ CopyError::Served(_)) => return Err(served.into()),
        Ok(()) if replaced.exists() => Sqlite::open(replaced).ok(),
        Ok(()) | Err(_) => None,
    };
    let replaced = replaced.map(store);
    Ok(store(Sqlite::open(restored)?).begin_numbers_anew(replaced.as_deref()).await?)
}

fn private_copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut to = private_files::options().write(true).create_new(true).open(to)?;
    io::copy(&mut fs::File::open(from)?, &mut to)?;
    to.sync_all()
}

/// Returns the path of the store's file.
fn file(options: &Options) -> Result<PathBuf, ConfigError> {
    options.sqlite_file()?.ok_or_else(|| {
        ConfigError::new(
            "FAREGATE_STORE",
            "backup and restore work on an SQLite file; back up a Redis with `redis-cli --rdb` (docs/backup.md#redis)",
        )
    })
}
