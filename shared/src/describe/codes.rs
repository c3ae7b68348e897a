//! Errors that many routes share.

use crate::error::Code;

/// Errors for callers without a usable credential, on every route that needs a credential.
pub const NO_CREDENTIAL: [Code; 2] = [Code::MissingApiKey, Code::InvalidAuthorizationHeader];
/// Errors of the service itself.
pub const OURS: [Code; 3] = [Code::InternalError, Code::Overloaded, Code::ServiceUnavailable];
/// Errors of a body that cannot be read.
pub const BODY: [Code; 3] = [Code::InvalidJson, Code::UnsupportedMediaType, Code::RequestTooLarge];
