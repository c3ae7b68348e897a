//! Tests second factors, from enabling to removal.

use shared::secret::ExposeSecret;
use totp_rs::{Builder, Secret, Totp};

use super::*;
use crate::{
    members::{SignIn, SignInStep},
    testing::{Office, refused},
};
use domain::member::{LinkMaker, Role};

const PASSWORD: &str = "a few words that do";

/// A member with a password, a second factor, and an authenticator app.
struct Ann {
    office: Office,
    account: AccountId,
    session: Token,
    app: Totp,
    recovery: Vec<String>,
}

impl Ann {
    async fn enrolled() -> Self {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let desk = &office.management;
        let (_, link) = desk.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
        let session = desk.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
        let ann = desk.session(&session).await.unwrap().unwrap();
        desk.set_password(&ann, "".into(), PASSWORD.into()).await.unwrap();
        // From now on, having signed in with a link is no substitute for entering the password.
        office.clock.set("2026-11-20T03:00:05Z");
        let ann = desk.session(&session).await.unwrap().unwrap();
        let offered = desk.offered_factor(&ann, "acme", None).unwrap();
        let again = desk.offered_factor(&ann, "acme", Some(offered.id)).unwrap();
        assert_eq!(offered.secret.expose_secret(), again.secret.expose_secret());
        let secret = Secret::try_from_base32(offered.secret.expose_secret()).unwrap();
        let app = Builder::new().with_secret(secret).build_noncompliant();
        let (id, code) = (offered.id, code(&app, &office, 0));
        let enable = async |code: &str, password: &str| {
            desk.enable_second_factor(&ann, id, code, password.into()).await
        };
        assert_eq!(refused(enable("000000", PASSWORD).await), MemberRefused::WrongCode);
        assert_eq!(refused(enable(&code, "").await), MemberRefused::WrongPresentPassword);
        let recovery = enable(&code, PASSWORD).await.unwrap();
        assert_eq!(refused(enable(&code, PASSWORD).await), MemberRefused::SecondFactorChanged);
        Self { office, account, session, app, recovery }
    }

    async fn signed_in(&self) -> SignedIn {
        self.office.management.session(&self.session).await.unwrap().unwrap()
    }

    /// Returns the challenge after a correct password.
    async fn challenge(&self, visit: &Token) -> String {
        let (account, name, address) = ("acme", "ann", "192.0.2.1");
        let password = PASSWORD.into();
        let client = SignInClient { address, ..SignInClient::default() };
        let attempt = SignIn { account, name, password, client, visit };
        match self.office.management.sign_in(attempt).await.unwrap() {
            SignInStep::Code(challenge) => challenge,
            SignInStep::Session(_) => panic!("no code was asked for"),
        }
    }

    async fn code(
        &self,
        visit: &Token,
        challenge: &str,
        code: &str,
    ) -> Result<NewSession, Error<MemberRefused>> {
        let attempt = CodeSignIn { challenge, code, visit, client: SignInClient::default() };
        self.office.management.sign_in_with_code(attempt).await
    }
}

/// Returns the app's code for a time step relative to now.
fn code(app: &Totp, office: &Office, steps: i64) -> String {
    let seconds = office.management.now().seconds() + 30 * steps;
    app.generate(u64::try_from(seconds).unwrap()).to_string()
}

#[tokio::test]
async fn a_code_is_asked_for_after_a_password_and_accepted_once() {
    let ann = Ann::enrolled().await;
    let visit = ann.office.management.visit();
    let challenge = ann.challenge(&visit).await;
    let used = code(&ann.app, &ann.office, 0);
    assert_eq!(refused(ann.code(&visit, &challenge, &used).await), MemberRefused::WrongCode);
    let next = code(&ann.app, &ann.office, 1);
    let other = ann.office.management.visit();
    assert_eq!(refused(ann.code(&other, &challenge, &next).await), MemberRefused::ChallengeOver);
    ann.code(&visit, &challenge, &next).await.unwrap();
    assert_eq!(refused(ann.code(&visit, &challenge, &next).await), MemberRefused::WrongCode);
    for recovery in &ann.recovery[..2] {
        ann.code(&visit, &challenge, &recovery.to_lowercase()).await.unwrap();
        assert_eq!(refused(ann.code(&visit, &challenge, recovery).await), MemberRefused::WrongCode);
    }
    let forged = challenge.replacen("17", "18", 1);
    for challenge in ["", "..", "acme.ann.1.x", forged.as_str()] {
        assert_eq!(
            refused(ann.code(&visit, challenge, &ann.recovery[2]).await),
            MemberRefused::ChallengeOver
        );
    }
    ann.office.clock.set("2026-11-20T03:10:05Z");
    let late = ann.code(&visit, &challenge, &ann.recovery[2]).await;
    assert_eq!(refused(late), MemberRefused::ChallengeOver);
}

#[tokio::test]
async fn a_link_asks_for_a_code_and_a_wrong_one_does_not_use_it_up() {
    let ann = Ann::enrolled().await;
    let desk = &ann.office.management;
    let member = ann.signed_in().await.member;
    let link = desk.sign_in_link(ann.account, &member, LinkMaker::Operator).await.unwrap();
    for wrong in ["", "000000"] {
        assert_eq!(
            refused(desk.sign_in_with_link(&link, wrong, SignInClient::default()).await),
            MemberRefused::WrongCode
        );
    }
    let next = code(&ann.app, &ann.office, 1);
    desk.sign_in_with_link(&link, &next, SignInClient::default()).await.unwrap();
    assert_eq!(
        refused(desk.sign_in_with_link(&link, &next, SignInClient::default()).await),
        MemberRefused::LinkGone
    );
}

#[tokio::test]
async fn guesses_at_a_code_have_a_bound_and_a_right_one_forgets_them() {
    let ann = Ann::enrolled().await;
    let visit = ann.office.management.visit();
    let challenge = ann.challenge(&visit).await;
    for recovery in &ann.recovery[..2] {
        for _ in 0..9 {
            assert_eq!(refused(ann.code(&visit, &challenge, "000000").await), MemberRefused::WrongCode);
        }
        ann.code(&visit, &challenge, recovery).await.unwrap();
    }
    for _ in 0..10 {
        assert_eq!(refused(ann.code(&visit, &challenge, "000000").await), MemberRefused::WrongCode);
    }
    let right = ann.code(&visit, &challenge, &ann.recovery[2]).await;
    assert_eq!(refused(right), MemberRefused::TooManyCodes);
}

#[tokio::test]
async fn turning_it_off_takes_a_code_and_the_password_and_an_owner_takes_neither() {
    let ann = Ann::enrolled().await;
    let (desk, now) = (&ann.office.management, ann.signed_in().await);
    assert!(desk.offered_factor(&now, "acme", None).is_err(), "no page shows the secret again");
    let next = code(&ann.app, &ann.office, 1);
    let off =
        async |code: &str, password: &str| desk.disable_second_factor(&now, code, password.into()).await;
    assert_eq!(refused(off(&next, "wrong").await), MemberRefused::WrongPresentPassword);
    assert_eq!(refused(off("000000", PASSWORD).await), MemberRefused::WrongCode);
    off(&next, PASSWORD).await.unwrap();
    let gone = ann.signed_in().await;
    assert_eq!(
        refused(desk.disable_second_factor(&gone, &next, PASSWORD.into()).await),
        MemberRefused::NoSecondFactor
    );

    let bob = Ann::enrolled().await;
    let (desk, now) = (&bob.office.management, bob.signed_in().await);
    desk.remove_second_factor(bob.account, &now.member, Actor::System).await.unwrap();
    let gone = bob.signed_in().await.member;
    assert_eq!(gone.second_factor, None);
    let again = desk.remove_second_factor(bob.account, &gone, Actor::System).await;
    assert_eq!(refused(again), MemberRefused::NoSecondFactor);
}

#[tokio::test]
async fn turning_it_on_ends_other_sessions() {
    let ann = Ann::enrolled().await;
    let (desk, now) = (&ann.office.management, ann.signed_in().await);
    desk.remove_second_factor(ann.account, &now.member, Actor::System).await.unwrap();
    let link = desk.sign_in_link(ann.account, &now.member, LinkMaker::Operator).await.unwrap();
    let other = desk.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token;
    let now = ann.signed_in().await;
    let offered = desk.offered_factor(&now, "acme", None).unwrap();
    let secret = Secret::try_from_base32(offered.secret.expose_secret()).unwrap();
    let app = Builder::new().with_secret(secret).build_noncompliant();
    let code = code(&app, &ann.office, 0);
    desk.enable_second_factor(&now, offered.id, &code, PASSWORD.into()).await.unwrap();
    assert!(desk.session(&other).await.unwrap().is_none());
    assert!(desk.session(&ann.session).await.unwrap().is_some());
}
