//! From the credential in a request to the owner of the credential.

use http::HeaderMap;
use shared::{
    error::ApiError,
    key::{Class, Presented},
    refusal::{Denial, Refusal},
};
use shared_door::http::model_credential;
use shared_rpc::Identity;

use super::App;
use crate::admission::Caller;

/// Returns the presented credential if the form is that of an API key. A management key is first checked by the
/// key-service, so that the error names the right reason.
pub(super) async fn credential(app: &App, headers: &HeaderMap, caller: &Caller) -> Result<String, ApiError> {
    let presented = model_credential(headers)?;
    match app.prefix.recognise(presented) {
        Presented::Malformed => Err(Refusal::InvalidApiKey.into()),
        Presented::Own(Class::Api) | Presented::Foreign => Ok(presented.to_owned()),
        Presented::Own(Class::Management) => {
            authenticate(app, presented, caller).await?;
            Err(Refusal::InvalidApiKey.into())
        }
    }
}

/// The owner of a key that may make model calls right now.
pub(super) async fn authenticate(app: &App, credential: &str, caller: &Caller) -> Result<Identity, ApiError> {
    Ok(identify(app, credential, Class::Api, caller).await??)
}

/// The owner of a credential, or the refusal.
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
