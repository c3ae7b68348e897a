//! Errors of the public API, each with a code, a status and a type.

use std::borrow::Cow;

use axum_core::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{text::cut, timing::time::Timestamp};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:ident, $kind:literal;)+) => {
        /// The stable name of an error. Clients see it: codes may be added, but never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant),+ }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the HTTP status of an answer with this code.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            /// Returns the error's `type`.
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$variant => $kind),+ }
            }
        }
    };
}

codes! {
    /// The request has no `Authorization` header.
    MissingApiKey = "missing_api_key", UNAUTHORIZED, "authentication_error";
    /// The header is not `Bearer <token>`, or there are several `Authorization` headers.
    InvalidAuthorizationHeader = "invalid_authorization_header", UNAUTHORIZED, "authentication_error";
    /// The API key is unknown, malformed or revoked.
    InvalidApiKey = "invalid_api_key", UNAUTHORIZED, "authentication_error";
    /// The management key is unknown, malformed or revoked.
    InvalidManagementKey = "invalid_management_key", UNAUTHORIZED, "authentication_error";
    /// The operator key is unknown, malformed or revoked.
    InvalidOperatorKey = "invalid_operator_key", UNAUTHORIZED, "authentication_error";
    /// The API key belongs to a suspended account.
    AccountSuspended = "account_suspended", UNAUTHORIZED, "authentication_error";
    /// The key belongs to a closed account.
    AccountClosed = "account_closed", UNAUTHORIZED, "authentication_error";
    /// The API key is disabled.
    KeyDisabled = "key_disabled", UNAUTHORIZED, "authentication_error";
    /// The `expires_at` of the API key has passed.
    KeyExpired = "key_expired", UNAUTHORIZED, "authentication_error";
    /// A valid management key was used on a model route.
    ManagementKeyNotAllowed = "management_key_not_allowed", FORBIDDEN, "permission_error";
    /// A valid API key was used on a management route.
    ManagementKeyRequired = "management_key_required", FORBIDDEN, "permission_error";
    /// A valid operator key was used on a route outside the operator API.
    OperatorKeyNotAllowed = "operator_key_not_allowed", FORBIDDEN, "permission_error";
    /// A valid API key or management key was used on a route of the operator API.
    OperatorKeyRequired = "operator_key_required", FORBIDDEN, "permission_error";
    /// The operator key lacks a scope that the route needs.
    OperatorScopeMissing = "operator_scope_missing", FORBIDDEN, "permission_error";
    /// The operator key was used from outside its networks.
    OperatorNetworkNotAllowed = "operator_network_not_allowed", FORBIDDEN, "permission_error";
    /// Someone other than an operator tried to change something in a suspended account.
    AccountReadOnly = "account_suspended", FORBIDDEN, "permission_error";
    /// A management key that may only read was used on a route that writes.
    ReadOnlyKey = "read_only_key", FORBIDDEN, "permission_error";
    /// A management key of a group was used for anything other than a key of that group.
    GroupKeyNotAllowed = "group_key_not_allowed", FORBIDDEN, "permission_error";
    /// The key's group, or the group's parent, is archived.
    GroupArchived = "group_archived", UNAUTHORIZED, "authentication_error";
    /// The key or one of its groups does not allow the model.
    ModelNotAllowed = "model_not_allowed", FORBIDDEN, "permission_error";
    /// The key's limit cannot pay for the request.
    KeyLimitReached = "key_limit_reached", PAYMENT_REQUIRED, "billing_error";
    /// The limit of the key's group, or of the group's parent, cannot pay for the request.
    GroupLimitReached = "group_limit_reached", PAYMENT_REQUIRED, "billing_error";
    /// The account's credit cannot pay for the request.
    InsufficientCredits = "insufficient_credits", PAYMENT_REQUIRED, "billing_error";
    /// Requests in flight hold what is left to spend. The request may fit when they have ended.
    SpendReserved = "spend_reserved", TOO_MANY_REQUESTS, "rate_limit_error";
    /// The key or its groups have used up a rate limit, or have too many requests in flight.
    RateLimitExceeded = "rate_limit_exceeded", TOO_MANY_REQUESTS, "rate_limit_error";
    /// The body is not JSON, repeats a name in an object, or is not UTF-8.
    InvalidJson = "invalid_json", BAD_REQUEST, "invalid_request_error";
    /// The `Content-Type` is not JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "invalid_request_error";
    /// The body is larger than the route accepts.
    RequestTooLarge = "request_too_large", PAYLOAD_TOO_LARGE, "invalid_request_error";
    /// A required parameter is absent.
    MissingRequiredParameter = "missing_required_parameter", BAD_REQUEST, "invalid_request_error";
    /// A parameter has the wrong JSON type.
    InvalidType = "invalid_type", BAD_REQUEST, "invalid_request_error";
    /// A parameter has the right type but an invalid value.
    InvalidValue = "invalid_value", BAD_REQUEST, "invalid_request_error";
    /// An integer is below the lower limit.
    IntegerBelowMinValue = "integer_below_min_value", BAD_REQUEST, "invalid_request_error";
    /// An integer is above the upper limit.
    IntegerAboveMaxValue = "integer_above_max_value", BAD_REQUEST, "invalid_request_error";
    /// A decimal is below the lower limit.
    DecimalBelowMinValue = "decimal_below_min_value", BAD_REQUEST, "invalid_request_error";
    /// A decimal is above the upper limit.
    DecimalAboveMaxValue = "decimal_above_max_value", BAD_REQUEST, "invalid_request_error";
    /// A string is longer than allowed.
    StringAboveMaxLength = "string_above_max_length", BAD_REQUEST, "invalid_request_error";
    /// An array is longer than allowed.
    ArrayAboveMaxLength = "array_above_max_length", BAD_REQUEST, "invalid_request_error";
    /// An object has more members than allowed.
    ObjectAboveMaxProperties = "object_above_max_properties", BAD_REQUEST, "invalid_request_error";
    /// An array that must not be empty is empty.
    EmptyArray = "empty_array", BAD_REQUEST, "invalid_request_error";
    /// A string that must not be empty is empty.
    EmptyString = "empty_string", BAD_REQUEST, "invalid_request_error";
    /// The parameter is known but not supported.
    UnsupportedParameter = "unsupported_parameter", BAD_REQUEST, "invalid_request_error";
    /// The value is known but not supported.
    UnsupportedValue = "unsupported_value", BAD_REQUEST, "invalid_request_error";
    /// The management API does not have this parameter.
    UnknownParameter = "unknown_parameter", BAD_REQUEST, "invalid_request_error";
    /// The prompt is longer than the model's context.
    ContextLengthExceeded = "context_length_exceeded", BAD_REQUEST, "invalid_request_error";
    /// The model does not exist.
    ModelNotFound = "model_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this API key.
    KeyNotFound = "key_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this group.
    GroupNotFound = "group_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this webhook.
    WebhookNotFound = "webhook_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this alert.
    AlertNotFound = "alert_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this management key.
    ManagementKeyNotFound = "management_key_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this member.
    MemberNotFound = "member_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not exist.
    AccountNotFound = "account_not_found", NOT_FOUND, "invalid_request_error";
    /// The account has no bill for this generation.
    GenerationNotFound = "generation_not_found", NOT_FOUND, "invalid_request_error";
    /// The account does not have this payment.
    PaymentNotFound = "payment_not_found", NOT_FOUND, "invalid_request_error";
    /// The route does not exist.
    UnknownUrl = "unknown_url", NOT_FOUND, "invalid_request_error";
    /// The route does not support this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "invalid_request_error";
    /// The route does not speak WebSocket.
    UpgradeRequired = "upgrade_required", UPGRADE_REQUIRED, "invalid_request_error";
    /// The account has the maximum number of keys of this class.
    TooManyKeys = "too_many_keys", BAD_REQUEST, "invalid_request_error";
    /// The account has the maximum number of groups.
    TooManyGroups = "too_many_groups", BAD_REQUEST, "invalid_request_error";
    /// The account has the maximum number of webhooks.
    TooManyWebhooks = "too_many_webhooks", BAD_REQUEST, "invalid_request_error";
    /// The account has the maximum number of alerts.
    TooManyAlerts = "too_many_alerts", BAD_REQUEST, "invalid_request_error";
    /// The account has the maximum number of members.
    TooManyMembers = "too_many_members", BAD_REQUEST, "invalid_request_error";
    /// Another account has the name.
    AccountNameTaken = "account_name_taken", CONFLICT, "invalid_request_error";
    /// Another account has the external id.
    ExternalIdTaken = "external_id_taken", CONFLICT, "invalid_request_error";
    /// Another member of the account has the name.
    MemberNameTaken = "member_name_taken", CONFLICT, "invalid_request_error";
    /// An account keeps its last owner.
    LastOwner = "last_owner", CONFLICT, "invalid_request_error";
    /// An operator tried to change a closed account.
    AccountEnded = "account_closed", CONFLICT, "invalid_request_error";
    /// An account with credit or held money cannot be closed.
    AccountHasMoney = "account_has_money", CONFLICT, "invalid_request_error";
    /// Only a suspended account can be closed.
    AccountNotSuspended = "account_not_suspended", CONFLICT, "invalid_request_error";
    /// A revoked key cannot be changed.
    KeyRevoked = "key_revoked", CONFLICT, "invalid_request_error";
    /// An expired key cannot be rotated.
    ExpiredKey = "key_expired", CONFLICT, "invalid_request_error";
    /// An archived group takes no keys and no child groups, and cannot be changed.
    ArchivedGroup = "group_archived", CONFLICT, "invalid_request_error";
    /// The id was used before for another amount, group or kind of payment.
    PaymentDiffers = "payment_differs", CONFLICT, "invalid_request_error";
    /// The refund is larger than the credit that is neither used nor held.
    CreditTooLow = "credit_too_low", CONFLICT, "invalid_request_error";
    /// The group has no limit that a payment could raise.
    GroupHasNoLimit = "group_has_no_limit", CONFLICT, "invalid_request_error";
    /// Only payments and refunds change the limit of this group.
    GroupLimitIsPaid = "group_limit_is_paid", CONFLICT, "invalid_request_error";
    /// The payment exceeds the maximum of the operator key.
    PaymentAboveMaximum = "payment_above_maximum", BAD_REQUEST, "invalid_request_error";
    /// The `Idempotency-Key` was used before, with another body.
    IdempotencyKeyReuse = "idempotency_key_reuse", CONFLICT, "invalid_request_error";
    /// The key's last rotation has not ended: the previous plaintext still works.
    RotationInProgress = "rotation_in_progress", CONFLICT, "invalid_request_error";
    /// This gateway has too many requests in flight.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "server_error";
    /// The store is nearly full, and the remaining space is reserved for holds and captures.
    StoreFull = "store_full", SERVICE_UNAVAILABLE, "server_error";
    /// There is a bug. The log contains the details.
    InternalError = "internal_error", INTERNAL_SERVER_ERROR, "server_error";
    /// The upstream failed, sent an invalid answer, or refused our credential.
    UpstreamError = "upstream_error", BAD_GATEWAY, "server_error";
    /// No upstream can be reached, or it is overloaded.
    UpstreamUnavailable = "upstream_unavailable", SERVICE_UNAVAILABLE, "server_error";
    /// The key-service or the store cannot be reached.
    ServiceUnavailable = "service_unavailable", SERVICE_UNAVAILABLE, "server_error";
    /// The upstream did not answer in time.
    UpstreamTimeout = "upstream_timeout", GATEWAY_TIMEOUT, "server_error";
}

impl Code {
    /// Returns the default for `Retry-After`, in seconds. It is short, because SDKs wait for exactly this time.
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Self::SpendReserved | Self::RateLimitExceeded | Self::Overloaded => Some(1),
            Self::ServiceUnavailable => Some(2),
            Self::UpstreamUnavailable => Some(5),
            _ => None,
        }
    }
}

/// An error of the public API. Its message never contains an internal address or another account's data. Details for
/// the operator are logged at the place where the error is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub code: Code,
    /// A sentence for the user.
    pub message: Cow<'static, str>,
    /// Location in the request, such as `messages[2].content[0].image_url.url`.
    pub param: Option<String>,
    /// Ids of models: of all models for `model_not_found`, and of the allowed models for `model_not_allowed`.
    pub valid_models: Vec<String>,
    /// End of the spending window that is used up, for `key_limit_reached` and `group_limit_reached`.
    pub resets_at: Option<Timestamp>,
    /// Seconds for `Retry-After`, if they are not the code's default.
    pub retry_after: Option<u32>,
    /// Whether SDKs are asked not to try again, because the request was billed or can never succeed.
    pub final_answer: bool,
}

impl ApiError {
    /// Makes an error about the request as a whole.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            param: None,
            valid_models: Vec::new(),
            resets_at: None,
            retry_after: None,
            final_answer: code.status() == StatusCode::CONFLICT,
        }
    }

    /// Returns the number of seconds after which a client may try again, for `Retry-After`; `None` if there is no such
    /// time.
    pub fn retry_after(&self) -> Option<u32> {
        self.retry_after.or(self.code.retry_after()).filter(|_| !self.final_answer)
    }

    /// Makes an error about a part of the request.
    pub fn at(code: Code, param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { param: Some(param.into()), ..Self::new(code, message) }
    }

    /// Returns the error that says that the key-service or the store is unavailable. Requests are then refused, because
    /// they could not be billed.
    pub fn service_unavailable() -> Self {
        Self::new(
            Code::ServiceUnavailable,
            "The service that authorizes requests is unavailable; try again shortly.",
        )
    }

    /// Returns the error that a client sees if there is a bug. The log contains the details.
    pub fn internal() -> Self {
        Self::new(Code::InternalError, "Something went wrong on our side.")
    }
}

/// Says what still works while the store is nearly full. Every interface shows this sentence.
pub const STORE_FULL: &str = "The store is nearly full. Until its operator enlarges it, you can only revoke, disable, \
                              archive and lower limits.";

/// Maximum length of an error message in characters. A longer message only repeats the input at length.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Maximum length of `param` in characters.
const MAX_PARAM_CHARS: usize = 300;

/// The body of an error: `{"error":{"message","type","param","code"}}`, all four always present.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Error")]
pub struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
struct ErrorFields<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    valid_models: &'a [String],
}

impl ApiError {
    /// Writes the error as JSON, for a body or for an event of a stream. Long text that it quotes from the request is
    /// cut.
    pub fn to_json(&self) -> String {
        let error = ErrorFields {
            message: cut(&self.message, MAX_MESSAGE_CHARS),
            r#type: self.code.kind(),
            param: self.param.as_deref().map(|param| cut(param, MAX_PARAM_CHARS)),
            code: self.code.as_str(),
            resets_at: self.resets_at,
            valid_models: &self.valid_models,
        };
        serde_json::to_string(&ErrorBody { error }).unwrap_or_else(|_| {
            // Writing texts to a string cannot fail.
            r#"{"error":{"message":"","type":"server_error","param":null,"code":"internal_error"}}"#.into()
        })
    }
}

/// Header that stops the official SDKs from trying again.
pub const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.code.status(), self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(challenge) = challenge(self.code) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::RequestTooLarge {
            // The rest of the request's body was not read, so the connection cannot carry another request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        // Without this header, agents would try again and again with a refused credential.
        if self.final_answer || self.code.status() == StatusCode::UNAUTHORIZED {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        // Other dialects read the error from here and write it in their own form.
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the value of `WWW-Authenticate` for 401 and 403, with the error that RFC 6750, section 3.1, defines. As that
/// section says, a request without any credential gets no error.
const fn challenge(code: Code) -> Option<&'static str> {
    match code {
        Code::MissingApiKey => Some(r#"Bearer realm="api""#),
        Code::InvalidAuthorizationHeader => Some(r#"Bearer realm="api", error="invalid_request""#),
        Code::InvalidApiKey
        | Code::InvalidManagementKey
        | Code::InvalidOperatorKey
        | Code::AccountSuspended
        | Code::AccountClosed
        | Code::KeyDisabled
        | Code::KeyExpired
        | Code::GroupArchived => Some(r#"Bearer realm="api", error="invalid_token""#),
        Code::ManagementKeyNotAllowed
        | Code::ManagementKeyRequired
        | Code::OperatorKeyNotAllowed
        | Code::OperatorKeyRequired
        | Code::OperatorScopeMissing
        | Code::OperatorNetworkNotAllowed
        | Code::ModelNotAllowed
        | Code::AccountReadOnly
        | Code::ReadOnlyKey => Some(r#"Bearer realm="api", error="insufficient_scope""#),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_their_type_fits_their_status() {
        let mut names = std::collections::HashSet::new();
        for code in Code::ALL {
            // The codes for archived groups and for expired keys occur twice: their status is different for model calls
            // and for changes.
            assert!(names.insert((code.as_str(), code.status())), "{} twice", code.as_str());
            let kind = match code.status().as_u16() {
                401 => "authentication_error",
                402 => "billing_error",
                403 => "permission_error",
                429 => "rate_limit_error",
                500.. => "server_error",
                _ => "invalid_request_error",
            };
            assert_eq!(code.kind(), kind, "{}", code.as_str());
        }
    }
}
