//! Sends mails by SMTP. Each attempt opens a new connection, and ends after ten seconds whatever the server does.

use std::{error::Error as _, io, time::Duration};

use lettre::{
    Message as Mail,
    message::{Mailbox, header::ContentType},
    transport::smtp,
};
use parking_lot::Mutex;
use shared::{
    ids::EventId,
    secret::{ExposeSecret, SecretString},
};
use tokio::time::{Instant, timeout};

use crate::{
    alerts::{
        message::AlertMessage,
        smtp::{BadMail, SmtpServer},
    },
    sender::ATTEMPT_DEADLINE,
};
use domain::webhook::ReceiverAnswer;

/// Pause after an attempt without an answer. Without the pause, attempts that hang would soon take every slot, and
/// other channels and webhooks would get none.
const SILENCE: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "no answer in time";
const LEFT_ALONE: &str = "not tried, because the mail server did not answer a moment ago";

/// Sends mails through one server.
pub struct Mailer {
    server: SmtpServer,
    from: Mailbox,
    pub(crate) deadline: Duration,
    /// Pause after an attempt without an answer.
    pub(crate) pause: Duration,
    /// End of the pause; `None` if the server answered the last attempt.
    silent_until: Mutex<Option<Instant>>,
}

impl Mailer {
    /// Makes a mailer for the server at this URL. Passwords are sent only with TLS, or to this machine.
    pub fn new(url: &SecretString, from: &str) -> Result<Self, BadMail> {
        let server = SmtpServer::parse(url.expose_secret())?;
        let from = from.parse().map_err(|_| BadMail::From)?;
        let silent_until = Mutex::default();
        Ok(Self { server, from, deadline: ATTEMPT_DEADLINE, pause: SILENCE, silent_until })
    }

    /// Connects to the server, signs in, and sends nothing. The error says why that failed.
    pub async fn check(&self) -> Result<(), String> {
        match timeout(self.deadline, self.server.connect()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(match error.status() {
                Some(code) => format!("it answers {code}"),
                None => reason(&error).to_owned(),
            }),
            Err(_) => Err(NO_ANSWER.to_owned()),
        }
    }

    /// Sends a message once. Repeated attempts have the same `Message-ID`. The returned status is the SMTP status of
    /// the server's answer.
    pub(super) async fn send(&self, to: &str, event: EventId, message: &AlertMessage) -> ReceiverAnswer {
        let none = |reason: &str| ReceiverAnswer::None(reason.to_owned());
        let Some(mail) = self.mail(to, event, message) else { return none("the mail cannot be written") };
        if !self.may_try() {
            return none(LEFT_ALONE);
        }
        let answer = match timeout(self.deadline, self.server.send(&mail)).await {
            Ok(Ok(code)) => Ok(code),
            Ok(Err(error)) => error.status().ok_or_else(|| reason(&error)),
            Err(_) => Err(NO_ANSWER),
        };
        let is_silent = answer == Err(NO_ANSWER);
        *self.silent_until.lock() = is_silent.then(|| Instant::now() + self.pause);
        answer.map_or_else(none, |code| ReceiverAnswer::Status(code.into()))
    }

    /// Returns whether to make an attempt now. After a pause, one attempt finds out whether the server answers again.
    /// Until then, no other attempt is made.
    fn may_try(&self) -> bool {
        let mut silent_until = self.silent_until.lock();
        let Some(until) = *silent_until else { return true };
        let is_over = until <= Instant::now();
        if is_over {
            *silent_until = Some(Instant::now() + self.pause);
        }
        is_over
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

/// Returns the reason why an attempt failed, for the owner. The reason contains neither addresses nor the server's
/// words.
fn reason(error: &smtp::Error) -> &'static str {
    if error.is_timeout() {
        NO_ANSWER
    } else if is_of_tls(error) {
        "cannot establish a TLS connection"
    } else if error.is_client() {
        "the server does not support what its URL asks for"
    } else if error.is_response() {
        "the answer is not SMTP, or incomplete"
    } else {
        "cannot connect, or the connection broke"
    }
}

/// Returns whether TLS failed. Such an error is inside an I/O error.
fn is_of_tls(error: &smtp::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(inner) = inner
            && inner.is::<rustls::Error>()
        {
            return true;
        }
        cause = error.source();
    }
    false
}
