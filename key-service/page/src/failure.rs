//! Failures, which become pages.

use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, header};

use crate::site::{
    destination::{Destination, SignInReason, sign_in_address},
    paths::{OPERATOR_SECOND_FACTOR, OPERATOR_SIGN_IN},
};
use domain::group::BadGroup;
use key_service_management::{
    Error, Refused, listing::UnknownCursor, management_keys::ManagementKeyRefused, members::MemberRefused,
};
use key_service_store::store::StoreError;
use shared::error::ApiError;

/// Reason why there is no page.
#[derive(Debug)]
pub enum Failure {
    /// There is no session, or it has ended.
    SignedOut {
        /// The page that was asked for.
        destination: Option<Destination>,
        has_ended: bool,
    },
    /// No operator is signed in.
    NoOperator,
    /// The operator has no second factor yet.
    NoSecondFactor,
    /// The member is a viewer, and only owners may do this.
    OwnersOnly,
    /// The member leads a group, and this is of the whole account.
    KeysOfGroupOnly,
    /// The group that the member leads is archived.
    GroupEnded,
    /// The browser used a host that is not the installation's.
    ForeignHost,
    /// Another site has sent the form.
    ForeignForm,
    /// The form came from this host by this other scheme.
    OtherScheme(&'static str),
    /// The form is from an earlier session, or made up.
    StaleForm,
    /// There is no such page, or the account has no such object.
    NotFound,
    /// The account, or all accounts together, have as many exports running as allowed.
    TooManyExports,
    /// No page of ours makes such a request.
    BadRequest(String),
    /// The store is nearly full, and accepts nothing new.
    StoreFull,
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
            Error::Refused(Refused::StoreFull) => Self::StoreFull,
            Error::Refused(Refused::IdempotencyKeyReused) => {
                Self::BadRequest("This form was used before. Open it again.".into())
            }
            Error::Refused(Refused::BadGroup(_, bad)) => Self::BadRequest(bad_group(bad).into()),
            Error::Refused(Refused::KeyExpired) => {
                Self::BadRequest("An expired key cannot be rotated. Give it a later expiry first.".into())
            }
            Error::Refused(Refused::RotationInProgress) => {
                Self::BadRequest("The key was rotated meanwhile, and its previous key still works.".into())
            }
            Error::Refused(
                refused @ (Refused::KeyRevoked
                | Refused::GroupArchived
                | Refused::TooMuchMetadata
                | Refused::BadRaise(_)
                | Refused::Address(_)
                | Refused::TooMany(..)),
            ) => Self::BadRequest(ApiError::from(refused).message.into_owned()),
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

/// Says why a group accepts no key or no child group, and what to do.
pub const fn bad_group(bad: BadGroup) -> &'static str {
    match bad {
        BadGroup::Unknown => "This account has no such group. Choose another one.",
        BadGroup::Archived => "This group is archived. Choose another one.",
        BadGroup::TooDeep => "Groups have two levels: this group is in another one, or has groups in it.",
    }
}

impl From<Error<ManagementKeyRefused>> for Failure {
    fn from(error: Error<ManagementKeyRefused>) -> Self {
        match error {
            Error::Refused(
                refused @ (ManagementKeyRefused::TooMany | ManagementKeyRefused::UnknownGroup),
            ) => Self::BadRequest(sentence(&refused.to_string())),
            Error::Refused(ManagementKeyRefused::StoreFull) => Self::StoreFull,
            Error::Refused(ManagementKeyRefused::NotFound) => Self::NotFound,
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
            Error::Refused(MemberRefused::StoreFull) => Self::StoreFull,
            Error::Refused(other) => Self::BadRequest(sentence(&other.to_string())),
            Error::Store(unavailable) => Self::Store(unavailable),
        }
    }
}

/// Writes a reason as a sentence of its own.
pub fn sentence(reason: &str) -> String {
    let mut chars = reason.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).chain(['.']).collect()
}

/// Says whether something was done, and what to do next.
const fn what_next(cause: &StoreError) -> &'static str {
    match cause {
        StoreError::Unavailable(_) => {
            "The store does not answer. Look whether it was done before you try again."
        }
        StoreError::Busy(_) => "Too much is asked for at once. Nothing was done; try again.",
        StoreError::Conflict(_) | StoreError::Damaged(_) => {
            "The store holds something that does not fit. Nothing was done; ask the operator."
        }
    }
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
                "Your role is viewer. Ask an owner of this account to do this.".into(),
            ),
            Self::KeysOfGroupOnly => (
                StatusCode::FORBIDDEN,
                "This is not of your group",
                "You lead a group: you see its API keys and what they do. Ask an owner of this account for more."
                    .into(),
            ),
            Self::GroupEnded => (
                StatusCode::FORBIDDEN,
                "Your group is archived",
                "The group that you led is archived, so there is nothing to see any more. Ask an owner of this account \
                 for another role."
                    .into(),
            ),
            Self::ForeignHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "This is not the address of this installation",
                "Open the dashboard at the address that FAREGATE_PUBLIC_URL names. Whoever runs this installation can \
                 change that setting."
                    .into(),
            ),
            Self::ForeignForm => (
                StatusCode::FORBIDDEN,
                "This form came from another site",
                "Nothing was changed. Open the page on this site and try again.".into(),
            ),
            Self::OtherScheme(scheme) => (
                StatusCode::FORBIDDEN,
                "This form came by another protocol",
                format!(
                    "Nothing was changed. Your browser used {scheme}, and this installation does not know that it is \
                     reached by {scheme}. Whoever runs it sets FAREGATE_PUBLIC_URL to the address that browsers use."
                ),
            ),
            Self::StaleForm => (
                StatusCode::FORBIDDEN,
                "This form is out of date",
                "Nothing was changed. Go back, reload the page and try again.".into(),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "There is nothing here",
                "The address is wrong, or what it named is gone.".into(),
            ),
            Self::TooManyExports => (
                StatusCode::TOO_MANY_REQUESTS,
                "Other files are on their way",
                "An account loads two files at a time. Try again when one has come.".into(),
            ),
            Self::BadRequest(message) => (StatusCode::BAD_REQUEST, "That did not work", message),
            Self::StoreFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The store is nearly full",
                "Until its operator enlarges it, things can only be revoked, disabled or archived, and bounds lowered. \
                 What there is goes on working."
                    .into(),
            ),
            Self::Store(cause) => {
                tracing::error!(error = %cause, "a page of the dashboard failed");
                (StatusCode::SERVICE_UNAVAILABLE, "Not available right now", what_next(&cause).into())
            }
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(Explained { title, message });
        response
    }
}

/// A failure in words, before it gets a page around it.
#[derive(Clone, Debug)]
pub(crate) struct Explained {
    pub title: &'static str,
    /// What happened, and what to do about it.
    pub message: String,
}
