//! Ids of calls for servers that refuse other forms. An id only links a call and its answer, so both get the same new
//! id.

use raw_json::RawString;

/// Maximum length in characters of an id that every vendor accepts.
const MOST: usize = 64;
/// Characters of the ids that Mistral accepts.
const NINE: usize = 9;
/// Digits of the digest that replaces a long id.
const DIGEST_DIGITS: usize = 32;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns a replacement for an id that is too long. Both are JSON strings.
pub(super) fn short(token: &str) -> Option<String> {
    if token.len() <= MOST + 2 {
        return None;
    }
    let id = RawString::trusted(token).decoded();
    (id.chars().count() > MOST).then(|| digest(&id))
}

/// Returns a replacement of nine letters and digits for any other id. Both are JSON strings.
pub(crate) fn nine(token: &str) -> Option<String> {
    let id = RawString::trusted(token).decoded();
    if id.len() == NINE && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let key = blake3::derive_key("faregate 2026 ids of calls of nine characters", id.as_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&key[..16]);
    let mut number = u128::from_le_bytes(first);
    let mut digit = || {
        let digit = DIGITS[(number % 62) as usize];
        number /= 62;
        char::from(digit)
    };
    Some(format!("\"{}\"", (0..NINE).map(|_| digit()).collect::<String>()))
}

/// Returns a replacement for an id that the Messages or Responses API refuses, as a JSON string.
pub(crate) fn plain(id: &str) -> Option<String> {
    let is_taken = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (id.len() > MOST || !id.bytes().all(is_taken)).then(|| digest(id))
}

fn digest(id: &str) -> String {
    let digest = blake3::derive_key("faregate 2026 ids of calls for other APIs", id.as_bytes());
    let digest = blake3::Hash::from_bytes(digest).to_hex();
    format!("\"call_{}\"", &digest[..DIGEST_DIGITS])
}
