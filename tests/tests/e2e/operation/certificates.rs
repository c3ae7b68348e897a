//! Certificates for TLS tests.

use std::{fs, path::PathBuf};

use ::certificates::{Authority, Issued};
use chrono::{Datelike, NaiveDate};
use tempfile::TempDir;

/// Files with a certificate authority, and with a certificate that it issued for 127.0.0.1.
pub(crate) struct Signed(TempDir);

impl Signed {
    /// Creates an authority, with a certificate in `cert.pem` and the certificate's key in `key.pem`.
    pub(crate) fn new() -> Self {
        let signed = Self(TempDir::new().unwrap());
        signed.renew();
        signed
    }

    /// Replaces all files with another authority's files.
    pub(crate) fn renew(&self) {
        self.issue(|authority| authority.issue("127.0.0.1"));
    }

    /// Replaces certificate, key and authority; the certificate expires at the beginning of this day.
    pub(crate) fn renew_until(&self, day: NaiveDate) {
        let [month, of_month] = [day.month(), day.day()].map(|number| u8::try_from(number).unwrap());
        self.issue(|authority| authority.issue_until("127.0.0.1", (day.year(), month, of_month)));
    }

    fn issue(&self, by: impl FnOnce(&Authority) -> Issued) {
        let authority = Authority::new();
        let Issued { certificate, key } = by(&authority);
        self.write("ca.pem", &authority.pem());
        self.write("cert.pem", &certificate);
        self.write("key.pem", &key);
    }

    /// Returns the path of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns the text of a file.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Replaces a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
