//! Failures, and the pages that explain them.

use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, header};

use crate::site::{
    destination::{Destination, SignInReason, sign_in_address},
    paths::{OPERATOR_SECOND_FACTOR, OPERATOR_SIGN_IN},
};
use domain::group::BadGroup;
use key_service_management::{
    Error, Refused, listing::UnknownCursor, management_keys::ManagementKeyRefused, members::MemberRefused,
    operator_keys::OperatorKeyRefused,
};
use key_service_store::store::StoreError;
use shared::{
    error::{ApiError, STORE_FULL},
    text::sentence,
};

/// Why a browser does not get the page that it requested.
#[derive(Debug)]
pub enum Failure {
    /// There is no session, or it has ended.
    SignedOut {
        /// Where to go after signing in.
        destination: Option<Destination>,
        has_ended: bool,
    },
    NoOperator,
    /// The operator has no second factor yet.
    NoSecondFactor,
    /// The member is a viewer, and only owners may do this.
    OwnersOnly,
    /// The member leads a group, and this concerns the whole account.
    KeysOfGroupOnly,
    /// The account is suspended, so its members may only read.
    AccountSuspended,
    /// The group that the member leads is archived.
    GroupEnded,
    /// The browser used a host name under which this installation serves no pages.
    ForeignHost,
    /// Another site sent the form (CSRF).
    ForeignForm,
    /// The form came from a page of this host that was loaded over this other scheme.
    OtherScheme(&'static str),
    /// The form's token belongs to an earlier session, or is forged.
    StaleForm,
    /// There is no such page, or the account has no such object.
    NotFound,
    /// The account or the process is at its limit of concurrent exports.
    TooManyExports,
    /// The request is malformed, or not possible in the object's present state. The text is a sentence that explains
    /// why.
    BadRequest(String),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(unavailable: StoreError) -> Self {
        Self::Store(unavailable)
    }
}

impl From<Error<Refused>> for Failure {
    fn from(error: Error<Refused>) -> Self {
        match error {
            Error::Refused(Refused::NotFound(_)) => Self::NotFound,
            Error::Refused(Refused::IdempotencyKeyReused) => {
                Self::BadRequest("This form was already submitted. Open it again.".into())
            }
            Error::Refused(Refused::BadGroup(_, bad)) => Self::BadRequest(bad_group(bad).into()),
            Error::Refused(Refused::KeyExpired) => {
                Self::BadRequest("An expired key cannot be rotated. Set a later expiry first.".into())
            }
            Error::Refused(Refused::RotationInProgress) => Self::BadRequest(
                "This key was rotated in the meantime, and its previous key still works.".into(),
            ),
            Error::Refused(
                refused @ (Refused::KeyRevoked
                | Refused::GroupArchived
                | Refused::LimitIsPaid(_)
                | Refused::TooMuchMetadata
                | Refused::BadRaise(_)
                | Refused::Address(_)
                | Refused::BadAlert(_)
                | Refused::TestedLately
                | Refused::TooMany(..)),
            ) => Self::BadRequest(ApiError::from(refused).message.into_owned()),
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

/// Explains why a key or a child group cannot be put into a group.
pub const fn bad_group(bad: BadGroup) -> &'static str {
    match bad {
        BadGroup::Unknown => "This account has no such group. Choose another one.",
        BadGroup::Archived => "This group is archived. Choose another one.",
        BadGroup::TooDeep => {
            "Groups have only two levels. This group is already inside another one, or contains groups itself."
        }
    }
}

impl From<Error<ManagementKeyRefused>> for Failure {
    fn from(error: Error<ManagementKeyRefused>) -> Self {
        match error {
            Error::Refused(
                refused @ (ManagementKeyRefused::TooMany
                | ManagementKeyRefused::UnknownGroup
                | ManagementKeyRefused::Reused),
            ) => Self::BadRequest(sentence(&refused.to_string())),
            Error::Refused(ManagementKeyRefused::NotFound) => Self::NotFound,
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

impl From<Error<OperatorKeyRefused>> for Failure {
    fn from(error: Error<OperatorKeyRefused>) -> Self {
        match error {
            Error::Refused(OperatorKeyRefused::NotFound) => Self::NotFound,
            Error::Refused(
                refused @ (OperatorKeyRefused::Ended
                | OperatorKeyRefused::NoScope
                | OperatorKeyRefused::TooManyNetworks
                | OperatorKeyRefused::BadPayment
                | OperatorKeyRefused::LongGrace
                | OperatorKeyRefused::TooMany),
            ) => Self::BadRequest(sentence(&refused.to_string())),
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

impl From<Error<UnknownCursor>> for Failure {
    fn from(error: Error<UnknownCursor>) -> Self {
        match error {
            Error::Refused(UnknownCursor) => Self::NotFound,
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

impl From<Error<MemberRefused>> for Failure {
    fn from(error: Error<MemberRefused>) -> Self {
        match error {
            Error::Refused(MemberRefused::NotFound) => Self::NotFound,
            Error::Refused(other) => Self::BadRequest(sentence(&other.to_string())),
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

/// Explains whether anything changed, and what to do next.
fn unavailable(cause: &StoreError) -> (StatusCode, &'static str, String) {
    let message = match cause {
        StoreError::Full => {
            return (StatusCode::SERVICE_UNAVAILABLE, "Nothing was changed", STORE_FULL.into());
        }
        StoreError::Unavailable(_) => {
            "The store did not answer in time. Check whether your change was made before you try again."
        }
        StoreError::Busy(_) => "The server is busy. Nothing was changed; try again.",
        StoreError::Conflict(_) | StoreError::Damaged(_) => {
            "The stored data is inconsistent. Nothing was changed; contact the operator."
        }
    };
    tracing::error!(error = %cause, "a page of the dashboard failed");
    (StatusCode::SERVICE_UNAVAILABLE, "Temporarily unavailable", message.into())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, title, message) = match self {
            Self::SignedOut { destination, has_ended } => {
                let location =
                    sign_in_address(destination.as_ref(), has_ended.then_some(SignInReason::Ended));
                return (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response();
            }
            Self::NoOperator => return Redirect::to(OPERATOR_SIGN_IN).into_response(),
            Self::NoSecondFactor => return Redirect::to(OPERATOR_SECOND_FACTOR).into_response(),
            Self::OwnersOnly => (
                StatusCode::FORBIDDEN,
                "Only owners can do this",
                "Your role is viewer. Ask an owner of this account.".into(),
            ),
            Self::KeysOfGroupOnly => (
                StatusCode::FORBIDDEN,
                "This is outside your group",
                "As the lead of a group, you see its API keys and their usage. Ask an owner of this account for more."
                    .into(),
            ),
            Self::AccountSuspended => (
                StatusCode::FORBIDDEN,
                "This account is suspended",
                "Nothing was changed. You can still read everything. Ask whoever runs this service to restore the account."
                    .into(),
            ),
            Self::GroupEnded => (
                StatusCode::FORBIDDEN,
                "Your group is archived",
                "The group that you led was archived, so there is nothing left for you to see. Ask an owner of this \
                 account for another role."
                    .into(),
            ),
            Self::ForeignHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "This installation has another address",
                "Open it at the address in FAREGATE_PUBLIC_URL. Whoever runs this installation can change that setting."
                    .into(),
            ),
            Self::ForeignForm => (
                StatusCode::FORBIDDEN,
                "This form came from another site",
                "Nothing was changed. Open the page on this site and try again.".into(),
            ),
            Self::OtherScheme(scheme) => (
                StatusCode::FORBIDDEN,
                "This form came over another protocol",
                format!(
                    "Nothing was changed. Your browser used {scheme}, but this installation is not set up for \
                     {scheme}. Whoever runs it must set FAREGATE_PUBLIC_URL to the address that browsers use."
                ),
            ),
            Self::StaleForm => (
                StatusCode::FORBIDDEN,
                "This form is out of date",
                "Nothing was changed. Go back, reload the page and try again.".into(),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Page not found",
                "The address is wrong, or what it refers to no longer exists.".into(),
            ),
            Self::TooManyExports => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many downloads at once",
                "An account can download two files at a time. Try again when a download has finished.".into(),
            ),
            Self::BadRequest(message) => (StatusCode::BAD_REQUEST, "That did not work", message),
            Self::Store(cause) => unavailable(&cause),
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(Explained { title, message });
        response
    }
}

/// The text of a failure. A middleware renders it as a page.
#[derive(Clone, Debug)]
pub(crate) struct Explained {
    pub title: &'static str,
    /// What happened and what to do next.
    pub message: String,
}
