//! Sign-in links. Each works once and for a limited time; a newer link or a new password voids it.

use std::time::Duration;

use shared::{clock::random_bytes, ids::AccountId, secret::ExposeSecret};

use crate::{
    management::Management,
    members::{
        sessions::{NewSession, SignInClient},
        token::Token,
    },
};
use domain::{
    event::Actor,
    member::{Link, LinkMaker, MadeLink, Member, MemberChange, MemberRefused, PasswordHash, Role, SignInWay},
};
use key_service_store::store::{Error, ExpiringRecord, RecordKind};

const LINK_TTL: Duration = Duration::from_mins(15);
/// An invitation should survive a weekend.
const INVITATION_TTL: Duration = Duration::from_hours(72);

/// Purpose that goes into the digests of links' tokens.
const LINK: &str = "link";

/// Returns the URL of a sign-in link. The token follows the `#`, which browsers do not send, so that no proxy logs it.
pub fn link(public: &str, token: &Token) -> String {
    let public = public.trim_end_matches('/');
    format!("{public}/dashboard/sign-in/link#{}", token.reveal().expose_secret())
}

impl Management {
    /// Creates a member and a first sign-in link.
    pub async fn invite(
        &self,
        account: AccountId,
        name: &str,
        role: Role,
        actor: Actor,
    ) -> Result<(Member, Token), Error<MemberRefused>> {
        let by = LinkMaker::of(&actor);
        let member = self.add_member(account, name, role, actor).await?;
        let token = self.make_link(account, &member, by, INVITATION_TTL).await?;
        Ok((member, token))
    }

    /// Creates a member once for each idempotency key. There is a link only if the member is new.
    pub async fn invite_once(
        &self,
        account: AccountId,
        (name, role): (&str, Role),
        idempotency_key: Option<String>,
        actor: Actor,
    ) -> Result<(Member, Option<Token>), Error<MemberRefused>> {
        let by = LinkMaker::of(&actor);
        let (member, is_new) = self.add_member_once((account, name, role), idempotency_key, actor).await?;
        if !is_new {
            return Ok((member, None));
        }
        let token = self.make_link(account, &member, by, INVITATION_TTL).await?;
        Ok((member, Some(token)))
    }

    /// Creates a link that signs a member in. The member can see who created the last link.
    pub async fn sign_in_link(
        &self,
        account: AccountId,
        member: &Member,
        by: LinkMaker,
    ) -> Result<Token, Error<MemberRefused>> {
        if by != LinkMaker::Member {
            // This is recorded first, so that every link is visible to the member.
            let last_link = Some(MadeLink { by: by.clone(), at: self.clock.now().to_whole_seconds() });
            let change = MemberChange { last_link, ..MemberChange::default() };
            self.store.update_member(account, member.id, change).await?;
        }
        self.make_link(account, member, by, LINK_TTL).await
    }

    async fn make_link(
        &self,
        account: AccountId,
        member: &Member,
        maker: LinkMaker,
        lives: Duration,
    ) -> Result<Token, Error<MemberRefused>> {
        self.check_room().await?;
        let (act, token) = (self.act(Actor::System), Token::new(account, random_bytes(&*self.clock)));
        let password = member.password.as_ref().map(PasswordHash::digest);
        let (digest, expires_at) = (token.digest(LINK), act.at.plus(lives));
        let link = Link { digest, member: member.id, expires_at, password, maker };
        self.store.put_record(account, link.into(), &act).await?;
        Ok(token)
    }

    /// Finds the account's name and the member whom a link signs in. The link is not used up. Operators' links are
    /// refused.
    pub async fn opened_link(&self, token: &Token) -> Result<(String, Member), Error<MemberRefused>> {
        members_only(token)?;
        let member = self.member_of_link(token).await?;
        Ok((self.account_name(token.account).await?, member))
    }

    /// Finds the member or operator whom a link signs in.
    pub(crate) async fn member_of_link(&self, token: &Token) -> Result<Member, Error<MemberRefused>> {
        let (account, name, now) = (token.account, token.digest(LINK), self.clock.now());
        let found = self.store.record(account, RecordKind::Link, name, now).await?;
        let (_, member) = usable(found)?;
        Ok(member)
    }

    /// Signs a member in with a link, which is used up, and with a code if the member has a second factor. A wrong code
    /// does not use up the link. Operators' links are refused.
    pub async fn sign_in_with_link(
        &self,
        token: &Token,
        code: &str,
        client: SignInClient<'_>,
    ) -> Result<NewSession, Error<MemberRefused>> {
        members_only(token)?;
        self.use_link(token, code, client).await
    }

    /// Signs in the member or operator whom a link names.
    pub(crate) async fn use_link(
        &self,
        token: &Token,
        code: &str,
        client: SignInClient<'_>,
    ) -> Result<NewSession, Error<MemberRefused>> {
        let account = token.account;
        let (digest, now) = (token.digest(LINK), self.clock.now());
        let found = self.store.record(account, RecordKind::Link, digest, now).await?;
        let (_, asked) = usable(found)?;
        self.accept_code(account, &asked, code, Some).await?;
        let found = self.store.take_record(account, RecordKind::Link, digest, now).await?;
        let (link, member) = usable(found)?;
        if asked.second_factor.is_none() && member.second_factor.is_some() {
            // The second factor was set up after the page was shown.
            return Err(Error::Refused(MemberRefused::WrongCode));
        }
        let name = self.account_name(account).await?;
        let browser = self.know_browser(&name, &member.name, client.known);
        let token = self.begin_session(account, member, client, SignInWay::Link(link.maker)).await?;
        Ok(NewSession { token, browser })
    }

    pub(crate) async fn account_name(&self, account: AccountId) -> Result<String, Error<MemberRefused>> {
        let funds = self.store.funds(account).await?;
        funds.map(|funds| funds.name).ok_or(Error::Refused(MemberRefused::LinkGone))
    }
}

/// Refuses an operator's token where members sign in.
fn members_only(token: &Token) -> Result<(), Error<MemberRefused>> {
    if token.is_operators() { Err(Error::Refused(MemberRefused::LinkGone)) } else { Ok(()) }
}

/// Returns a found link, unless its member's password has changed since.
fn usable(found: Option<(ExpiringRecord, Member)>) -> Result<(Link, Member), Error<MemberRefused>> {
    let (record, member) = found.ok_or(Error::Refused(MemberRefused::LinkGone))?;
    let link = Link::try_from(record)?;
    if link.is_of_password(&member) {
        Ok((link, member))
    } else {
        Err(Error::Refused(MemberRefused::LinkGone))
    }
}

#[cfg(test)]
mod tests {
    use shared::secret::SecretString;

    use super::*;
    use crate::testing::{Office, refused};
    use domain::member::PasswordCondition;

    const LATER: &str = "2026-11-23T02:11:00Z";

    #[tokio::test]
    async fn a_new_password_ends_links_that_were_made_before_and_asks_for_the_old_one() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let desk = &office.management;
        let (_, link) = desk.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
        let session = desk.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
        let ann = desk.session(&session).await.unwrap().unwrap();
        let link = desk.sign_in_link(account, &ann.member, LinkMaker::Operator).await.unwrap();
        let (none, first): (SecretString, SecretString) = ("".into(), "a few words that do".into());
        desk.set_password(&ann, none.clone(), first.clone()).await.unwrap();
        assert_eq!(refused(desk.opened_link(&link).await), MemberRefused::LinkGone);
        assert_eq!(
            refused(desk.sign_in_with_link(&link, "", SignInClient::default()).await),
            MemberRefused::LinkGone
        );

        office.clock.set("2026-11-20T03:00:00Z");
        let ann = desk.session(&session).await.unwrap().unwrap();
        let second: SecretString = "some other words then".into();
        for wrong in [none.clone(), second.clone()] {
            let outcome = desk.set_password(&ann, wrong, second.clone()).await;
            assert_eq!(refused(outcome), MemberRefused::WrongPresentPassword);
        }
        desk.set_password(&ann, first, second).await.unwrap();
        // An operator's link lets in a member who forgot the password; another owner's link does not.
        let member = desk.member_named(account, "ann").await.unwrap();
        for (by, condition) in [
            (LinkMaker::Operator, PasswordCondition::None),
            (LinkMaker::Owner("bob".into()), PasswordCondition::PresentPassword),
        ] {
            let link = desk.sign_in_link(account, &member, by.clone()).await.unwrap();
            let token = desk.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
            let ann = desk.session(&token).await.unwrap().unwrap();
            assert_eq!(desk.password_condition(&ann), condition);
            assert_eq!(ann.member.last_link.unwrap().by, by);
        }
    }

    #[tokio::test]
    async fn guesses_at_the_present_password_have_a_bound() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let desk = &office.management;
        let (_, link) = desk.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
        let session = desk.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
        let ann = desk.session(&session).await.unwrap().unwrap();
        let right: SecretString = "a few words that do".into();
        desk.set_password(&ann, "".into(), right.clone()).await.unwrap();
        office.clock.set("2026-11-20T03:00:00Z");
        let ann = desk.session(&session).await.unwrap().unwrap();
        for _ in 0..10 {
            let guess = desk.set_password(&ann, "a wrong guess".into(), right.clone()).await;
            assert_eq!(refused(guess), MemberRefused::WrongPresentPassword);
        }
        let guess = desk.set_password(&ann, right.clone(), right).await;
        assert_eq!(refused(guess), MemberRefused::TooManyAttempts);
    }

    #[tokio::test]
    async fn an_invitation_lives_for_three_days_and_other_links_for_a_quarter_of_an_hour() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let desk = &office.management;
        let (_, invitation) = desk.invite(account, "ann", Role::Viewer, Actor::System).await.unwrap();
        let bob = desk.add_member(account, "bob", Role::Viewer, Actor::System).await.unwrap();
        let link = desk.sign_in_link(account, &bob, LinkMaker::Operator).await.unwrap();
        let (name, member) = desk.opened_link(&link).await.unwrap();
        assert_eq!((name.as_str(), member.name.as_str()), ("acme", "bob"));
        office.clock.set("2026-11-20T02:26:06Z");
        assert_eq!(refused(desk.opened_link(&link).await), MemberRefused::LinkGone);
        office.clock.set(LATER);
        assert!(desk.opened_link(&invitation).await.is_ok());
        office.clock.set("2026-11-23T02:11:06Z");
        assert_eq!(refused(desk.opened_link(&invitation).await), MemberRefused::LinkGone);
    }
}
