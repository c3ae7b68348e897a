//! Signing in with a password: attempts are counted before they are judged.

use std::net::{IpAddr, Ipv6Addr};

use shared::{ids::AccountId, secret::SecretString};

use super::{MemberRefused, Token};
use crate::{
    domain::member::Member,
    management::{Error, Management, accounts::AccountRefused},
    store::Unavailable,
};

/// The attempt of a member to sign in.
#[derive(Debug)]
pub struct SignIn<'a> {
    /// The account's name.
    pub account: &'a str,
    /// The member's name.
    pub name: &'a str,
    /// The password.
    pub password: SecretString,
    /// The address that it comes from.
    pub address: &'a str,
    /// The browser, as it describes itself.
    pub agent: &'a str,
}

impl Management {
    /// Signs a member in with a password. The answer is the token of a new session.
    ///
    /// An unknown account or name takes the same steps and the same time as a wrong password. An attempt is counted
    /// before it is judged, so that attempts at once are counted too.
    pub async fn sign_in(&self, attempt: SignIn<'_>) -> Result<Token, Error<MemberRefused>> {
        let counted = self.count_attempt(attempt.account, attempt.name, &network(attempt.address)).await?;
        let found = self.member_to_sign_in(attempt.account, attempt.name).await?;
        let hash = found.as_ref().and_then(|(_, member)| member.password.clone());
        let is_right = self.passwords.verify(attempt.password, hash).await?;
        let Some((account, member)) = found.filter(|_| is_right) else {
            return Err(Error::Refused(MemberRefused::WrongPassword));
        };
        self.forget_attempts(counted).await?;
        Ok(self.begin_session(account, member.id, attempt.agent).await?)
    }

    async fn member_to_sign_in(
        &self,
        account: &str,
        name: &str,
    ) -> Result<Option<(AccountId, Member)>, Unavailable> {
        let account = match self.account(account).await {
            Ok(account) => account,
            Err(Error::Refused(AccountRefused::NotFound)) => return Ok(None),
            Err(Error::Refused(other)) => return Err(Unavailable(other.to_string())),
            Err(Error::Unavailable(unavailable)) => return Err(unavailable),
        };
        Ok(self.store.member_named(account, name).await?.map(|member| (account, member)))
    }
}

/// The part of an address that one person has: an IPv4 address, or the /64 network of an IPv6 address, within which everyone
/// chooses addresses freely. Text that is no address stays as it is.
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
