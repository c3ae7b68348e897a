//! Sends mails by SMTP. Each attempt opens a new connection, and ends after ten seconds whatever the server does.

use std::{error::Error as _, time::Duration};

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message as Mail, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp,
};
use shared::{
    ids::EventId,
    secret::{ExposeSecret, SecretString},
};
use tokio::time::timeout;

use crate::{alerts::message::AlertMessage, sender::ATTEMPT_DEADLINE};
use domain::webhook::ReceiverAnswer;

/// Sends mails through one server.
pub struct Mailer {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    pub(crate) deadline: Duration,
}

/// Why the settings of a mail server cannot be used. It never contains the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMail {
    #[error("must be smtps://user:password@host, smtp://host?tls=required or smtp://host")]
    Url,
    #[error("has a password and no TLS; write smtps://, or add ?tls=required")]
    Unencrypted,
    #[error("must be an email address, such as Faregate <faregate@example.com>")]
    From,
}

impl Mailer {
    /// Makes a mailer for the server at this URL. Passwords are sent only with TLS, or to this machine.
    pub fn new(url: &SecretString, from: &str) -> Result<Self, BadMail> {
        let text = url.expose_secret();
        let (scheme, rest) = text.split_once("://").ok_or(BadMail::Url)?;
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = authority.split('/').next().unwrap_or(authority);
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let is_here = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .any(|here| host.strip_prefix(here).is_some_and(|port| port.is_empty() || port.starts_with(':')));
        let is_encrypted = scheme == "smtps" || query.split('&').any(|part| part == "tls=required");
        if user.contains(':') && !is_encrypted && !is_here {
            return Err(BadMail::Unencrypted);
        }
        let server = AsyncSmtpTransport::<Tokio1Executor>::from_url(text).map_err(|_| BadMail::Url)?;
        let from = from.parse().map_err(|_| BadMail::From)?;
        let deadline = ATTEMPT_DEADLINE;
        Ok(Self { server: server.timeout(Some(deadline)).build(), from, deadline })
    }

    /// Connects to the server, signs in, and sends nothing. The error says why that failed.
    pub async fn check(&self) -> Result<(), String> {
        match timeout(self.deadline, self.server.test_connection()).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("the server ends the connection".to_owned()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Sends a message once. Repeated attempts have the same `Message-ID`. The answer's status is SMTP's.
    pub(super) async fn send(&self, to: &str, event: EventId, message: &AlertMessage) -> ReceiverAnswer {
        let Some(mail) = self.mail(to, event, message) else {
            return ReceiverAnswer::None("the mail cannot be written".to_owned());
        };
        match timeout(self.deadline, self.server.send(mail)).await {
            Ok(Ok(response)) => ReceiverAnswer::Status(response.code().into()),
            Ok(Err(error)) => match error.status() {
                Some(code) => ReceiverAnswer::Status(code.into()),
                None => ReceiverAnswer::None(reason(&error)),
            },
            Err(_) => ReceiverAnswer::None("no answer in time".to_owned()),
        }
    }

    fn mail(&self, to: &str, event: EventId, message: &AlertMessage) -> Option<Mail> {
        let link = message.url.as_ref().map(|url| format!("\n\n{url}")).unwrap_or_default();
        let body = format!("{}\n\n{}{link}\n", message.title, message.text());
        let id = format!("<{event}@{}>", self.from.email.domain());
        let mail = Mail::builder()
            .from(self.from.clone())
            .to(to.parse().ok()?)
            .subject(&message.title)
            .message_id(Some(id))
            .header(ContentType::TEXT_PLAIN);
        mail.body(body).ok()
    }
}

/// Returns the reason why an attempt failed, for the owner. It contains neither addresses nor what the server said.
fn reason(error: &smtp::Error) -> String {
    let says = if error.is_timeout() {
        "no answer in time"
    } else if error.is_tls() {
        "cannot establish a TLS connection"
    } else if error.is_response() {
        "the answer is not SMTP"
    } else if error.source().is_some() {
        "cannot connect, or the connection broke"
    } else {
        "the server does not support what its URL asks for"
    };
    says.to_owned()
}
