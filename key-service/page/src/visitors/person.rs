//! Someone who is signed in: a member on the dashboard, or an operator on the operators' pages.

use axum::extract::{FromRequest, Request};
use http::request::Parts;

use crate::{
    app::App,
    failure::Failure,
    form::Fields,
    visitors::browser::{Browser, check_form_token, check_origin},
};
use key_service_management::{
    Management,
    members::{SignedIn, Token},
};
use key_service_store::store::StoreError;

pub trait Person: Sized + Send + Sync + 'static {
    /// Path of the first page. All pages for this person are below it.
    const HOME: &'static str;

    /// Name of the cookie with the session.
    const COOKIE: &'static str;

    /// Returns the person and the session.
    fn signed_in(&self) -> &SignedIn;

    fn browser(&self) -> &Browser;

    fn token(&self) -> &Token;

    /// Finds the session with this token, if it belongs to a person of this kind and has not ended.
    fn session(
        management: &Management,
        token: &Token,
    ) -> impl Future<Output = Result<Option<SignedIn>, StoreError>> + Send;

    /// Finds the person who is signed in, if any.
    fn of(app: &App, browser: Browser) -> impl Future<Output = Result<Option<Self>, StoreError>> + Send;

    /// Finds the person who sent a request, without checking any right.
    fn of_request(parts: &Parts, app: &App) -> impl Future<Output = Result<Self, Failure>> + Send;
}

/// A form from someone who is signed in. Its origin and its token were checked. Its sender may change the person's own
/// sign-in.
#[derive(Debug)]
pub struct ActOf<P> {
    pub viewer: P,
    pub form: Fields,
}

impl<P: Person> FromRequest<App> for ActOf<P> {
    type Rejection = Failure;

    async fn from_request(request: Request, app: &App) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let viewer = P::of_request(&parts, app).await?;
        check_origin(&parts.headers, viewer.browser())?;
        let form = Fields::of_form(&parts.headers, body).await?;
        check_form_token(viewer.token(), form.get("token"))?;
        let form = form.in_utc(&viewer.browser().zone());
        Ok(Self { viewer, form })
    }
}
