//! Second factors of members: time-based codes (TOTP, RFC 6238) and recovery codes. Each code is accepted once.

use std::fmt;

use minicbor::{Decode, Encode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use shared::{ids::MemberId, secret::SecretString, time::Timestamp};
use totp_rs::{Builder, Secret, Totp};

use crate::credentials::digest::{Digest, Pepper, Peppers};

/// Context in which secrets are derived from a pepper.
const CONTEXT: &str = "faregate 2026-11-23 secrets of second factors";
/// Length of a secret in bytes, as recommended by RFC 4226.
const SECRET: usize = 20;
/// Name of the service in authenticator apps.
const ISSUER: &str = "Faregate";

/// Number of recovery codes of a new second factor.
pub const RECOVERY_CODES: usize = 10;
/// Number of random bytes in a recovery code: sixteen characters in base32.
const RECOVERY_BYTES: usize = 10;
/// Number of characters between the hyphens of a recovery code.
const RECOVERY_GROUP: usize = 4;

/// A random number, from which the secret is derived with the pepper and the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct FactorId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// A second factor as stored. Without the pepper, it reveals neither the secret nor a recovery code.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SecondFactor {
    /// Random number from which the secret is derived, with the pepper and the member.
    #[n(0)]
    pub id: FactorId,
    /// Digest of the secret. It shows which pepper the secret was derived from.
    #[n(1)]
    pub secret: Digest,
    /// Time step of the last accepted code. Codes of this and earlier steps are refused.
    #[n(2)]
    pub last_step: u64,
    /// Keyed hashes of the unused recovery codes.
    #[n(3)]
    pub recovery: Vec<Digest>,
}

/// The secret that a member's app shares with the service. It cannot be printed, and is not stored.
pub struct TotpSecret(Totp);

impl FactorId {
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// Writes the number in the form that pages contain.
impl fmt::Display for FactorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl SecondFactor {
    /// Returns the factor after a code of this step was accepted; `None` if this or a later code was accepted before.
    pub fn after_step(&self, step: u64) -> Option<Self> {
        (step > self.last_step).then(|| Self { last_step: step, ..self.clone() })
    }

    /// Uses up a recovery code, given its possible hashes; `None` if the code is unknown or used.
    pub fn after_recovery(&self, hashes: impl IntoIterator<Item = Digest>) -> Option<Self> {
        let at = hashes.into_iter().find_map(|hash| self.recovery.iter().position(|kept| *kept == hash))?;
        let mut after = self.clone();
        after.recovery.remove(at);
        Some(after)
    }
}

impl TotpSecret {
    /// Derives a member's secret from this pepper.
    pub fn new(pepper: &Pepper, member: MemberId, id: FactorId) -> Self {
        let derived = pepper.derive(CONTEXT, &[member.as_bytes(), &id.0[..]].concat());
        let mut secret = [0; SECRET];
        secret.copy_from_slice(&derived[..SECRET]);
        Self(Builder::new().with_secret(secret).build_noncompliant())
    }

    /// Derives a stored second factor's secret from whichever pepper reproduces the stored digest; `None` if none does.
    pub fn of(peppers: &Peppers, member: MemberId, factor: &SecondFactor) -> Option<Self> {
        let mut secrets = peppers.all().map(|pepper| Self::new(pepper, member, factor.id));
        secrets.find(|secret| secret.digest() == factor.secret)
    }

    /// Returns the digest that identifies the secret.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.secret().as_ref())
    }

    /// Returns the secret in base32, for typing it into an app.
    pub fn plaintext(&self) -> SecretString {
        self.0.secret().to_base32().into()
    }

    /// Returns the secret as a URI that apps open, naming the account and its member.
    pub fn uri(&self, account: &str, member: &str) -> SecretString {
        let name = format!("{member} ({account})");
        let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        let secret = self.0.secret().to_base32();
        format!("otpauth://totp/{ISSUER}:{name}?secret={secret}&issuer={ISSUER}").into()
    }

    /// Returns the time step of a code; `None` if the code matches no step near this time.
    pub fn step_of(&self, code: &str, now: Timestamp) -> Option<u64> {
        let digits: String = code.chars().filter(|c| !c.is_whitespace()).collect();
        self.0.check(&digits, u64::try_from(now.seconds()).ok()?)
    }
}

/// Encodes random bytes as a recovery code, as shown to members.
pub fn recovery_code(random: [u8; RECOVERY_BYTES]) -> String {
    let code = Secret::from(random.to_vec()).to_base32();
    let groups = code.as_bytes().chunks(RECOVERY_GROUP).map(|group| String::from_utf8_lossy(group));
    groups.collect::<Vec<_>>().join("-")
}

/// Returns the text to hash for a recovery code, the same however the code was typed. It contains a NUL, which no key
/// has.
pub fn recovery_text(member: MemberId, code: &str) -> String {
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("recovery code\0{member}\0{}", code.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use shared::secret::ExposeSecret;

    use super::*;
    use crate::ledger::histories::START;

    fn member() -> MemberId {
        MemberId::new(START, [1; 10])
    }

    #[test]
    fn codes_are_those_of_the_standard_near_their_time() {
        // RFC 6238, appendix B, cut to six digits.
        let secret = Secret::from(*b"12345678901234567890");
        let secret = TotpSecret(Builder::new().with_secret(secret).build_noncompliant());
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        for (seconds, code) in [(59, "287082"), (1_111_111_109, "081804"), (20_000_000_000, "353130")] {
            let step = u64::try_from(seconds).unwrap() / 30;
            assert_eq!(secret.step_of(code, at(seconds)), Some(step));
            assert_eq!(
                secret.step_of(&format!(" {} {}", &code[..3], &code[3..]), at(seconds + 30)),
                Some(step)
            );
            assert_eq!(secret.step_of(code, at(seconds + 60)), None);
        }
        for wrong in ["", "28708", "2870820", "28708a", "٢٨٧٠٨٢"] {
            assert_eq!(secret.step_of(wrong, at(59)), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_of_one_member_and_survives_a_rotation_of_the_pepper() {
        let (old, new) = (Pepper::new([1; 32]), Pepper::new([2; 32]));
        let id = FactorId([7; 16]);
        let secret = TotpSecret::new(&old, member(), id);
        let other = MemberId::new(START, [2; 10]);
        for differs in [
            TotpSecret::new(&old, other, id),
            TotpSecret::new(&new, member(), id),
            TotpSecret::new(&old, member(), FactorId([8; 16])),
        ] {
            assert_ne!(secret.digest(), differs.digest());
        }
        let factor = SecondFactor { id, secret: secret.digest(), last_step: 0, recovery: Vec::new() };
        let found = |current: &Pepper, previous: Option<&Pepper>| {
            let peppers = Peppers { current: current.clone(), previous: previous.cloned() };
            TotpSecret::of(&peppers, member(), &factor).map(|secret| secret.digest())
        };
        assert_eq!(found(&new, Some(&old)), Some(factor.secret));
        assert_eq!(found(&new, None), None);
        let uri = secret.uri("ACME & Co", "ann@example.com");
        let base32 = secret.plaintext();
        let expected = format!(
            "otpauth://totp/Faregate:ann%40example%2Ecom%20%28ACME%20%26%20Co%29?secret={}&issuer=Faregate",
            base32.expose_secret()
        );
        assert_eq!((base32.expose_secret().len(), uri.expose_secret()), (32, expected.as_str()));
    }

    #[test]
    fn a_code_and_a_recovery_code_are_accepted_once() {
        let hash = |code: &str| Digest::of(recovery_text(member(), code).as_bytes());
        let codes = [1, 2].map(|n| recovery_code([n; RECOVERY_BYTES]));
        let recovery = codes.iter().map(|code| hash(code)).collect();
        let secret = Digest::of(b"secret");
        let factor = SecondFactor { id: FactorId([7; 16]), secret, last_step: 41, recovery };
        assert_eq!(factor.after_step(41), None);
        let factor = factor.after_step(42).unwrap();
        assert_eq!((factor.after_step(42), factor.after_step(41)), (None, None));
        assert_eq!(codes[0], "AEAQ-CAIB-AEAQ-CAIB");
        let typed = hash(" aeaqcaib aeaqcaib");
        let after = factor.after_recovery([hash("x"), typed]).unwrap();
        assert_eq!((after.recovery.len(), after.after_recovery([typed])), (1, None));
    }
}
