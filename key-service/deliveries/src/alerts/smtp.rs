//! One exchange with a mail server. The server's answer to the mail counts, even if the server does not answer the
//! commands after it.

use std::time::Duration;

use http::Uri;
use lettre::{
    Message,
    transport::smtp::{
        Error,
        authentication::{Credentials, DEFAULT_MECHANISMS},
        client::{AsyncSmtpConnection, TlsParameters},
        commands::{Data, Mail, Rcpt},
        extension::ClientId,
        response::Code,
    },
};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

/// Maximum time to connect to one of the host's addresses, so that another can be tried within an attempt.
const CONNECT_DEADLINE: Duration = Duration::from_secs(4);
/// Maximum time to wait for the answer to `QUIT` after a mail was accepted.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why the settings of a mail server cannot be used. The message never contains the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMail {
    #[error("must be smtps://user:password@host, smtp://host?tls=required or smtp://host")]
    Url,
    #[error("has a password and no TLS; write smtps://, or add ?tls=required")]
    Unencrypted,
    #[error("must be an email address, such as Faregate <faregate@example.com>")]
    From,
}

/// A server that sends mails.
pub(super) struct SmtpServer {
    host: String,
    port: u16,
    encryption: Encryption,
    hello: ClientId,
    credentials: Option<Credentials>,
}

enum Encryption {
    Without,
    /// TLS after the command STARTTLS, which the server must support.
    Started(TlsParameters),
    /// TLS from the first byte.
    Whole(TlsParameters),
}

impl SmtpServer {
    /// Reads the server's URL. A password needs TLS, unless the server is on this machine.
    pub(super) fn parse(url: &str) -> Result<Self, BadMail> {
        let url: Uri = url.parse().map_err(|_| BadMail::Url)?;
        let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
            return Err(BadMail::Url);
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(BadMail::Url);
        }
        let query = url.query().unwrap_or_default();
        let is_encrypted = scheme == "smtps" || query == "tls=required";
        let is_here = ["localhost", "127.0.0.1", "::1"].contains(&host.as_str());
        let user = match authority.as_str().rsplit_once('@') {
            Some((user, _)) => Some(user.split_once(':').ok_or(BadMail::Url)?),
            None => None,
        };
        if user.is_some() && !is_encrypted && !is_here {
            return Err(BadMail::Unencrypted);
        }
        let tls = || TlsParameters::new(host.clone()).map_err(|_| BadMail::Url);
        let (usual_port, encryption) = match (scheme, query) {
            ("smtp", "") => (25, Encryption::Without),
            ("smtp", "tls=required") => (587, Encryption::Started(tls()?)),
            ("smtps", "") => (465, Encryption::Whole(tls()?)),
            _ => return Err(BadMail::Url),
        };
        let text = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            decoded.map(String::from).map_err(|_| BadMail::Url)
        };
        let credentials = match user {
            Some((user, password)) => Some(Credentials::new(text(user)?, text(password)?)),
            None => None,
        };
        let hello = match url.path().trim_matches('/') {
            "" => ClientId::default(),
            name => ClientId::Domain(name.to_owned()),
        };
        let port = url.port_u16().unwrap_or(usual_port);
        Ok(Self { host, port, encryption, hello, credentials })
    }

    /// Connects and signs in.
    pub(super) async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let place = (self.host.as_str(), self.port);
        let whole = match &self.encryption {
            Encryption::Whole(tls) => Some(tls.clone()),
            Encryption::Without | Encryption::Started(_) => None,
        };
        let deadline = Some(CONNECT_DEADLINE);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(place, deadline, &self.hello, whole, None).await?;
        if let Encryption::Started(tls) = &self.encryption {
            connection.starttls(tls.clone(), &self.hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }

    /// Sends a mail, and returns the status of the answer.
    pub(super) async fn send(&self, mail: &Message) -> Result<Code, Error> {
        let mut connection = self.connect().await?;
        let envelope = mail.envelope();
        connection.command(Mail::new(envelope.from().cloned(), Vec::new())).await?;
        for to in envelope.to() {
            connection.command(Rcpt::new(to.clone(), Vec::new())).await?;
        }
        connection.command(Data).await?;
        let answer = connection.message(&mail.formatted()).await?;
        // The server has accepted the mail. If it hangs now, the mail must not be sent again.
        tokio::spawn(async move { drop(timeout(GOODBYE, connection.quit()).await) });
        Ok(answer.code())
    }
}
