//! The member who sent a request, and the right to change something.

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::{HeaderMap, HeaderValue, request::Parts};
use shared::{ids::AccountId, money::NanoUsd};
use shared_door::http::X_ACCOUNT;

use crate::{
    app::App,
    failure::Failure,
    form::{Fields, RANGE_FIELDS},
    site::{destination::Destination, paths::HOME, zone::Today},
    visitors::{
        browser::{Browser, SESSION_COOKIE},
        person::{ActOf, Person},
    },
};
use domain::{
    access::{Effect, Forbidden, Subject, may},
    ledger::AccountStatus,
};
use key_service_management::{
    Management,
    accounts::SOON,
    governed::Acting,
    members::{SignedIn, Token},
    reach::AccountReach,
};
use key_service_store::store::{Funds, StoreError};

/// A form from any member. Its sender may search, and change the member's own data.
pub type Act = ActOf<Viewer>;

/// A signed-in member. As an extractor, it admits only members who may see the whole account, so it refuses leads of
/// groups. [`KeysViewer`] also admits leads, and a page that uses it must show nothing outside of [`Viewer::reach`].
#[derive(Debug)]
pub struct Viewer {
    /// The member and the session.
    pub signed_in: SignedIn,
    /// The account's name and money.
    pub funds: Funds,
    pub browser: Browser,
    /// Days until the credit runs out, if this process has already read the recent spend.
    pub days_left: Option<i64>,
    /// The range of days in the address, as a query for links to the same range.
    pub range: String,
    token: Token,
}

impl Viewer {
    /// Returns access to changes that are made on the member's behalf.
    pub fn by<'a>(&self, app: &'a App) -> Acting<'a> {
        app.management.by(self.signed_in.account, self.signed_in.actor())
    }

    /// Returns whether the member may change everything in the account.
    pub fn is_owner(&self) -> bool {
        self.signed_in.member.is_owner()
    }

    /// Returns whether the member may change API keys, either all of the account or those of the group that the member
    /// leads.
    pub fn keeps_keys(&self) -> bool {
        self.may(Effect::Write, Subject::Keys).is_ok()
    }

    /// Returns the current day in the member's time zone.
    pub fn today(&self, app: &App) -> Today {
        self.browser.zone().today(app.management.now())
    }

    /// Returns whether the credit is used up or will be within days.
    pub fn is_credit_short(&self) -> bool {
        self.funds.credit <= NanoUsd::ZERO || self.days_left.is_some_and(|days| days < SOON)
    }

    /// Returns what the member may see: the account, or a group and its child groups.
    pub const fn reach(&self) -> AccountReach {
        self.signed_in.reach()
    }

    /// Checks that the member may read or change this kind of object.
    pub fn may(&self, effect: Effect, subject: Subject) -> Result<(), Failure> {
        if self.signed_in.is_over {
            return Err(Failure::GroupEnded);
        }
        if effect == Effect::Write && self.funds.standing.is_some() {
            return Err(Failure::AccountSuspended);
        }
        may(self.signed_in.member.role.access(), effect, subject).map_err(|forbidden| match forbidden {
            Forbidden::ReadOnly => Failure::OwnersOnly,
            Forbidden::KeysOfGroupOnly => Failure::KeysOfGroupOnly,
            Forbidden::OutOfReach => Failure::NotFound,
        })
    }
}

impl Person for Viewer {
    const HOME: &'static str = HOME;
    const COOKIE: &'static str = SESSION_COOKIE;

    fn signed_in(&self) -> &SignedIn {
        &self.signed_in
    }

    fn browser(&self) -> &Browser {
        &self.browser
    }

    fn token(&self) -> &Token {
        &self.token
    }

    async fn session(management: &Management, token: &Token) -> Result<Option<SignedIn>, StoreError> {
        management.session(token).await
    }

    async fn of(app: &App, browser: Browser) -> Result<Option<Self>, StoreError> {
        let Some(token) = browser.session.clone() else { return Ok(None) };
        let Some(signed_in) = Self::session(&app.management, &token).await? else { return Ok(None) };
        let funds = app.management.funds(signed_in.account).await?;
        // When an account is closed, its members' sessions end.
        Ok(funds.filter(|funds| funds.status() != AccountStatus::Closed).map(|funds| {
            let days_left = app.management.days_left(signed_in.account, funds.credit);
            Self { signed_in, funds, days_left, browser, range: String::new(), token }
        }))
    }

    async fn of_request(parts: &Parts, app: &App) -> Result<Self, Failure> {
        let browser = Browser::of(&parts.headers, app.site.behind_tls);
        let has_ended = browser.session.is_some();
        let signed_out = || Failure::SignedOut { destination: Destination::of(parts), has_ended };
        let viewer = Self::of(app, browser).await?.ok_or_else(signed_out)?;
        let range = Fields::of_query(parts.uri.query()).only(&RANGE_FIELDS).query();
        if let Some(AskingAccount(account)) = parts.extensions.get() {
            account.get_or_init(|| viewer.signed_in.account);
        }
        Ok(Self { range, ..viewer })
    }
}

/// The account of the member who sent a request, once it is known. The gateway counts the request for this account.
#[derive(Clone, Debug, Default)]
pub struct AskingAccount(Arc<OnceLock<AccountId>>);

impl AskingAccount {
    /// Adds the account to the headers of the answer.
    pub fn write(&self, headers: &mut HeaderMap) {
        let value = self.0.get().and_then(|account| HeaderValue::try_from(account.to_string()).ok());
        headers.extend(value.map(|value| (X_ACCOUNT, value)));
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let viewer = Self::of_request(parts, app).await?;
        viewer.may(Effect::Read, Subject::Account)?;
        Ok(viewer)
    }
}

/// A signed-in member, for pages that leads of groups may see too.
#[derive(Debug)]
pub struct KeysViewer(pub Viewer);

impl From<KeysViewer> for Viewer {
    fn from(KeysViewer(viewer): KeysViewer) -> Self {
        viewer
    }
}

impl FromRequestParts<App> for KeysViewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let viewer = Viewer::of_request(parts, app).await?;
        viewer.may(Effect::Read, Subject::Keys)?;
        Ok(Self(viewer))
    }
}

/// A signed-in member, for pages about the member's own sign-in.
#[derive(Debug)]
pub struct OwnViewer(pub Viewer);

impl FromRequestParts<App> for OwnViewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        Viewer::of_request(parts, app).await.map(Self)
    }
}

/// A signed-in owner, for pages that viewers must not see.
#[derive(Debug)]
pub struct Owner(pub Viewer);

impl FromRequestParts<App> for Owner {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let viewer = Viewer::from_request_parts(parts, app).await?;
        if viewer.is_owner() { Ok(Self(viewer)) } else { Err(Failure::OwnersOnly) }
    }
}

/// A form from an owner or the lead of a group. Its sender may change the API keys that the member can reach.
#[derive(Debug)]
pub struct KeysAct(pub Act);

impl From<KeysAct> for Act {
    fn from(KeysAct(act): KeysAct) -> Self {
        act
    }
}

impl FromRequest<App> for KeysAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let act = Act::from_request(request, app).await?;
        act.viewer.may(Effect::Write, Subject::Keys)?;
        Ok(Self(act))
    }
}

/// A form from an owner. Its sender may change anything in the account.
#[derive(Debug)]
pub struct OwnerAct(pub Act);

impl From<OwnerAct> for Act {
    fn from(OwnerAct(act): OwnerAct) -> Self {
        act
    }
}

impl FromRequest<App> for OwnerAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let act = Act::from_request(request, app).await?;
        act.viewer.may(Effect::Write, Subject::Account)?;
        Ok(Self(act))
    }
}
