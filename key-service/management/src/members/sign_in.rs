//! Sign-in with a password. Attempts are counted before the password is checked.

use std::net::{IpAddr, Ipv6Addr};

use shared::{ids::AccountId, secret::SecretString};

use crate::{
    management::Management,
    members::{
        attempts::CountedAttempt,
        sessions::{NewSession, SignInClient, SignedIn},
        token::Token,
    },
};
use domain::member::{Member, MemberRefused, PasswordCondition, SignInWay};
use key_service_store::store::{Error, StoreError};

/// A member's attempt to sign in with a password.
#[derive(Debug)]
pub struct SignIn<'a> {
    pub account: &'a str,
    pub name: &'a str,
    pub password: SecretString,
    pub client: SignInClient<'a>,
    /// The browser's visit before the sign-in.
    pub visit: &'a Token,
}

/// What follows a correct password.
#[derive(Debug)]
pub enum SignInStep {
    Session(NewSession),
    /// The member has a second factor and continues with a code and this challenge.
    Code(String),
}

impl Management {
    /// Signs a member in with a password.
    ///
    /// An unknown account or name takes the same steps and time as a wrong password. Attempts are counted before the
    /// check, so that concurrent attempts count too. Successful attempts are uncounted afterwards.
    pub async fn sign_in(&self, attempt: SignIn<'_>) -> Result<SignInStep, Error<MemberRefused>> {
        let SignIn { account: account_name, name, password, client, visit } = attempt;
        let counted = match self.known_mark(account_name, name, client.known) {
            Some(mark) => self.count_known_attempt(account_name, name, mark).await?,
            None => self.count_attempt(account_name, name, &network(client.address)).await?,
        };
        let judged = self.judge(account_name, name, password).await;
        let Some((account, member)) = self.unless_failed(counted, judged).await? else {
            return Err(Error::Refused(MemberRefused::WrongPassword));
        };
        if member.second_factor.is_some() {
            return Ok(SignInStep::Code(self.challenge(account, &member, visit)));
        }
        let token = self.begin_session(account, member, client, SignInWay::Password).await?;
        let browser = self.know_browser(account_name, name, client.known);
        Ok(SignInStep::Session(NewSession { token, browser }))
    }

    /// Refuses a session that may not change its member's credentials.
    pub(crate) async fn check_password_condition(
        &self,
        signed_in: &SignedIn,
        present: SecretString,
    ) -> Result<(), Error<MemberRefused>> {
        match self.password_condition(signed_in) {
            PasswordCondition::None => Ok(()),
            PasswordCondition::PresentPassword => self.check_present_password(signed_in, present).await,
            PasswordCondition::FreshSignIn => Err(Error::Refused(MemberRefused::StaleSignIn)),
        }
    }

    /// Refuses any password but the signed-in member's.
    pub(crate) async fn check_present_password(
        &self,
        SignedIn { account, member, .. }: &SignedIn,
        present: SecretString,
    ) -> Result<(), Error<MemberRefused>> {
        let counted = self.count_change(*account, member.id).await?;
        let judged = self.passwords.verify(present, member.password.clone()).await;
        let judged = judged.map(|is_right| is_right.then_some(()));
        let right = self.unless_failed(counted, judged).await?;
        right.ok_or(Error::Refused(MemberRefused::WrongPresentPassword))
    }

    /// Finds the member with this name, if the password is correct.
    async fn judge(
        &self,
        account: &str,
        name: &str,
        password: SecretString,
    ) -> Result<Option<(AccountId, Member)>, StoreError> {
        let found = self.member_to_sign_in(account, name).await?;
        let hash = found.as_ref().and_then(|(_, member)| member.password.clone());
        let is_right = self.passwords.verify(password, hash).await?;
        Ok(found.filter(|_| is_right))
    }

    /// Returns the outcome of an attempt. The attempt stays counted only if the password was wrong.
    pub(crate) async fn unless_failed<T>(
        &self,
        counted: CountedAttempt,
        judged: Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match &judged {
            Ok(None) => {}
            Ok(Some(_)) => self.forget_attempts(counted).await?,
            // An attempt whose password could not be checked does not count as failed. The store's outage has already
            // been reported.
            Err(_) => drop(self.take_attempt_back(counted).await),
        }
        judged
    }

    async fn member_to_sign_in(
        &self,
        account: &str,
        name: &str,
    ) -> Result<Option<(AccountId, Member)>, StoreError> {
        let Some(account) = self.store.account_named(account).await? else { return Ok(None) };
        Ok(self.store.member_named(account, name).await?.map(|member| (account, member)))
    }
}

/// Returns the part of an address that identifies a caller: an IPv4 address, or the /64 network of an IPv6 address,
/// because the network's owner can use any address in it. Text that is not an address stays unchanged.
fn network(address: &str) -> String {
    match address.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_count_as_one() {
        for (address, counted) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
            ("", ""),
        ] {
            assert_eq!(network(address), counted);
        }
    }
}
