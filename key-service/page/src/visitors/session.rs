//! The member who sent a request, and the right to change something.

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::{HeaderMap, HeaderValue, request::Parts};
use shared::ids::AccountId;
use shared_door::http::X_ACCOUNT;

use crate::{
    app::App,
    failure::Failure,
    form::{Fields, RANGE_FIELDS},
    site::destination::Destination,
    visitors::browser::{Browser, check_form_token, check_origin},
};
use key_service_management::{
    governed::Acting,
    members::{SignedIn, Token},
};
use key_service_store::store::{Funds, StoreError};

/// Someone who is signed in in a browser.
pub trait SignedInBrowser {
    fn browser(&self) -> &Browser;

    /// The token of the session.
    fn token(&self) -> &Token;
}

/// A signed-in member, who may see everything of the account except margins.
#[derive(Debug)]
pub struct Viewer {
    /// The member and the session.
    pub signed_in: SignedIn,
    /// The account's name and money.
    pub funds: Funds,
    pub browser: Browser,
    /// Range of days of the address, as a query, for links to other pages that have one.
    pub range: String,
    token: Token,
}

impl Viewer {
    /// Finds the member who is signed in in a browser, if any.
    pub async fn of(app: &App, browser: Browser) -> Result<Option<Self>, StoreError> {
        let Some(token) = browser.session.clone() else { return Ok(None) };
        let Some(signed_in) = app.management.session(&token).await? else { return Ok(None) };
        let funds = app.management.funds(signed_in.account).await?;
        Ok(funds.map(|funds| Self { signed_in, funds, browser, range: String::new(), token }))
    }

    /// Acts of the member on the account.
    pub fn by<'a>(&self, app: &'a App) -> Acting<'a> {
        app.management.by(self.signed_in.account, self.signed_in.actor())
    }

    /// Returns whether the member may change the account's data.
    pub fn is_owner(&self) -> bool {
        self.signed_in.member.is_owner()
    }
}

impl SignedInBrowser for Viewer {
    fn browser(&self) -> &Browser {
        &self.browser
    }

    fn token(&self) -> &Token {
        &self.token
    }
}

/// Account of the member who sent the request, once it is known, for the gateway's bounds. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AskingAccount(Arc<OnceLock<AccountId>>);

impl AskingAccount {
    /// Writes the account into the headers of the answer.
    pub fn write(&self, headers: &mut HeaderMap) {
        let value = self.0.get().and_then(|account| HeaderValue::try_from(account.to_string()).ok());
        headers.extend(value.map(|value| (X_ACCOUNT, value)));
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let browser = Browser::of(&parts.headers, app.behind_tls);
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

/// A signed-in owner, for pages that viewers do not see.
#[derive(Debug)]
pub struct Owner(pub Viewer);

impl FromRequestParts<App> for Owner {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let viewer = Viewer::from_request_parts(parts, app).await?;
        if viewer.is_owner() { Ok(Self(viewer)) } else { Err(Failure::OwnersOnly) }
    }
}

/// A form that a member sent from one of our pages. It allows changes of the member's own data.
#[derive(Debug)]
pub struct Act {
    pub viewer: Viewer,
    pub form: Fields,
}

impl FromRequest<App> for Act {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let viewer = Viewer::from_request_parts(&mut parts, app).await?;
        check_origin(&parts.headers, &viewer.browser)?;
        let form = Fields::of_form(&parts.headers, body).await?;
        check_form_token(&viewer.token, form.get("token"))?;
        Ok(Self { viewer, form })
    }
}

/// A form that an owner sent. It allows changes of the account's data.
#[derive(Debug)]
pub struct OwnerAct(pub Act);

impl FromRequest<App> for OwnerAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let act = Act::from_request(request, app).await?;
        if act.viewer.is_owner() { Ok(Self(act)) } else { Err(Failure::OwnersOnly) }
    }
}
