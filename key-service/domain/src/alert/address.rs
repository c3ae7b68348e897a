//! Addresses of alerts. They are secrets: whoever has the URL of an incoming webhook can write to its channel.

use std::fmt;

use minicbor::{Decode, Encode};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use shared::{
    ids::AlertId,
    secret::{ExposeSecret, SecretString},
    wire::MAX_ALERT_ADDRESS_CHARS,
};

use crate::{
    alert::channel::{AlertFault, Channel},
    credentials::digest::{Pepper, Peppers},
    webhook::{Host, WebhookUrl},
};

/// Context in which keys are derived from a pepper.
const CONTEXT: &str = "faregate 2026-11-29 addresses of alerts";
/// Maximum length of an email address's part before the `@` (RFC 5321).
const MAX_LOCAL_PART: usize = 64;

/// The part of an address that may be shown, and the whole address, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertAddress {
    pub shown: String,
    pub sealed: Sealed,
}

/// A text that can be opened only with the pepper. It begins with the nonce.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Sealed(#[cbor(n(0), with = "minicbor::bytes")] Vec<u8>);

/// Where messages go.
#[derive(Clone, PartialEq, Eq)]
pub enum AlertDestination {
    /// To the account's webhooks, as an event.
    Webhooks,
    Email(String),
    Url(WebhookUrl),
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed(…)")
    }
}

/// Prints only the host of a URL.
impl fmt::Debug for AlertDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlertDestination({})", self.shown())
    }
}

impl Sealed {
    /// Seals an address of this alert. `nonce` is random.
    pub fn new(pepper: &Pepper, alert: AlertId, address: &SecretString, nonce: [u8; NONCE_LEN]) -> Self {
        let mut sealed = address.expose_secret().as_bytes().to_vec();
        let aad = Aad::from(alert.as_bytes());
        let tag = key(pepper, alert).and_then(|key| {
            let nonce = Nonce::assume_unique_for_key(nonce);
            key.seal_in_place_separate_tag(nonce, aad, &mut sealed).ok()
        });
        // A text of a few kilobytes can always be sealed. If it could not, nothing would be kept.
        let Some(tag) = tag else { return Self(Vec::new()) };
        Self([&nonce[..], &sealed, tag.as_ref()].concat())
    }

    /// Opens the address of this alert; `None` if none of these peppers sealed it.
    pub fn open(&self, peppers: &Peppers, alert: AlertId) -> Option<SecretString> {
        let (nonce, sealed) = self.0.split_first_chunk::<NONCE_LEN>()?;
        peppers.all().find_map(|pepper| {
            let mut bytes = sealed.to_vec();
            let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(alert.as_bytes()));
            let opened = key(pepper, alert)?.open_in_place(nonce, aad, &mut bytes).ok()?;
            std::str::from_utf8(opened).ok().map(SecretString::from)
        })
    }
}

fn key(pepper: &Pepper, alert: AlertId) -> Option<LessSafeKey> {
    let derived = pepper.derive(CONTEXT, alert.as_bytes());
    UnboundKey::new(&CHACHA20_POLY1305, &derived).ok().map(LessSafeKey::new)
}

impl AlertDestination {
    /// Reads an address for a channel.
    pub fn parse(channel: Channel, text: &str) -> Result<Self, AlertFault> {
        match channel {
            Channel::Webhook if text.is_empty() => Ok(Self::Webhooks),
            Channel::Webhook => Err(AlertFault::NeedsNone),
            Channel::Email if is_email(text) => Ok(Self::Email(text.to_owned())),
            Channel::Email => Err(AlertFault::NoEmail),
            Channel::Slack | Channel::Teams => {
                WebhookUrl::parse(text).map(Self::Url).map_err(AlertFault::Url)
            }
        }
    }

    /// Returns what may be shown of the address. The path of an incoming webhook is its secret.
    pub fn shown(&self) -> String {
        match self {
            Self::Webhooks => String::new(),
            Self::Email(address) => address.clone(),
            Self::Url(url) => {
                let (scheme, rest) = url.as_str().split_once("://").unwrap_or_default();
                let authority = rest.split(['/', '?']).next().unwrap_or_default();
                format!("{scheme}://{authority}/…")
            }
        }
    }
}

/// Returns whether a text is an email address in its usual form. It contains no character that means something in SMTP
/// or in the header of a mail.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
    let is_dotted = !local.starts_with('.') && !local.ends_with('.') && !local.contains("..");
    text.len() <= MAX_ALERT_ADDRESS_CHARS
        && (1..=MAX_LOCAL_PART).contains(&local.len())
        && local.bytes().all(is_local)
        && is_dotted
        && !domain.contains(':')
        && matches!(Host::parse(domain), Some(Host::Name(name)) if !name.ends_with('.'))
}
