//! Rotating an API key on a page that asks for confirmation.

use http::Method;
use tests::harness::{ApiKey, Stack};

use crate::dashboard::{
    pages::{attempt, new_key},
    replicas, signed_in,
};

/// Returns whether calls with this plaintext succeed.
async fn works(stack: &Stack, secret: &str) -> bool {
    let answer = stack.http.send_as(secret, Method::GET, &stack.url("/v1/models"), None).await;
    assert!(matches!(answer.status, 200 | 401), "{answer}");
    answer.status == 200
}

#[apply(fact)]
async fn a_key_is_rotated_and_its_new_plaintext_shown_once() {
    let stack = replicas().await;
    let ApiKey { id, secret: first, .. } = stack.key().await;
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let (path, rotate) = (format!("/dashboard/keys/{id}"), format!("/dashboard/keys/{id}/rotate"));
    let settings = format!("{path}/settings");
    assert!(owner.get(&settings).await.text().contains(&format!("href=\"{rotate}\"")));
    let page = owner.get(&rotate).await;
    assert!(page.text().contains("a new key?") && !page.text().contains("name=\"force\""), "{page}");
    let attempt_of = attempt(&page);
    for wrong in [
        vec![("grace_seconds", "5"), ("attempt", attempt_of.as_str())],
        vec![("attempt", attempt_of.as_str())],
        vec![("grace_seconds", "3600")],
    ] {
        assert_eq!(owner.post(&rotate, &wrong).await.status, 400, "{wrong:?}");
    }
    let fields = [("grace_seconds", "3600"), ("attempt", attempt_of.as_str())];
    let second = new_key(&owner.post(&rotate, &fields).await);
    assert!(works(&stack, &first).await && works(&stack, &second).await);
    // Submitting the same form does not rotate the key a second time.
    let again = owner.post(&rotate, &fields).await;
    assert_eq!((again.status, again.header("location")), (303, path.as_str()), "{again}");
    let page = owner.get(&rotate).await;
    let text = page.text();
    assert!(text.contains("The previous key works until") && !text.contains(&second), "{page}");
    let stale = [("grace_seconds", "0"), ("attempt", &*attempt(&page))];
    assert_eq!(owner.post(&rotate, &stale).await.status, 400, "a form of before the rotation has no force");
    let third = new_key(&owner.post(&rotate, &[&stale[..], &[("force", "true")]].concat()).await);
    assert!(!works(&stack, &first).await && !works(&stack, &second).await && works(&stack, &third).await);
    assert!(!owner.get(&rotate).await.text().contains("The previous key works until"));

    let mut viewer = signed_in(&stack, &stack.account, "viewer").await;
    assert!(!viewer.get(&settings).await.text().contains(&rotate));
    assert!(viewer.get(&rotate).await.text().contains("Your role is viewer."));
    assert_eq!(viewer.post(&rotate, &fields).await.status, 403);
    stack.manage(Method::DELETE, &format!("/{id}"), None).await;
    assert!(!owner.get(&settings).await.text().contains(&rotate), "a revoked key is not rotated");
    assert!(!owner.get(&rotate).await.text().contains("grace_seconds"));
}
