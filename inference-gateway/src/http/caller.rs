//! Finds the owner of the credential in a request.

use admission::Caller;
use http::HeaderMap;
use shared::{
    error::ApiError,
    key::{Class, Presented},
    refusal::{Denial, Refusal},
};
use shared_door::http::model_credential;
use shared_rpc::Identity;

use super::app::App;

/// Returns the presented credential if it has the form of an API key. For a management key, the key-service is asked
/// first, so that the error says why the key cannot be used here.
pub(super) async fn credential(app: &App, headers: &HeaderMap, caller: &Caller) -> Result<String, ApiError> {
    let presented = model_credential(headers)?;
    match app.prefix.recognise(presented) {
        Presented::Malformed => Err(Refusal::InvalidApiKey.into()),
        Presented::Own(Class::Api) | Presented::Foreign => Ok(presented.to_owned()),
        Presented::Own(Class::Management | Class::Operator) => {
            authenticate(app, presented, caller).await?;
            Err(Refusal::InvalidApiKey.into())
        }
    }
}

/// Finds the owner of a key that may currently make model calls.
pub(super) async fn authenticate(app: &App, credential: &str, caller: &Caller) -> Result<Identity, ApiError> {
    Ok(identify(app, credential, Class::Api, caller).await??)
}

/// Finds the owner of a credential, or the refusal.
pub(super) async fn identify(
    app: &App,
    credential: &str,
    required: Class,
    caller: &Caller,
) -> Result<Result<Identity, Denial>, ApiError> {
    let _permit = app.generator.admission.check(caller).await?;
    let authenticated = app.generator.keys.authenticate(credential, required).await?;
    if let Ok(identity) = &authenticated {
        caller.accepted(identity.account());
    }
    Ok(authenticated)
}
