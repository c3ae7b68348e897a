//! Extractors for pages and forms about one object. They find the signed-in member, and the object that the path names.

use std::{marker::PhantomData, str::FromStr};

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    response::{IntoResponse, Response},
};
use http::request::Parts;
use shared::ids::MemberId;

use crate::{
    app::App,
    failure::Failure,
    form::Fields,
    visitors::session::{Act, OwnerAct, Viewer},
};
use domain::{alert::Alert, group::Group, key::ApiKey, member::Member, webhook::Webhook};
use key_service_store::store::ManagementKey;

/// An object that has pages, with its id in their paths.
pub trait PageObject: Sized {
    /// Finds an object by its id, if the member may see it.
    fn find(app: &App, viewer: &Viewer, id: &str) -> impl Future<Output = Result<Self, Failure>> + Send;
}

/// A request for a page about an object. The extractor `V` decides who may see it.
pub struct ObjectPage<T, V = Viewer> {
    pub app: App,
    pub viewer: Viewer,
    pub object: T,
    right: PhantomData<V>,
}

/// A form about an object. The extractor `A` decides who may send it.
pub struct ObjectAct<T, A = OwnerAct> {
    pub app: App,
    pub viewer: Viewer,
    pub form: Fields,
    pub object: T,
    right: PhantomData<A>,
}

impl<T, V> FromRequestParts<App> for ObjectPage<T, V>
where
    T: PageObject,
    V: FromRequestParts<App, Rejection = Failure> + Into<Viewer>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        let viewer = V::from_request_parts(parts, app).await;
        let viewer: Viewer = viewer.map_err(IntoResponse::into_response)?.into();
        let id = Path::<String>::from_request_parts(parts, app).await;
        let Path(id) = id.map_err(IntoResponse::into_response)?;
        let object = T::find(app, &viewer, &id).await.map_err(IntoResponse::into_response)?;
        Ok(Self { app: app.clone(), viewer, object, right: PhantomData })
    }
}

impl<T, A> FromRequest<App> for ObjectAct<T, A>
where
    T: PageObject,
    A: FromRequest<App, Rejection = Failure> + Into<Act>,
{
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let id = Path::<String>::from_request_parts(&mut parts, app).await;
        let Path(id) = id.map_err(IntoResponse::into_response)?;
        let act = A::from_request(Request::from_parts(parts, body), app).await;
        let Act { viewer, form } = act.map_err(IntoResponse::into_response)?.into();
        let object = T::find(app, &viewer, &id).await.map_err(IntoResponse::into_response)?;
        Ok(Self { app: app.clone(), viewer, form, object, right: PhantomData })
    }
}

/// Reads an id. A malformed id counts as an unknown object.
fn read<I: FromStr>(id: &str) -> Result<I, Failure> {
    id.parse().map_err(|_| Failure::NotFound)
}

impl PageObject for ApiKey {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        Ok(app.management.key_in(viewer.reach(), read(id)?).await?)
    }
}

impl PageObject for Group {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        Ok(app.management.group_in(viewer.reach(), read(id)?).await?)
    }
}

impl PageObject for Webhook {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        Ok(app.management.webhook(viewer.signed_in.account, read(id)?).await?)
    }
}

impl PageObject for Alert {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        Ok(app.management.alert(viewer.signed_in.account, read(id)?).await?)
    }
}

impl PageObject for ManagementKey {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        Ok(app.management.management_key(viewer.signed_in.account, read(id)?).await?)
    }
}

impl PageObject for Member {
    async fn find(app: &App, viewer: &Viewer, id: &str) -> Result<Self, Failure> {
        let id: MemberId = read(id)?;
        let members = app.management.members(viewer.signed_in.account).await?;
        members.into_iter().find(|member| member.id == id).ok_or(Failure::NotFound)
    }
}
