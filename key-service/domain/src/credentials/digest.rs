//! The stored form of a key: a keyed BLAKE3 hash of the plaintext.

use std::fmt;

use hex::FromHex as _;
use minicbor::{Decode, Encode};
use shared::secret::{ExposeSecret, SecretString};

/// The secret key of the hash. Without the pepper, a stolen store contains no usable keys, and does not help to guess
/// one.
#[derive(Clone)]
pub struct Pepper([u8; 32]);

impl Pepper {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses a pepper of 64 hexadecimal digits, as in the configuration.
    pub fn from_hex(digits: &SecretString) -> Option<Self> {
        <[u8; 32]>::from_hex(digits.expose_secret()).ok().map(Self)
    }

    /// Derives from the pepper a secret that reveals neither the pepper nor other secrets.
    pub(crate) fn derive(&self, context: &'static str, of: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.0).update(of);
        *hasher.finalize().as_bytes()
    }

    fn digest(&self, plaintext: &str) -> Digest {
        Digest(*blake3::keyed_hash(&self.0, plaintext.as_bytes()).as_bytes())
    }
}

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper(…)")
    }
}

/// The current pepper and, during a rotation, the previous one.
#[derive(Clone, Debug)]
pub struct Peppers {
    pub current: Pepper,
    /// Older keys are still found with this pepper.
    pub previous: Option<Pepper>,
}

impl Peppers {
    /// Returns the digest under which a new key is stored.
    pub fn digest(&self, plaintext: &SecretString) -> Digest {
        self.current.digest(plaintext.expose_secret())
    }

    /// Lists all peppers, the current one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Pepper> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// Lists the digests under which a presented key may be stored, the most likely first.
    pub fn candidates<'a>(&'a self, plaintext: &'a str) -> impl Iterator<Item = Digest> + 'a {
        self.all().map(move |pepper| pepper.digest(plaintext))
    }
}

/// SHA-256 of the plaintext of another gateway's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ForeignKey([u8; 32]);

impl ForeignKey {
    pub const fn new(sha256: [u8; 32]) -> Self {
        Self(sha256)
    }

    /// Parses a SHA-256 of 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Self> {
        <[u8; 32]>::from_hex(digits).ok().map(Self)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the text that is hashed instead of the plaintext. It contains a NUL, which no plaintext has.
    pub fn text(&self) -> String {
        format!("sha256\0{}", hex::encode(self.0))
    }

    /// Returns the part that may be shown. The plaintext is not known.
    pub fn hint(&self) -> String {
        let digits = hex::encode(self.0);
        format!("sha256:{}…{}", &digits[..4], &digits[60..])
    }
}

/// Prints nothing: the SHA-256 of a weak key would reveal the key.
impl fmt::Debug for ForeignKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignKey(…)")
    }
}

/// A BLAKE3 hash. For a key, it is `blake3::keyed_hash(pepper, plaintext)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(#[cbor(n(0), with = "minicbor::bytes")] [u8; 32]);

impl Digest {
    /// Returns the unkeyed BLAKE3 hash of data that is not secret. It is used to distinguish requests.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses a digest of 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Self> {
        <[u8; 32]>::from_hex(digits).ok().map(Self)
    }

    /// Returns the digest's 32 bytes, as stores keep them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_made_before_a_rotation_is_still_found() {
        let (old, new) = (Pepper::new([1; 32]), Pepper::new([2; 32]));
        let before = Peppers { current: old.clone(), previous: None };
        let after = Peppers { current: new, previous: Some(old) };
        let stored = before.digest(&"fg_api_x".into());
        assert!(after.candidates("fg_api_x").any(|d| d == stored));
        assert_ne!(after.digest(&"fg_api_x".into()), stored);
    }

    #[test]
    fn a_pepper_is_64_hexadecimal_digits_and_is_never_printed() {
        let hex = "0f".repeat(32);
        let pepper = Pepper::from_hex(&hex.clone().into()).unwrap();
        assert_eq!(pepper.0, [15; 32]);
        assert!(!format!("{pepper:?}").contains("15"));
        for bad in ["", "0f", &hex[1..], &format!("{}g", &hex[1..]), &format!("{hex}0f")] {
            assert!(Pepper::from_hex(&bad.to_owned().into()).is_none());
        }
    }
}
