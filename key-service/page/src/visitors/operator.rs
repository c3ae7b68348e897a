//! The operator who sent a request, and the right to change something.

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;

use crate::{
    app::App,
    failure::Failure,
    site::paths::OPERATOR,
    visitors::{
        browser::{Browser, OPERATOR_COOKIE},
        person::{ActOf, Person},
    },
};
use key_service_management::{
    Management,
    members::{SignedIn, Token},
};
use key_service_store::store::StoreError;

/// A signed-in operator, who may see every account. As an extractor, it admits only operators with a second factor.
/// [`NewOperator`] also admits operators without a second factor.
#[derive(Debug)]
pub struct Operator {
    pub signed_in: SignedIn,
    pub browser: Browser,
    token: Token,
}

/// A signed-in operator with or without a second factor, for pages that set it up.
#[derive(Debug)]
pub struct NewOperator(pub Operator);

/// A form from an operator with a second factor. Its sender may change accounts.
#[derive(Debug)]
pub struct OperatorAct(pub ActOf<Operator>);

impl Operator {
    pub fn name(&self) -> &str {
        &self.signed_in.member.name
    }

    pub fn has_second_factor(&self) -> bool {
        self.signed_in.member.second_factor.is_some()
    }

    fn check_second_factor(&self) -> Result<(), Failure> {
        if self.has_second_factor() { Ok(()) } else { Err(Failure::NoSecondFactor) }
    }
}

impl Person for Operator {
    const HOME: &'static str = OPERATOR;
    const COOKIE: &'static str = OPERATOR_COOKIE;

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
        management.operator_session(token).await
    }

    async fn of(app: &App, browser: Browser) -> Result<Option<Self>, StoreError> {
        let Some(token) = browser.operator.clone() else { return Ok(None) };
        let signed_in = Self::session(&app.management, &token).await?;
        Ok(signed_in.map(|signed_in| Self { signed_in, browser, token }))
    }

    async fn of_request(parts: &Parts, app: &App) -> Result<Self, Failure> {
        let browser = Browser::of(&parts.headers, app.site.behind_tls);
        Self::of(app, browser).await?.ok_or(Failure::NoOperator)
    }
}

impl FromRequestParts<App> for NewOperator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        Operator::of_request(parts, app).await.map(Self)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let operator = Self::of_request(parts, app).await?;
        operator.check_second_factor()?;
        Ok(operator)
    }
}

impl FromRequest<App> for OperatorAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let act = ActOf::<Operator>::from_request(request, app).await?;
        act.viewer.check_second_factor()?;
        Ok(Self(act))
    }
}
