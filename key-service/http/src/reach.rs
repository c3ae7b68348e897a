//! Which objects of an account a group's management key may use.

use std::{fmt::Display, future::ready};

use shared::{
    error::ApiError,
    ids::GroupId,
    wire::{Noun, Object},
};

use super::{api::Api, error::forbidden, parts::PathId, query::Filtered};
use domain::access::Forbidden;
use key_service_management::{Error, Refused, governed::Governed, governor::Governor, listing::Listed};
use key_service_objects::Shown;

/// A noun in the HTTP API. By default, a caller who reaches the account reaches all its objects.
pub(super) trait HttpNoun: Governed + Filtered<Id: Display> + Shown {
    /// Limits a listing to what the caller may reach.
    fn narrow(_: &mut Self::Filter, _: &Governor) {}

    /// Checks whether the request may use this object.
    fn judge(
        _: &Api,
        _: &Governor,
        _: Self::Id,
    ) -> impl Future<Output = Result<(), Error<Forbidden>>> + Send {
        ready(Ok(()))
    }

    /// Checks where the request places an object, and places a new object where the caller can reach it.
    fn place(
        _: &Api,
        _: &Governor,
        _: &mut Self::Settings,
        _is_new: bool,
    ) -> impl Future<Output = Result<(), ApiError>> + Send {
        ready(Ok(()))
    }
}

impl Api {
    /// Returns the object in the path. An object that the caller may not reach is treated as unknown, like another
    /// account's object.
    pub(super) async fn in_reach<T: HttpNoun>(
        &self,
        caller: &Governor,
        path: &PathId<<T as Listed>::Id>,
    ) -> Result<<T as Listed>::Id, ApiError> {
        let unknown = Refused::NotFound(T::Object::NOUN);
        let id = path.or(unknown)?;
        T::judge(self, caller, id).await.map_err(|error| forbidden(error, unknown))?;
        Ok(id)
    }

    /// Returns the group in the path, for a request that concerns the group's keys.
    pub(super) async fn keys_of_group_in_reach(
        &self,
        caller: &Governor,
        path: &PathId<GroupId>,
    ) -> Result<GroupId, ApiError> {
        let unknown = Refused::NotFound(Noun::Group);
        let id = path.or(unknown)?;
        let judged = self.management.judge_keys_of(caller, id).await;
        judged.map_err(|error| forbidden(error, unknown))?;
        Ok(id)
    }
}
