//! Fuzz targets for headers.

use http::{HeaderMap, HeaderValue, header};
use shared::key::without_keys;
use shared_fuzz::{Examples, Input, fuzz};

use crate::http::{ClientRequestId, X_REQUEST_ID, bearer, model_credential};

/// A credential is the part of its header without blanks, and both headers may carry the same one.
#[test]
fn credentials() {
    let key = format!("fg_api_{}", "a".repeat(49));
    let examples =
        [format!("Bearer {key}"), format!("BEARER   {key} "), key.clone(), format!("Basic {key}, Bearer b")];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Ok(value) = HeaderValue::from_bytes(input.bytes()) else { return };
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.clone())]);
        if let Ok(token) = bearer(&headers) {
            assert!(!token.is_empty() && input.text().contains(token) && !token.contains([' ', ',']));
            let key = HeaderValue::from_str(token).unwrap();
            let mut both = headers.clone();
            both.insert("x-api-key", key.clone());
            assert_eq!(model_credential(&both).ok(), Some(token));
            both.append("x-api-key", key);
            assert!(model_credential(&both).is_err());
        }
        let shown = ClientRequestId::read(&HeaderMap::from_iter([(X_REQUEST_ID, value)])).unwrap();
        assert_eq!(without_keys(shown.as_str()), shown.as_str());
        assert!(!shown.as_str().contains(char::is_control));
    });
}
