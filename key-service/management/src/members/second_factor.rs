//! Second factors of members. Members need a code to set up a second factor, to sign in with it, and to remove it.

#[cfg(test)]
mod tests;

use std::{iter::repeat_with, time::Duration};

use shared::{
    clock::random_bytes,
    ids::AccountId,
    secret::{SecretString, same},
    time::Timestamp,
};

use crate::{
    management::Management,
    members::{
        sessions::{NewSession, SignInClient, SignedIn},
        token::Token,
    },
};
use domain::{
    event::Actor,
    member::{Member, MemberRefused, PasswordHash, SignInWay},
    second_factor::{FactorId, RECOVERY_CODES, SecondFactor, recovery_code, recovery_text},
};
use key_service_store::store::{Error, StoreError};

/// Time to enter the code after the password: enough to find a phone.
const CHALLENGE_TTL: Duration = Duration::from_mins(10);

/// Purpose that goes into the digest of a visit's token in a challenge.
const CHALLENGE: &str = "second factor";

/// A secret for an authenticator app. It has no effect until it is confirmed with a code.
#[derive(Debug)]
pub struct OfferedFactor {
    pub id: FactorId,
    pub secret: SecretString,
    /// The secret as a URI that apps open.
    pub uri: SecretString,
}

/// A sign-in that continues with a code after a correct password.
#[derive(Debug)]
pub struct CodeSignIn<'a> {
    /// The challenge that followed the password.
    pub challenge: &'a str,
    /// A code from the app, or a recovery code.
    pub code: &'a str,
    /// The visit in which the password was entered.
    pub visit: &'a Token,
    pub client: SignInClient<'a>,
}

impl Management {
    /// Offers a member a new secret, or again the secret with this id.
    pub fn offered_factor(
        &self,
        SignedIn { member, .. }: &SignedIn,
        account: &str,
        id: Option<FactorId>,
    ) -> Result<OfferedFactor, Error<MemberRefused>> {
        if member.second_factor.is_some() {
            return Err(Error::Refused(MemberRefused::SecondFactorOn));
        }
        let id = id.unwrap_or_else(|| FactorId(random_bytes(&*self.clock)));
        let secret = self.credentials.totp_secret(member.id, id);
        Ok(OfferedFactor { id, secret: secret.plaintext(), uri: secret.uri(account, &member.name) })
    }

    /// Enables an offered secret after a code has confirmed it, and ends all other sessions. Returns the recovery
    /// codes.
    pub async fn enable_second_factor(
        &self,
        signed_in: &SignedIn,
        id: FactorId,
        code: &str,
        present: SecretString,
    ) -> Result<Vec<String>, Error<MemberRefused>> {
        let SignedIn { account, member, .. } = signed_in;
        if member.second_factor.is_some() {
            return Err(Error::Refused(MemberRefused::SecondFactorOn));
        }
        self.check_room_for_secret().await?;
        self.check_password_condition(signed_in, present).await?;
        let secret = self.credentials.totp_secret(member.id, id);
        let step = secret.step_of(code, self.clock.now());
        let last_step = step.ok_or(Error::Refused(MemberRefused::WrongCode))?;
        let codes = repeat_with(|| recovery_code(random_bytes(&*self.clock)));
        let codes: Vec<String> = codes.take(RECOVERY_CODES).collect();
        let recovery = codes.iter().map(|code| recovery_text(member.id, code));
        let recovery = recovery.map(|text| self.credentials.keyed_digest(text)).collect();
        let factor = SecondFactor { id, secret: secret.digest(), last_step, recovery };
        let act = self.act(signed_in.actor());
        if !self.store.replace_second_factor(*account, member, Some(factor), &act).await? {
            return Err(Error::Refused(MemberRefused::SecondFactorChanged));
        }
        self.end_other_sessions(signed_in).await?;
        Ok(codes)
    }

    /// Removes the signed-in member's second factor. Requires a code, and the password if the member has one.
    pub async fn disable_second_factor(
        &self,
        signed_in: &SignedIn,
        code: &str,
        present: SecretString,
    ) -> Result<(), Error<MemberRefused>> {
        if signed_in.member.second_factor.is_none() {
            return Err(Error::Refused(MemberRefused::NoSecondFactor));
        }
        if signed_in.member.password.is_some() {
            self.check_present_password(signed_in, present).await?;
        }
        self.accept_code(signed_in.account, &signed_in.member, code, |_| None).await
    }

    /// Removes the second factor of a member who lost the device.
    pub async fn remove_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        actor: Actor,
    ) -> Result<(), Error<MemberRefused>> {
        if member.second_factor.is_none() {
            return Err(Error::Refused(MemberRefused::NoSecondFactor));
        }
        let is_removed = self.store.replace_second_factor(account, member, None, &self.act(actor)).await?;
        if is_removed { Ok(()) } else { Err(Error::Refused(MemberRefused::SecondFactorChanged)) }
    }

    /// Checks a member's code and, if it is correct, stores the result of `then`. The attempt is counted before the
    /// check.
    pub(crate) async fn accept_code(
        &self,
        account: AccountId,
        member: &Member,
        code: &str,
        then: fn(SecondFactor) -> Option<SecondFactor>,
    ) -> Result<(), Error<MemberRefused>> {
        let Some(factor) = &member.second_factor else { return Ok(()) };
        let counted = self.count_code(account, member.id).await?;
        let judged = match self.after_code(member, factor, code) {
            Some(after) => self.use_code(account, member, then(after)).await,
            None => Ok(None),
        };
        let accepted = self.unless_failed(counted, judged).await?;
        accepted.ok_or(Error::Refused(MemberRefused::WrongCode))
    }

    /// Stores a second factor after one of its codes was used, unless another attempt has used a code meanwhile.
    async fn use_code(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
    ) -> Result<Option<()>, StoreError> {
        let act = self.act(Actor::Member { id: member.id, name: member.name.clone() });
        let is_used = self.store.replace_second_factor(account, member, after, &act).await?;
        Ok(is_used.then_some(()))
    }

    fn after_code(&self, member: &Member, factor: &SecondFactor, code: &str) -> Option<SecondFactor> {
        let secret = self.credentials.totp_secret_of(member.id, factor);
        match secret.and_then(|secret| secret.step_of(code, self.clock.now())) {
            Some(step) => factor.after_step(step),
            None => factor.after_recovery(self.credentials.keyed_digests(&recovery_text(member.id, code))),
        }
    }

    /// Returns a proof that the password was correct, for the page that asks for a code. The proof is valid for one
    /// member, visit and password, for a few minutes. It is not stored.
    pub(crate) fn challenge(&self, account: AccountId, member: &Member, visit: &Token) -> String {
        self.challenge_until(account, member, visit, self.clock.now().plus(CHALLENGE_TTL))
    }

    fn challenge_until(
        &self,
        account: AccountId,
        member: &Member,
        visit: &Token,
        until: Timestamp,
    ) -> String {
        let text = format!("{account}.{}.{}", member.id, until.millis());
        let visit = hex::encode(visit.digest(CHALLENGE).as_bytes());
        let password = member.password.as_ref().map(PasswordHash::digest);
        let password = password.map(|digest| hex::encode(digest.as_bytes())).unwrap_or_default();
        let proof = self.credentials.keyed_digest(format!("{CHALLENGE}\0{text}\0{visit}\0{password}"));
        format!("{text}.{}", hex::encode(proof.as_bytes()))
    }

    /// Signs a member in with a code, after a correct password.
    pub async fn sign_in_with_code(
        &self,
        attempt: CodeSignIn<'_>,
    ) -> Result<NewSession, Error<MemberRefused>> {
        let CodeSignIn { challenge, code, visit, client } = attempt;
        let (account, member) = self.challenged(challenge, visit).await?;
        self.accept_code(account, &member, code, Some).await?;
        let browser = self.know_browser(&self.account_name(account).await?, &member.name, client.known);
        let token = self.begin_session(account, member, client, SignInWay::Password).await?;
        Ok(NewSession { token, browser })
    }

    /// Finds the member whom a valid challenge names.
    async fn challenged(
        &self,
        challenge: &str,
        visit: &Token,
    ) -> Result<(AccountId, Member), Error<MemberRefused>> {
        let over = || Error::Refused(MemberRefused::ChallengeOver);
        let mut parts = challenge.split('.');
        let (account, id, until) = (parts.next(), parts.next(), parts.next());
        let account: AccountId = account.and_then(|text| text.parse().ok()).ok_or_else(over)?;
        let until = until.and_then(|text| text.parse().ok()).map(Timestamp::from_millis);
        let until = until.filter(|until| self.clock.now() < *until).ok_or_else(over)?;
        let members = self.store.members(account).await?;
        let member = members.into_iter().find(|member| Some(member.id.to_string().as_str()) == id);
        let member = member.filter(|member| {
            member.second_factor.is_some()
                && same(&self.challenge_until(account, member, visit, until), challenge)
        });
        member.map(|member| (account, member)).ok_or_else(over)
    }
}
