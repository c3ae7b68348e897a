//! Settings of the mail server for alerts.

use std::path::PathBuf;

use clap::Args;
use shared::secret::SecretString;
use shared_config::{ConfigError, either, parse_secret};

use key_service_deliveries::{BadMail, Mailer};

#[derive(Args, Clone, Debug)]
#[group(id = "mail")]
pub struct MailOptions {
    /// URL of the mail server for alerts: smtps://USER:PASSWORD@HOST, smtp://HOST?tls=required or smtp://HOST
    #[arg(long, env = "FAREGATE_SMTP_URL", value_name = "URL", hide_env_values = true, value_parser = parse_secret)]
    pub smtp_url: Option<SecretString>,

    /// File with the URL of the mail server, for a URL that contains a password
    #[arg(long, env = "FAREGATE_SMTP_URL_FILE", value_name = "FILE")]
    pub smtp_url_file: Option<PathBuf>,

    /// Sender of mails, such as Faregate <faregate@example.com>; required with a mail server
    #[arg(long, env = "FAREGATE_SMTP_FROM", value_name = "ADDRESS")]
    pub smtp_from: Option<String>,
}

impl MailOptions {
    /// Returns the mail server, if there is one.
    pub fn mailer(&self) -> Result<Option<Mailer>, ConfigError> {
        let url = either(
            ("FAREGATE_SMTP_URL", self.smtp_url.as_ref()),
            ("FAREGATE_SMTP_URL_FILE", self.smtp_url_file.as_deref()),
        )?;
        let Some(url) = url else { return Ok(None) };
        let missing = || ConfigError::new("FAREGATE_SMTP_FROM", "must be set if there is a mail server");
        let from = self.smtp_from.as_deref().ok_or_else(missing)?;
        let bad = |bad| match bad {
            BadMail::From => ConfigError::new("FAREGATE_SMTP_FROM", bad),
            BadMail::Url | BadMail::Unencrypted => ConfigError::new("FAREGATE_SMTP_URL", bad),
        };
        Mailer::new(&url, from).map(Some).map_err(bad)
    }

    /// Returns whether there is a mail server.
    pub const fn is_set(&self) -> bool {
        self.smtp_url.is_some() || self.smtp_url_file.is_some()
    }
}
