//! Answers requests for lists with one page, or with all objects in constant memory.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::{HeaderValue, header};
use shared::{error::ApiError, ids::AccountId, time::Timestamp};
use tracing::Span;

use crate::{
    api::Api,
    error::{list_error, read_error},
    query::ListQuery,
};
use key_service_management::{
    Management,
    listing::{Completeness, Listed, Listing, Page},
};
use key_service_objects::Shown;

/// Maximum number of objects in memory while a response lists all objects: about 200 KiB of JSON.
const STREAMED_PAGE: usize = 500;

/// Answers a request for a list. If one page contains all requested objects, the response has a `Content-Length`.
/// Otherwise the objects are streamed page by page, as fast as the client reads.
pub(super) async fn respond<T: Shown>(
    api: Api,
    account: AccountId,
    query: ListQuery<T>,
) -> Result<Response, ApiError> {
    let ListQuery { limit, after, order, filter } = query;
    let listing = Listing { after, order, filter, limit: limit.unwrap_or(STREAMED_PAGE) };
    // The first page is read before the status is sent. So a refusal or an early failure becomes an error response.
    let page = api.management.list(account, &listing).await.map_err(list_error::<T>)?;
    let mut json = ListJson::<T>::new(api.clock.now());
    let body = if limit.is_some() || !page.has_more {
        let completeness = T::completeness(&api.management, account).await.map_err(read_error)?;
        let end = Some(ListingEnd { has_more: page.has_more, completeness });
        Body::from(json.piece(&page.items, end.as_ref()).map_err(|e| unwritable(&e))?)
    } else {
        let (page, span) = (Some(page), Span::current());
        let rest = RestOfListing { management: api.management, account, listing, json, page, span };
        Body::from_stream(try_unfold(Some(rest), RestOfListing::next_piece))
    };
    Ok(json_response(body))
}

pub(super) fn json_response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn unwritable(error: &serde_json::Error) -> ApiError {
    tracing::error!(%error, "cannot write a listing as JSON");
    ApiError::internal()
}

/// The listing failed midway. As an error of the body, this breaks the connection, so that no client mistakes the part
/// for the whole list.
#[derive(Debug, thiserror::Error)]
#[error("the listing was cut off")]
struct Broken;

/// The part of a listing that has not been sent yet.
struct RestOfListing<T: Listed> {
    management: Arc<Management>,
    account: AccountId,
    listing: Listing<T>,
    json: ListJson<T>,
    /// A page that has been read but not sent yet.
    page: Option<Page<T>>,
    /// The request's span, which would otherwise end when the response's head is sent.
    span: Span,
}

impl<T: Shown> RestOfListing<T> {
    /// Returns the next piece of the body, and the remainder.
    async fn next_piece(rest: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, Broken> {
        let Some(mut rest) = rest else { return Ok(None) };
        let page = if let Some(page) = rest.page.take() {
            page
        } else {
            let read = rest.management.list(rest.account, &rest.listing).await;
            read.map_err(|error| rest.broken(&error))?
        };
        // This is read last, because the store may drop objects while the list is sent.
        let end = if page.has_more {
            None
        } else {
            let completeness = T::completeness(&rest.management, rest.account).await;
            let completeness = completeness.map_err(|error| rest.broken(&error))?;
            Some(ListingEnd { has_more: false, completeness })
        };
        let piece = rest.json.piece(&page.items, end.as_ref()).map_err(|error| rest.broken(&error))?;
        rest.listing.after = rest.json.last;
        Ok(Some((piece, page.has_more.then_some(rest))))
    }

    fn broken(&self, error: &dyn std::fmt::Debug) -> Broken {
        self.span.in_scope(|| tracing::error!(?error, "a listing was cut off"));
        Broken
    }
}

/// Members at the end of a list.
struct ListingEnd {
    has_more: bool,
    completeness: Completeness,
}

/// Writes the JSON list in pieces.
struct ListJson<T: Listed> {
    /// When the listing began. Values that depend on the time, such as a key's status, are shown for this time.
    now: Timestamp,
    begun: bool,
    first: Option<T::Id>,
    last: Option<T::Id>,
}

impl<T: Shown> ListJson<T> {
    const fn new(now: Timestamp) -> Self {
        Self { now, begun: false, first: None, last: None }
    }

    /// Writes these objects as JSON. If `end` is set, also writes the end of the list.
    fn piece(&mut self, objects: &[T], end: Option<&ListingEnd>) -> Result<Bytes, serde_json::Error> {
        let mut json = Vec::new();
        if !self.begun {
            json.extend_from_slice(br#"{"object":"list","data":["#);
            self.begun = true;
        }
        for object in objects {
            if self.last.is_some() {
                json.push(b',');
            }
            serde_json::to_writer(&mut json, &object.shown(self.now))?;
            self.first.get_or_insert(object.id());
            self.last = Some(object.id());
        }
        if let Some(ListingEnd { has_more, completeness }) = end {
            json.extend_from_slice(br#"],"first_id":"#);
            serde_json::to_writer(&mut json, &self.first)?;
            json.extend_from_slice(br#","last_id":"#);
            serde_json::to_writer(&mut json, &self.last)?;
            json.extend_from_slice(br#","has_more":"#);
            serde_json::to_writer(&mut json, has_more)?;
            if let Completeness::Since(since) = completeness {
                json.extend_from_slice(br#","complete_since":"#);
                serde_json::to_writer(&mut json, since)?;
            }
            json.push(b'}');
        }
        Ok(json.into())
    }
}
