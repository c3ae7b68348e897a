//! Errors that only the HTTP API has: missing rights, unknown cursors and failed reads.

use domain::access::Forbidden;
use key_service_management::{
    Error,
    listing::{Listed, UnknownCursor},
};
use key_service_store::store::StoreError;
use shared::error::{ApiError, Code};

/// Returns the error for a management key that may not make this request. For an object out of the key's reach, returns
/// `unknown`, the same error as for another account's object.
pub(super) fn forbidden(error: Error<Forbidden>, unknown: impl Into<ApiError>) -> ApiError {
    let said = |reason| match reason {
        Forbidden::ReadOnly => {
            ApiError::new(Code::ReadOnlyKey, "This management key may only read; use a key with full scope.")
        }
        Forbidden::KeysOfGroupOnly => ApiError::new(
            Code::GroupKeyNotAllowed,
            "This management key only manages the API keys of its group; use a key for the whole account.",
        ),
        Forbidden::OutOfReach => unknown.into(),
    };
    error.map(said).into()
}

/// Makes the error for a change in a suspended account.
pub(super) fn read_only() -> ApiError {
    let says = "The account is suspended, so nothing can be changed. Ask whoever runs this service.";
    ApiError::new(Code::AccountReadOnly, says)
}

/// Returns the error for an `after` id that does not exist in the account.
pub(super) fn unknown_cursor<T: Listed>() -> ApiError {
    let message = format!("`after` must be the id of {} of the account.", T::NAME);
    ApiError::at(Code::InvalidValue, "after", message)
}

pub(super) fn list_error<T: Listed>(error: Error<UnknownCursor>) -> ApiError {
    error.map(|UnknownCursor| unknown_cursor::<T>()).into()
}

pub(super) fn read_error(cause: StoreError) -> ApiError {
    Error::<ApiError>::Store(cause).into()
}
