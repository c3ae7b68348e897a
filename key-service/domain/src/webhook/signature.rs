//! Secrets of webhooks, and signatures by the Standard Webhooks specification.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hmac;
use shared::{ids::EventId, secret::SecretString, time::Timestamp};

use crate::digest::Digest;

/// Secret that signs the deliveries of a webhook. Cannot be printed.
#[derive(Clone)]
pub struct WebhookSecret([u8; 32]);

impl WebhookSecret {
    /// A secret of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret as receivers configure it.
    pub fn plaintext(&self) -> SecretString {
        format!("whsec_{}", STANDARD.encode(self.0)).into()
    }

    /// Digest by which the secret is recognised.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    /// Value of the header `webhook-signature` of an attempt at this time.
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
        let secret = WebhookSecret::new([7; 32]);
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
}
