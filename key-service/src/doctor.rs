//! The checks of a key-service that `doctor` makes: the pepper, and the store with its space, persistence and clock.

use std::{path::Path, sync::Arc, time::Duration};

use shared::clock::Clock;
use shared_config::{Common, ConfigError};
use shared_process::doctor::Doctor;
use tokio::time::timeout;

use crate::{
    config::Options,
    installation::{Installation, InstallationParts},
    readiness::{NOTICEABLE, TOO_FAR},
};
use domain::{digest::Peppers, pepper_record::PepperRecord};
use key_service_records::sqlite::copy::{self, LayoutVersion};
use key_service_store::store::{Capacity as _, Ledger as _, MissingServers, Store};

/// When this share of the store's space is used, the store should be enlarged, as the alert `StoreFilling` says.
const FILLING: f64 = 0.7;
/// When this share is used, little time is left, as the alert `StoreNearlyFull` says.
const NEARLY_FULL: f64 = 0.9;
/// Maximum time that `doctor` waits for the audit.
const LONGEST_AUDIT: Duration = Duration::from_mins(1);

/// Checks the secrets and the store. `peppers` is `None` if the first start will create the pepper.
pub async fn examine(
    doctor: &mut Doctor,
    common: &Common,
    options: &Options,
    peppers: Result<Option<Peppers>, ConfigError>,
    clock: Arc<dyn Clock>,
) {
    for (setting, file) in [
        ("FAREGATE_PEPPER_FILE", &options.pepper_file),
        ("FAREGATE_PREVIOUS_PEPPER_FILE", &options.previous_pepper_file),
        ("FAREGATE_PREVIOUS_INTERNAL_TOKEN_FILE", &options.previous_internal_token_file),
        ("FAREGATE_STORE_FILE", &options.store_file),
    ] {
        doctor.secret_file(setting, file.as_deref());
    }
    let previous = options.previous_internal_token();
    doctor.check("secrets", previous, |previous| {
        let is_rotating =
            if previous.is_some() { "is accepted too: a rotation is under way" } else { "is not accepted" };
        format!("a previous internal token {is_rotating}")
    });
    let peppers = doctor.check("secrets", peppers, |peppers| match peppers {
        Some(peppers) => format!(
            "the pepper's record is \"{}\"; it must be the same in all key-services",
            PepperRecord::of(peppers)
        ),
        None => "the first start creates a pepper".to_owned(),
    });
    let Some(peppers) = peppers else { return };
    match options.sqlite_file() {
        Ok(Some(file)) if !is_current(doctor, &file) => return,
        Ok(_) => {}
        Err(e) => return doctor.fail("store", e, "correct the setting"),
    }
    match peppers {
        Some(peppers) => examine_store(doctor, common, options, peppers, clock).await,
        None => doctor.well("store", "nothing has been created yet"),
    }
}

/// Returns whether an SQLite file exists and has the layout of this version.
fn is_current(doctor: &mut Doctor, file: &Path) -> bool {
    match copy::version(file) {
        Ok(None) => {
            doctor.well("store", format!("the first start creates {}", file.display()));
            false
        }
        Ok(Some(version)) if version.is_current() => true,
        Ok(Some(LayoutVersion { found, known })) => {
            let says = format!("{} has layout {found}, and this program knows {known}", file.display());
            doctor.fail("store", says, "use the version that wrote it");
            false
        }
        Err(e) => {
            doctor.fail("store", e, "name another file in FAREGATE_STORE, or restore it");
            false
        }
    }
}

async fn examine_store(
    doctor: &mut Doctor,
    common: &Common,
    options: &Options,
    peppers: Peppers,
    clock: Arc<dyn Clock>,
) {
    let parts = InstallationParts { peppers, clock, catalog: None };
    let opened = Installation::open_to_examine(common, options, parts).await;
    let says = |(_, is_there): &(Installation, bool)| {
        let says = if *is_there {
            "exists, and matches the pepper and this version"
        } else {
            "is empty: the first start creates the installation"
        };
        says.to_owned()
    };
    let Some((installation, is_there)) = doctor.check("store", opened, says) else { return };
    if is_there {
        books(doctor, &installation).await;
    }
    let store = &installation.store;
    match store.try_write().await {
        Ok(MissingServers(missing)) if missing.is_empty() => doctor.well("store", "accepts writes"),
        Ok(MissingServers(missing)) => {
            let says = format!("refuses writes at {}", missing.join(", "));
            doctor.fail("store", says, "find out why these servers refuse writes");
        }
        Err(e) => doctor.fail("store", e, "free some space, or find out why the store refuses writes"),
    }
    room(doctor, store).await;
    let warnings = store.persistence_warnings().await;
    if warnings.is_empty() {
        doctor.well("store", "is durable: it keeps every confirmed write");
    }
    for says in warnings {
        doctor.warn("store", says, "see docs/store.md#what-may-be-lost");
    }
    clocks(doctor, store).await;
}

/// Audits the books for at most [`LONGEST_AUDIT`].
async fn books(doctor: &mut Doctor, installation: &Installation) {
    match timeout(LONGEST_AUDIT, installation.audit()).await {
        Ok(Ok(says)) => doctor.well("books", says),
        Ok(Err(e)) => {
            let says = e.root_cause().to_string();
            doctor.fail("books", says, "leave the store as it is, and run `audit` for the list");
        }
        Err(_) => doctor.warn("books", "are too large to audit within a minute", "run `audit`"),
    }
}

async fn room(doctor: &mut Doctor, store: &Store) {
    const TODO: &str = "raise maxmemory, enlarge the disk, or keep fewer journal entries";
    match store.used_ratio().await {
        Ok(None) => doctor.well("store", "has no size limit"),
        Ok(Some(ratio)) => {
            let says = format!("uses {:.0} % of its space", ratio * 100.0);
            if ratio > NEARLY_FULL {
                doctor.fail("store", says, TODO);
            } else if ratio > FILLING {
                doctor.warn("store", says, TODO);
            } else {
                doctor.well("store", says);
            }
        }
        Err(e) => doctor.warn("store", e, "find out why the store does not report how full it is"),
    }
}

async fn clocks(doctor: &mut Doctor, store: &Store) {
    match store.clock_skew().await {
        Ok(None) => doctor.well("clock", "the store has no clock to compare with"),
        Ok(Some(skew)) => {
            let difference = Duration::from_millis(skew.millis.unsigned_abs());
            let says = format!("differs by {} ms from the store's", difference.as_millis());
            if difference > TOO_FAR {
                doctor.fail("clock", says, "correct it: beyond ten seconds a key-service is not ready");
            } else if difference > NOTICEABLE {
                doctor.warn("clock", says, "correct it");
            } else {
                doctor.well("clock", says);
            }
        }
        Err(e) => doctor.warn("clock", e, "find out why the store does not report its time"),
    }
}
