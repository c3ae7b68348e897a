//! Errors that routes of models and of management share.

use shared::error::Code;

/// Errors for callers without a usable credential, on every route that needs a credential.
pub(super) const NO_CREDENTIAL: [Code; 2] = [Code::MissingApiKey, Code::InvalidAuthorizationHeader];
/// Errors of the service itself.
pub(super) const OURS: [Code; 3] = [Code::InternalError, Code::Overloaded, Code::ServiceUnavailable];
/// Errors of a body that cannot be read.
pub(super) const BODY: [Code; 3] = [Code::InvalidJson, Code::UnsupportedMediaType, Code::RequestTooLarge];
