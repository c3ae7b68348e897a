//! Operators of the installation. They sign in with a link that a command prints, and with a second-factor code.
//!
//! They are stored like members, in a special account. Members' links and sessions do not work where operators sign in,
//! and operators' links and sessions do not work where members sign in.

use shared::secret::ExposeSecret;

use crate::{
    management::Management,
    members::{
        sessions::{SignInClient, SignedIn},
        token::Token,
    },
};
use domain::{
    event::Actor,
    member::{LinkMaker, Member, MemberRefused, Role},
};
use key_service_store::store::{Error, StoreError, operators};

/// Returns the URL of an operator's sign-in link. The token follows the `#`, which browsers do not send.
pub fn link(public: &str, token: &Token) -> String {
    let public = public.trim_end_matches('/');
    format!("{public}/operator/sign-in/link#{}", token.reveal().expose_secret())
}

impl SignedIn {
    /// Returns the operator as the actor of events in accounts.
    pub fn as_operator(&self) -> Actor {
        Actor::Operator { name: self.member.name.clone() }
    }
}

impl Management {
    /// Creates an operator and a first sign-in link.
    pub async fn create_operator(&self, name: &str, actor: Actor) -> Result<Token, Error<MemberRefused>> {
        self.store.open_operators(self.clock.now()).await?;
        // An operator's role is never used. A viewer has the fewest rights.
        let operator = self.add_member(operators(), name, Role::Viewer, actor).await?;
        self.sign_in_link(operators(), &operator, LinkMaker::Operator).await
    }

    /// Lists the operators, oldest first.
    pub async fn operators(&self) -> Result<Vec<Member>, StoreError> {
        self.members(operators()).await
    }

    /// Removes an operator and ends the operator's sessions and link at once.
    pub async fn remove_operator(&self, name: &str, actor: Actor) -> Result<(), Error<MemberRefused>> {
        let operator = self.member_named(operators(), name).await?;
        self.remove_member(operators(), operator.id, actor).await
    }

    /// Creates a link that signs an operator in. It replaces an earlier link.
    pub async fn operator_link(&self, name: &str) -> Result<Token, Error<MemberRefused>> {
        let operator = self.member_named(operators(), name).await?;
        self.sign_in_link(operators(), &operator, LinkMaker::Operator).await
    }

    /// Checks a fresh code of an operator's second factor. A code works once.
    pub async fn confirm_operator(
        &self,
        operator: &SignedIn,
        code: &str,
    ) -> Result<(), Error<MemberRefused>> {
        if operator.member.second_factor.is_none() {
            return Err(Error::Refused(MemberRefused::NoSecondFactor));
        }
        self.accept_code(operator.account, &operator.member, code, Some).await
    }

    /// Finds the running session of an operator. A member's token is refused.
    pub async fn operator_session(&self, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        if token.is_operators() { self.session_of(token).await } else { Ok(None) }
    }

    /// Finds the operator whom a link signs in. The link is not used up.
    pub async fn opened_operator_link(&self, token: &Token) -> Result<Member, Error<MemberRefused>> {
        operators_only(token)?;
        self.member_of_link(token).await
    }

    /// Signs an operator in with a link, which is used up, and with a code if the operator has a second factor.
    pub async fn sign_in_operator(
        &self,
        token: &Token,
        code: &str,
        client: SignInClient<'_>,
    ) -> Result<Token, Error<MemberRefused>> {
        operators_only(token)?;
        Ok(self.use_link(token, code, client).await?.token)
    }
}

/// Refuses a member's token where operators sign in.
fn operators_only(token: &Token) -> Result<(), Error<MemberRefused>> {
    if token.is_operators() { Ok(()) } else { Err(Error::Refused(MemberRefused::LinkGone)) }
}

#[cfg(test)]
mod tests {
    use shared::money::NanoUsd;

    use super::*;
    use crate::testing::{Office, refused};

    #[tokio::test]
    async fn an_operator_signs_in_as_no_member_and_a_member_as_no_operator() {
        let office = Office::open();
        let management = &office.management;
        let (account, _) = office.account("acme").await;
        let client = SignInClient::default();
        let of_operator = management.create_operator("ann", Actor::System).await.unwrap();
        let (_, of_member) = management.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
        assert_eq!(refused(management.opened_link(&of_operator).await), MemberRefused::LinkGone);
        assert_eq!(
            refused(management.sign_in_with_link(&of_operator, "", client).await),
            MemberRefused::LinkGone
        );
        assert_eq!(refused(management.opened_operator_link(&of_member).await), MemberRefused::LinkGone);
        assert_eq!(
            refused(management.sign_in_operator(&of_member, "", client).await),
            MemberRefused::LinkGone
        );
        let operator = management.sign_in_operator(&of_operator, "", client).await.unwrap();
        let member = management.sign_in_with_link(&of_member, "", client).await.unwrap().token;
        assert!(management.operator_session(&operator).await.unwrap().is_some());
        assert!(management.session(&operator).await.unwrap().is_none());
        assert!(management.session(&member).await.unwrap().is_some());
        assert!(management.operator_session(&member).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_operators_are_no_account_that_anyone_can_name() {
        let office = Office::open();
        let management = &office.management;
        management.create_operator("ann", Actor::System).await.unwrap();
        management.create_operator("bob", Actor::System).await.unwrap();
        assert_eq!(management.accounts().await.unwrap(), []);
        let same = management.create_account("operators", NanoUsd::ZERO, Actor::System).await.unwrap();
        assert_ne!(same, operators());
        assert_eq!(management.account("operators").await.unwrap(), same);
        assert_eq!(management.members(same).await.unwrap().len(), 0);
        let names = async || {
            management
                .operators()
                .await
                .unwrap()
                .into_iter()
                .map(|operator| operator.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["ann", "bob"]);
        assert_eq!(refused(management.create_operator("bob", Actor::System).await), MemberRefused::NameTaken);
    }

    #[tokio::test]
    async fn every_operator_can_be_removed_and_is_signed_out_at_once() {
        let office = Office::open();
        let management = &office.management;
        let link = management.create_operator("ann", Actor::System).await.unwrap();
        let session = management.sign_in_operator(&link, "", SignInClient::default()).await.unwrap();
        let unused = management.operator_link("ann").await.unwrap();
        management.remove_operator("ann", Actor::System).await.unwrap();
        assert!(management.operator_session(&session).await.unwrap().is_none());
        assert_eq!(refused(management.opened_operator_link(&unused).await), MemberRefused::LinkGone);
        assert_eq!(refused(management.operator_link("ann").await), MemberRefused::NotFound);
    }
}
