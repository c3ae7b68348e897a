//! Findings of `doctor`: what works in an installation, and what to fix. The program makes the same checks when it
//! starts.

use std::{
    fmt::Display,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::ExitCode,
};

use clap::Args;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use shared::secret::{ExposeSecret, SecretString};
use shared_catalog::Catalog;
use shared_client::server_check::{FindingKind, check_servers};
use shared_config::{Common, ConfigError};
use shared_door::{
    limits::Limits,
    tls::{PublicTls, PublicTlsOptions, Tls, TlsOptions, validity},
};

use super::basics::ServiceOptions;

/// Mode bits that let others access a file, or let its group write to it.
const TOO_OPEN: u32 = 0o027;
/// If the limit on open files is lower than this, only a few connections are possible.
const FEW_FILES: usize = 4096;

/// How a program reports on its installation. Exit status: 0 if all is well, 1 with warnings, 2 with errors
#[derive(Args, Clone, Debug)]
pub struct DoctorOptions {
    /// Print a JSON array of objects with check, severity, says and todo
    #[arg(long)]
    json: bool,
}

/// Severity of a finding. The best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Well,
    Warning,
    Error,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    severity: Severity,
    says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

#[derive(Debug, Default)]
pub struct Doctor {
    findings: Vec<Finding>,
}

/// Where a program takes its internal token from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalTokenOf {
    /// A setting contains the token, or the name of a file with the token.
    Settings,
    /// If no setting contains the token, it is in the data directory, where the program makes one.
    SettingsOrDataDirectory,
}

impl Doctor {
    /// Makes every check of a service, and writes the report to standard output. `connections` returns how many
    /// connections the limits allow, and `own` makes the checks of this program.
    pub async fn examine(
        service: &ServiceOptions,
        token: InternalTokenOf,
        asked: &DoctorOptions,
        connections: impl FnOnce(&mut Self, &mut Limits) -> Result<usize, ConfigError>,
        own: impl AsyncFnOnce(&mut Self),
    ) -> io::Result<ExitCode> {
        let mut doctor = Self::default();
        // When this line is reached, the settings have been read.
        doctor.well("settings", "are read");
        doctor.internal_token(&service.common, token);
        let mut limits = service.limits.raise();
        let connections = connections(&mut doctor, &mut limits);
        doctor.limits(&limits, connections);
        let catalog = doctor.catalogue(&service.common);
        own(&mut doctor).await;
        doctor.certificates();
        if let Some(catalog) = catalog {
            doctor.upstreams(&catalog).await;
        }
        doctor.report(asked, &mut io::stdout())
    }

    pub fn well(&mut self, check: &'static str, says: impl Display) {
        self.note(check, Severity::Well, says, None);
    }

    /// Adds a finding about a problem that may cause a failure later, and how to solve it.
    pub fn warn(&mut self, check: &'static str, says: impl Display, todo: &str) {
        self.note(check, Severity::Warning, says, Some(todo));
    }

    /// Adds a finding about a problem that keeps the program from serving, and how to solve it.
    pub fn fail(&mut self, check: &'static str, says: impl Display, todo: &str) {
        self.note(check, Severity::Error, says, Some(todo));
    }

    /// Adds a finding about the result of a check, and returns the value. The error must name the setting to correct.
    pub fn check<T, E: Display>(
        &mut self,
        check: &'static str,
        result: Result<T, E>,
        says: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.well(check, says(&value));
                Some(value)
            }
            Err(e) => {
                self.fail(check, format!("{e:#}"), "correct the setting named in the message");
                None
            }
        }
    }

    fn note(&mut self, check: &'static str, severity: Severity, says: impl Display, todo: Option<&str>) {
        let (says, todo) = (says.to_string(), todo.map(str::to_owned));
        self.findings.push(Finding { check, severity, says, todo });
    }

    /// Writes all findings, and returns the exit status.
    fn report(&self, options: &DoctorOptions, out: &mut dyn Write) -> io::Result<ExitCode> {
        if options.json {
            serde_json::to_writer_pretty(&mut *out, &self.findings)?;
            writeln!(out)?;
        } else {
            for Finding { check, severity, says, todo } in &self.findings {
                let sign = match severity {
                    Severity::Well => "well",
                    Severity::Warning => "WARN",
                    Severity::Error => "FAIL",
                };
                let todo = todo.as_ref().map_or_else(String::new, |todo| format!(": {todo}"));
                writeln!(out, "{sign}  {check:<12} {says}{todo}")?;
            }
        }
        let worst = self.findings.iter().map(|finding| finding.severity).max();
        Ok(match worst {
            None | Some(Severity::Well) => ExitCode::SUCCESS,
            Some(Severity::Warning) => ExitCode::from(1),
            Some(Severity::Error) => ExitCode::from(2),
        })
    }

    /// Checks that nobody else can read the file of a secret.
    pub fn secret_file(&mut self, setting: &'static str, file: Option<&Path>) {
        let Some(file) = file else { return };
        match fs::metadata(file) {
            Ok(found) => {
                let mode = found.permissions().mode() & 0o777;
                let says = format!("{setting}: {} has mode {mode:03o}", file.display());
                if mode & TOO_OPEN == 0 {
                    self.well("secrets", says);
                } else {
                    self.warn(
                        "secrets",
                        says,
                        "chmod it to 600, or to 640 for a group that only the service has",
                    );
                }
            }
            Err(e) => {
                self.fail(
                    "secrets",
                    format!("{setting}: {}: {e}", file.display()),
                    "create the file, or correct the setting",
                );
            }
        }
    }

    fn internal_token(&mut self, common: &Common, from: InternalTokenOf) {
        self.secret_file("FAREGATE_INTERNAL_TOKEN_FILE", common.internal_token_file.as_deref());
        let says = |token: &Option<SecretString>| match token {
            Some(token) => {
                let print = fingerprint(token);
                format!("the internal token has the fingerprint {print}; it must be the same in all services")
            }
            None => "the internal token is generated and stored in the data directory".to_owned(),
        };
        let token = match from {
            InternalTokenOf::Settings => common.required_internal_token().map(Some),
            InternalTokenOf::SettingsOrDataDirectory => common.internal_token(),
        };
        self.check("secrets", token, says);
    }

    /// Adds a finding about the limits of the process, and how many connections they allow.
    fn limits(&mut self, limits: &Limits, connections: Result<usize, ConfigError>) {
        let says = |connections: &usize| {
            let (files, mib) = (limits.files, limits.memory >> 20);
            format!("{files} open files and {mib} MiB of memory allow {connections} connections")
        };
        if self.check("limits", connections, says).is_some() && limits.files < FEW_FILES {
            self.warn("limits", "the limit of open files is low", "raise LimitNOFILE, or `ulimit -n`");
        }
    }

    fn catalogue(&mut self, common: &Common) -> Option<Catalog> {
        let says = |catalog: &Catalog| {
            let upstreams: usize = catalog.models.iter().map(|model| model.upstreams.len()).sum();
            format!(
                "{} models with {upstreams} upstreams, checksum {}",
                catalog.models.len(),
                catalog.checksum
            )
        };
        self.check("catalogue", common.catalog(), says)
    }

    /// Reads the certificate of the public port, if there is one.
    pub fn public_tls(&mut self, options: &PublicTlsOptions) -> Option<PublicTls> {
        let says = |tls: &Option<PublicTls>| match tls {
            Some(_) => "the public port uses TLS".to_owned(),
            None => "the public port does not use TLS, so a proxy in front of it must".to_owned(),
        };
        self.check("certificates", options.open(), says).flatten()
    }

    /// Reads the certificates for calls between the services. Returns `None` if they cannot be used, and `Some(None)`
    /// if calls are not encrypted.
    pub fn internal_tls(&mut self, options: &TlsOptions) -> Option<Option<Tls>> {
        self.check("certificates", options.open(), |tls| match tls {
            Some(_) => "calls between services use mutual TLS".to_owned(),
            None => "calls between services are not encrypted".to_owned(),
        })
    }

    /// Adds a finding for each certificate about when it expires.
    fn certificates(&mut self) {
        for (setting, end) in validity::in_use() {
            match validity::warning(end) {
                None => self.well(
                    "certificates",
                    format!("{setting}: the certificate expires in {} days", validity::days_left(end)),
                ),
                Some(says) => {
                    self.warn("certificates", format!("{setting}: {says}"), "renew the file and send SIGHUP");
                }
            }
        }
    }

    /// Asks every upstream of the catalogue for its models and their windows. The requests carry the upstream's
    /// credential.
    async fn upstreams(&mut self, catalog: &Catalog) {
        let findings = check_servers(catalog).await;
        for model in &catalog.models {
            let found: Vec<_> = findings.iter().filter(|finding| finding.model == model.id).collect();
            if model.upstreams.iter().all(|upstream| upstream.url.is_none()) {
                self.well(
                    "upstreams",
                    format!("{}: served by the demo model, which needs no check", model.id),
                );
            } else if found.is_empty() {
                self.well("upstreams", format!("{}: its servers keep what the catalogue promises", model.id));
            }
            for finding in found {
                let place = format!("{}: {}", finding.model, finding.upstream);
                match &finding.kind {
                    FindingKind::Promise(says) => {
                        self.fail(
                            "upstreams",
                            format!("{place}: {says}"),
                            "correct the catalogue or the server",
                        );
                    }
                    FindingKind::NotTold(says) => {
                        self.warn(
                            "upstreams",
                            format!("{place}: {says}"),
                            "check its address and its credential",
                        );
                    }
                }
            }
        }
    }
}

/// Returns the first digits of a secret's hash. They show whether two machines have the same secret, and reveal nothing
/// about a random one.
fn fingerprint(secret: &SecretString) -> String {
    let hash = digest(&SHA256, secret.expose_secret().as_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:08x}", u32::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_the_exit_status() {
        let mut doctor = Doctor::default();
        let report = |doctor: &Doctor, json| {
            let mut out = Vec::new();
            let code = doctor.report(&DoctorOptions { json }, &mut out).unwrap();
            (format!("{code:?}"), String::from_utf8(out).unwrap())
        };
        let code = |code: u8| format!("{:?}", ExitCode::from(code));
        doctor.well("store", "answers");
        assert_eq!(report(&doctor, false), (code(0), "well  store        answers\n".into()));
        doctor.warn("clock", "differs by 2 s", "set it");
        assert_eq!(report(&doctor, false).0, code(1));
        doctor.fail("store", "is away", "start it");
        let (worst, text) = report(&doctor, false);
        assert_eq!(worst, code(2));
        assert!(
            text.ends_with(
                "WARN  clock        differs by 2 s: set it\nFAIL  store        is away: start it\n"
            ),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&report(&doctor, true).1).unwrap();
        assert_eq!((&json[1]["severity"], &json[2]["todo"]), (&"warning".into(), &"start it".into()));
        assert_eq!(json[0].get("todo"), None);
    }
}
