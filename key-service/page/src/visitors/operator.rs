//! The operator who sent a request, and the right to change something.

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;

use crate::{
    app::App,
    failure::Failure,
    form::Fields,
    visitors::{
        browser::{Browser, check_form_token, check_origin},
        session::SignedInBrowser,
    },
};
use key_service_management::members::{SignedIn, Token};
use key_service_store::store::StoreError;

/// An operator's session, perhaps without a second factor yet. It is enough to set one up and to sign out.
#[derive(Debug)]
pub struct NewOperator {
    pub signed_in: SignedIn,
    pub browser: Browser,
    token: Token,
}

/// An operator's session with a second factor. It may see every account.
#[derive(Debug)]
pub struct Operator(pub NewOperator);

impl NewOperator {
    /// Finds the operator who is signed in, if any.
    pub async fn of(app: &App, browser: Browser) -> Result<Option<Self>, StoreError> {
        let Some(token) = browser.operator.clone() else { return Ok(None) };
        let signed_in = app.management.operator_session(&token).await?;
        Ok(signed_in.map(|signed_in| Self { signed_in, browser, token }))
    }

    pub fn name(&self) -> &str {
        &self.signed_in.member.name
    }

    pub fn has_second_factor(&self) -> bool {
        self.signed_in.member.second_factor.is_some()
    }
}

impl SignedInBrowser for NewOperator {
    fn browser(&self) -> &Browser {
        &self.browser
    }

    fn token(&self) -> &Token {
        &self.token
    }
}

impl SignedInBrowser for Operator {
    fn browser(&self) -> &Browser {
        self.0.browser()
    }

    fn token(&self) -> &Token {
        self.0.token()
    }
}

impl FromRequestParts<App> for NewOperator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let browser = Browser::of(&parts.headers, app.site.behind_tls);
        Self::of(app, browser).await?.ok_or(Failure::NoOperator)
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let operator = NewOperator::from_request_parts(parts, app).await?;
        if operator.has_second_factor() { Ok(Self(operator)) } else { Err(Failure::NoSecondFactor) }
    }
}

/// A form from an operator who may not have a second factor yet. It may change only the operator's own sign-in.
#[derive(Debug)]
pub struct NewOperatorAct {
    pub operator: NewOperator,
    pub form: Fields,
}

/// A form from an operator with a second factor. It may change accounts.
#[derive(Debug)]
pub struct OperatorAct {
    pub operator: Operator,
    pub form: Fields,
}

impl FromRequest<App> for NewOperatorAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        let operator = NewOperator::from_request_parts(&mut parts, app).await?;
        check_origin(&parts.headers, &operator.browser)?;
        let form = Fields::of_form(&parts.headers, body).await?;
        check_form_token(&operator.token, form.get("token"))?;
        Ok(Self { operator, form })
    }
}

impl FromRequest<App> for OperatorAct {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let NewOperatorAct { operator, form } = NewOperatorAct::from_request(request, app).await?;
        if operator.has_second_factor() {
            Ok(Self { operator: Operator(operator), form })
        } else {
            Err(Failure::NoSecondFactor)
        }
    }
}
