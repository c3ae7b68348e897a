//! Secret tokens for links, cookies and visits.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use shared::{ids::AccountId, secret::SecretString};

use domain::digest::Digest;
use key_service_store::store::operators;

/// A secret for a link or cookie, together with its account's id. Only that id is public.
#[derive(Clone, Debug)]
pub struct Token {
    pub account: AccountId,
    secret: [u8; 32],
}

impl Token {
    /// Length of a token: an account's id and 256 random bits.
    const BYTES: usize = 48;

    pub(crate) fn new(account: AccountId, secret: [u8; 32]) -> Self {
        Self { account, secret }
    }

    /// Parses the text of a token, as written by [`Self::reveal`].
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?;
        let (account, secret) = bytes.split_at(16);
        Some(Self::new(AccountId::from_slice(account)?, secret.try_into().ok()?))
    }

    /// Returns whether the token is an operator's.
    pub(crate) fn is_operators(&self) -> bool {
        self.account == operators()
    }

    /// Returns the text of a token for a link or a cookie.
    pub fn reveal(&self) -> SecretString {
        let bytes = [self.account.as_bytes(), &self.secret[..]].concat();
        URL_SAFE_NO_PAD.encode(bytes).into()
    }

    /// Returns the digest under which a token is stored. It needs no pepper, because the secret has 256 random bits.
    pub fn digest(&self, purpose: &str) -> Digest {
        Digest::of(&[purpose.as_bytes(), &[0], &self.secret].concat())
    }
}
