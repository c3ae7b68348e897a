//! Webhook secrets, and signatures according to the Standard Webhooks specification.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hmac;
use shared::{
    ids::{EventId, WebhookId},
    secret::SecretString,
    time::Timestamp,
};

use crate::credentials::digest::{Digest, Pepper, Peppers};

/// Context in which secrets are derived from a pepper.
const CONTEXT: &str = "faregate 2026-11-23 secrets of webhooks";

/// Secret that signs a webhook's deliveries. It cannot be printed and is not stored: it is derived from the pepper and
/// the webhook's id.
#[derive(Clone)]
pub struct WebhookSecret([u8; 32]);

impl WebhookSecret {
    /// Derives the secret of a webhook from this pepper.
    pub fn new(pepper: &Pepper, webhook: WebhookId) -> Self {
        Self(pepper.derive(CONTEXT, webhook.as_bytes()))
    }

    /// Derives a stored webhook's secret from whichever pepper reproduces the stored digest; `None` if none does.
    pub fn of(peppers: &Peppers, webhook: WebhookId, stored: &Digest) -> Option<Self> {
        let mut secrets = peppers.all().map(|pepper| Self::new(pepper, webhook));
        secrets.find(|secret| secret.digest() == *stored)
    }

    /// Returns the secret as receivers configure it.
    pub fn plaintext(&self) -> SecretString {
        format!("whsec_{}", STANDARD.encode(self.0)).into()
    }

    /// Returns the digest that identifies the secret.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    /// Returns the header `webhook-signature` of an attempt at this time.
    pub fn sign(&self, event: EventId, at: Timestamp, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let content = format!("{event}.{}.{body}", at.seconds());
        format!("v1,{}", STANDARD.encode(hmac::sign(&key, content.as_bytes())))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use shared::secret::ExposeSecret;

    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        let secret = WebhookSecret([7; 32]);
        assert_eq!(secret.plaintext().expose_secret(), "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
        let event = "evt_0198f3c2a7b84d5e9f60718293a4b5c6".parse().unwrap();
        let at = Timestamp::from_millis(1_795_140_665_678);
        // openssl dgst -sha256 -mac HMAC -macopt hexkey:0707… of "evt_….1795140665.{"type":"key.created"}"
        assert_eq!(
            secret.sign(event, at, r#"{"type":"key.created"}"#),
            "v1,f5IBBsPoOiTS0J6bkUaz4dhGHiv8qNRhFTnkFwCbhLk="
        );
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
    }

    #[test]
    fn a_webhook_made_before_a_rotation_keeps_its_secret() {
        let at = Timestamp::from_millis(1_795_000_000_000);
        let [one, other] = [1, 2].map(|n| WebhookId::new(at, [n; 10]));
        let (old, new) = (Pepper::new([1; 32]), Pepper::new([2; 32]));
        let secret = WebhookSecret::new(&old, one);
        assert_ne!(secret.digest(), WebhookSecret::new(&old, other).digest());
        assert_ne!(secret.digest(), WebhookSecret::new(&new, one).digest());
        let digest = secret.digest();
        let found = |current: &Pepper, previous: Option<&Pepper>| {
            let peppers = Peppers { current: current.clone(), previous: previous.cloned() };
            WebhookSecret::of(&peppers, one, &digest).map(|secret| secret.digest())
        };
        assert_eq!((found(&old, None), found(&new, Some(&old))), (Some(digest), Some(digest)));
        assert_eq!(found(&new, None), None);
    }
}
