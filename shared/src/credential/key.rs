//! Plaintext of a key: `<prefix>_api_` or `<prefix>_mgmt_`, then 43 random base62 characters and a checksum of 6.

use std::{borrow::Cow, fmt, ops::Range};

use crate::credential::secret::SecretString;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Number of base62 characters that 256 bits need, because 62^43 > 2^256.
const RANDOM_CHARS: usize = 43;

/// Number of base62 characters that 32 bits need, because 62^6 > 2^32.
const CHECKSUM_CHARS: usize = 6;

/// Maximum length in characters of the prefix that an installation may choose.
const MAX_PREFIX_CHARS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Api,
    Management,
    /// Keys of the installation's operators.
    Operator,
}

/// What a credential looks like that a caller presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// It is a key of this installation, according to its prefix and checksum.
    Own(Class),
    /// It may be an API key that was imported from another gateway.
    Foreign,
    /// It cannot be a credential, so it is refused without a look-up.
    Malformed,
}

/// Maximum length of an imported key in bytes. Keys in use are several times shorter.
const MAX_FOREIGN_BYTES: usize = 512;

impl Class {
    pub const ALL: [Self; 3] = [Self::Api, Self::Management, Self::Operator];

    const fn infix(self) -> &'static str {
        match self {
            Self::Api => "_api_",
            Self::Management => "_mgmt_",
            Self::Operator => "_oper_",
        }
    }
}

/// The text with which all keys of this installation begin: 1 to 16 characters `a-z0-9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        (allowed && (1..=MAX_PREFIX_CHARS).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// Makes the plaintext of a new key from 256 random bits.
    pub fn mint(&self, class: Class, random: [u8; 32]) -> SecretString {
        let body = format!("{}{}{}", self.0, class.infix(), base62(random));
        format!("{body}{}", checksum(&body)).into()
    }

    /// Says what a presented credential looks like. A text that begins like a key of this installation is either such a
    /// key or malformed.
    pub fn recognise(&self, presented: &str) -> Presented {
        let own = Class::ALL.into_iter().find_map(|class| {
            let rest = presented.strip_prefix(&self.0).and_then(|rest| rest.strip_prefix(class.infix()));
            rest.map(|rest| (class, rest))
        });
        let Some((class, rest)) = own else {
            let is_foreign = (1..=MAX_FOREIGN_BYTES).contains(&presented.len())
                && presented.bytes().all(|byte| byte.is_ascii_graphic());
            return if is_foreign { Presented::Foreign } else { Presented::Malformed };
        };
        if rest.len() != RANDOM_CHARS + CHECKSUM_CHARS || !rest.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Presented::Malformed;
        }
        let (body, sum) = presented.split_at(presented.len() - CHECKSUM_CHARS);
        if checksum(body) == sum { Presented::Own(class) } else { Presented::Malformed }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the part of a key that may be shown later: it is long enough to distinguish keys, and too short to guess a
/// key.
pub fn hint(plaintext: &str) -> String {
    let shown = plaintext.rfind('_').map_or(0, |at| at + 1 + 4);
    let head = plaintext.get(..shown).unwrap_or_default();
    let tail = plaintext.get(plaintext.len().saturating_sub(4)..).unwrap_or_default();
    format!("{head}…{tail}")
}

/// Texts with which secrets begin: keys of this program's classes, webhook secrets, and keys of other gateways, vendors
/// and platforms.
const BEFORE_SECRETS: [&str; 13] = [
    Class::Api.infix(),
    Class::Management.infix(),
    Class::Operator.infix(),
    WEBHOOK_SECRET,
    "sk-",
    "sk_",
    "hf_",
    "gsk_",
    "xai-",
    "AIza",
    "ghp_",
    "github_pat_",
    "glpat-",
];
/// Text with which webhook secrets begin. Base64 follows it.
const WEBHOOK_SECRET: &str = "whsec_";

/// Minimum number of characters after one of [`BEFORE_SECRETS`] that make a text count as a secret.
const SECRET_CHARS: usize = 16;

/// Removes the keys and webhook secrets of any installation from a text that is logged or shown in an error. Such texts
/// may quote paths and ids that clients sent.
pub fn without_keys(text: &str) -> Cow<'_, str> {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(Range { start, end }) = secret(rest) {
        kept.push_str(&rest[..start]);
        kept.push('…');
        rest = &rest[end..];
    }
    if kept.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(kept + rest) }
}

/// Returns the position of the first secret in a text.
fn secret(text: &str) -> Option<Range<usize>> {
    let secrets = BEFORE_SECRETS.into_iter().flat_map(|before| {
        text.match_indices(before).filter_map(move |(at, _)| {
            let is_within_word = !before.starts_with('_') && text[..at].ends_with(char::is_alphanumeric);
            let start = at + before.len();
            let is_of_secret =
                |c: char| is_secret_char(c) || (before == WEBHOOK_SECRET && matches!(c, '+' | '/' | '='));
            let length = text[start..].find(|c| !is_of_secret(c)).unwrap_or(text.len() - start);
            (length >= SECRET_CHARS && !is_within_word).then_some(start..start + length)
        })
    });
    secrets.min_by_key(|secret| secret.start)
}

const fn is_secret_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Returns the CRC-32 (IEEE) of a text as 6 base62 characters.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut chars = [0; CHECKSUM_CHARS];
    for char in chars.iter_mut().rev() {
        *char = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    chars.iter().map(|b| *b as char).collect()
}

/// Returns 256 bits as 43 base62 characters. It divides the big-endian number by 62 again and again.
fn base62(mut number: [u8; 32]) -> String {
    let mut chars = [0; RANDOM_CHARS];
    for char in chars.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX); // below 256: the remainder is below 62
            remainder = value % 62;
        }
        *char = ALPHABET[remainder as usize];
    }
    chars.iter().map(|b| *b as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::secret::ExposeSecret;

    fn prefix() -> Prefix {
        Prefix::parse("fg").unwrap()
    }

    #[test]
    fn plaintexts_of_keys_are_taken_out_of_texts() {
        let prefix = Prefix::parse("fg").unwrap();
        let key = prefix.mint(Class::Api, [7; 32]);
        let other = Prefix::parse("shop").unwrap().mint(Class::Management, [9; 32]);
        let third = prefix.mint(Class::Operator, [5; 32]);
        let (key, other, third) = (key.expose_secret(), other.expose_secret(), third.expose_secret());
        let text = format!("/v1/keys/{key}/{other}/{third}?x");
        assert_eq!(without_keys(&text), "/v1/keys/fg_api_…/shop_mgmt_…/fg_oper_…?x");
        assert_eq!(without_keys("/v1/my_api_keys/ünder"), "/v1/my_api_keys/ünder");
        assert_eq!(without_keys("/v1/sk-proj-0123456789_abcdef/x"), "/v1/sk-…/x");
        for kept in ["/v1/models/risk-model", "whsec_short+/=", "/v1/task_0123456789abcdefghij"] {
            assert_eq!(without_keys(kept), kept);
        }
        let webhook = "whsec_BwcH/wcH+wcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        assert_eq!(without_keys(&format!("find {webhook} and {webhook}")), "find whsec_… and whsec_…");
        assert_eq!(without_keys("hf_abcdefghijklmnopqrst"), "hf_…");
    }

    #[test]
    fn the_checksum_is_the_one_of_the_test_vector() {
        let body = "mdl_api_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg";
        assert_eq!(checksum(body), "1nb8r9");
        assert_eq!(
            Prefix::parse("mdl").unwrap().recognise(&format!("{body}1nb8r9")),
            Presented::Own(Class::Api)
        );
    }

    #[test]
    fn a_minted_key_is_recognised_and_any_changed_character_is_not() {
        for class in Class::ALL {
            let key = prefix().mint(class, [200; 32]);
            let key = key.expose_secret();
            assert_eq!(prefix().recognise(key), Presented::Own(class));
            for at in 0..key.len() {
                let mut changed = key.as_bytes().to_vec();
                changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
                let recognised = prefix().recognise(std::str::from_utf8(&changed).unwrap());
                let is_in_front = at < "fg".len() + class.infix().len();
                let expected = if is_in_front { Presented::Foreign } else { Presented::Malformed };
                assert_eq!(recognised, expected, "at {at}");
            }
        }
    }

    #[test]
    fn short_printable_text_of_any_other_shape_may_be_a_key_of_another_gateway() {
        for foreign in ["sk-abc", "fg", "other_api_key", "~", &"x".repeat(512)] {
            assert_eq!(prefix().recognise(foreign), Presented::Foreign, "{foreign}");
        }
        for bad in [
            "",
            "fg_api_",
            "fg_mgmt_x",
            "fg_oper_x",
            "fg_api_é",
            "sk-é",
            "sk a",
            "sk-\n",
            "sk-\0",
            &"x".repeat(513),
        ] {
            assert_eq!(prefix().recognise(bad), Presented::Malformed, "{bad}");
        }
    }

    #[test]
    fn all_256_bits_are_in_the_key() {
        assert_eq!(base62([0; 32]), "0".repeat(43));
        let mut one = [0; 32];
        one[31] = 61;
        assert!(base62(one).ends_with("00z"));
        assert_ne!(
            base62([255; 32]),
            base62({
                let mut almost = [255; 32];
                almost[0] = 254;
                almost
            })
        );
    }

    #[test]
    fn a_hint_shows_four_characters_of_each_end() {
        assert_eq!(hint("fg_api_3kF90000000000b8r9"), "fg_api_3kF9…b8r9");
    }

    #[test]
    fn a_prefix_is_short_and_plain() {
        for bad in ["", "a_b", "FG", "a-b", "é", "aaaaaaaaaaaaaaaaa"] {
            assert_eq!(Prefix::parse(bad), None);
        }
    }
}
