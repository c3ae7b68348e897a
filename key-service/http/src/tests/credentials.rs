//! Credentials of callers.

use super::*;
use domain::event::Actor;
use key_service_management::testing::BEGIN;

impl Desk {
    async fn with_authorization(&self, values: &[&str]) -> Answer {
        let mut request = Request::builder().uri(KEYS);
        for value in values {
            request = request.header("authorization", *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn presenting(&self, credential: &str) -> Answer {
        self.with_authorization(&[&format!("Bearer {credential}")]).await
    }
}

fn plaintext(key: &Value) -> &str {
    key["key"].as_str().unwrap()
}

#[tokio::test]
async fn a_management_key_is_taken_whatever_the_case_of_its_scheme() {
    let desk = Desk::open().await;
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let answer = desk.with_authorization(&[&format!("{scheme} {}", desk.credential)]).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn a_header_that_is_no_single_bearer_token_is_answered_as_one() {
    let desk = Desk::open().await;
    let good = format!("Bearer {}", desk.credential);
    let missing = desk.with_authorization(&[]).await;
    missing.is_error(401, "missing_api_key", None);
    assert_eq!(missing.headers["www-authenticate"], r#"Bearer realm="api""#);
    for values in [&["Basic eDp5"][..], &["Bearer"], &[&desk.credential], &[&good, &good]] {
        let answer = desk.with_authorization(values).await;
        answer.is_error(401, "invalid_authorization_header", None);
        assert_eq!(answer.headers["www-authenticate"], r#"Bearer realm="api", error="invalid_request""#);
    }
}

#[tokio::test]
async fn an_unknown_malformed_or_revoked_management_key_is_invalid() {
    let desk = Desk::open().await;
    let unknown = Office::open().account("elsewhere").await.1;
    let other_prefix = unknown.replacen("fg_", "mdl_", 1);
    for credential in [&unknown[..unknown.len() - 1], &other_prefix, "x"] {
        desk.presenting(credential).await.is_error(401, "invalid_management_key", None);
    }
    let keys = desk.office.management.management_keys(desk.account).await.unwrap();
    assert_eq!(desk.presenting(&desk.credential).await.status, 200);
    desk.office.management.revoke_management_key(keys[0].id, Actor::System).await.unwrap();
    let answer = desk.presenting(&desk.credential).await;
    answer.is_error(401, "invalid_management_key", None);
    assert_eq!(answer.headers["www-authenticate"], r#"Bearer realm="api", error="invalid_token""#);
}

#[tokio::test]
async fn a_valid_api_key_is_answered_403_and_a_revoked_one_401() {
    let desk = Desk::open().await;
    let key = desk.created("{}").await;
    let answer = desk.presenting(plaintext(&key)).await;
    answer.is_error(403, "management_key_required", None);
    assert_eq!(answer.headers["www-authenticate"], r#"Bearer realm="api", error="insufficient_scope""#);
    let expired = desk.created(&format!(r#"{{"expires_at":"{BEGIN}"}}"#)).await;
    desk.presenting(plaintext(&expired)).await.is_error(403, "management_key_required", None);
    desk.delete(&id_of(&key)).await;
    desk.presenting(plaintext(&key)).await.is_error(401, "invalid_management_key", None);
}
