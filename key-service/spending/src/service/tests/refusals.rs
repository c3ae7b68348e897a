//! Counts of refused calls.

use super::*;
use key_service_store::store::Hour;

async fn counted(service: &Service, trial: &Trial, key: Option<KeyId>) -> Vec<(String, u64)> {
    let store = &*trial.office.store;
    let hour = Hour::of(trial.office.clock.now());
    // The store contains only the counts that were added to it.
    service.refusals().add_to(store).await;
    store.refused(trial.account, hour..=hour, key).await.unwrap()
}

#[tokio::test]
async fn a_refused_request_counts_once_and_one_that_is_granted_later_not() {
    let trial = Trial::begin(Some(NanoUsd::from_nanos(3_000))).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let too_much = |n| Authorize { least_output_tokens: 5, ..trial.authorize(n, 5) };
    let refused = async |authorize| {
        let answer = one(&service, Call::Authorize(authorize)).await;
        assert!(matches!(answer, Ok(Answer::Authorized(Err(_)))), "{answer:?}");
    };
    refused(too_much(1)).await;
    granted(&service, trial.authorize(1, 1)).await;
    assert_eq!(counted(&service, &trial, None).await, []);

    for n in [2, 2, 3] {
        refused(too_much(n)).await;
    }
    let limit_reached = vec![("key_limit_reached".to_owned(), 2)];
    assert_eq!(counted(&service, &trial, Some(trial.key)).await, limit_reached);
    assert_eq!(counted(&service, &trial, None).await, limit_reached);

    let revoked_by = Actor::System;
    ApiKey::end(trial.office.management.by(trial.account, revoked_by), trial.key).await.unwrap();
    for _ in 0..3 {
        let (credential, required) = (trial.credential.as_str().into(), Class::Api);
        one(&service, Call::Authenticate { credential, required }).await.unwrap();
    }
    let calls = trial.office.store.refused_calls(trial.account).await.unwrap();
    let known: Vec<_> = calls.iter().map(|call| (call.reason.as_str(), call.model.as_deref())).collect();
    assert_eq!(known, [("key_limit_reached", Some("Model Flash")); 2]);
    let with_revoked = [("invalid_api_key".to_owned(), 3), limit_reached[0].clone()];
    assert_eq!(counted(&service, &trial, None).await, with_revoked);
    let calls = trial.office.store.refused_calls(trial.account).await.unwrap();
    let revoked: Vec<_> = calls.iter().filter(|call| call.reason == "invalid_api_key").collect();
    assert_eq!((calls.len(), revoked.len()), (5, 3));
    assert!(revoked.iter().all(|call| call.model.is_none() && call.key == trial.key));
}

#[tokio::test]
async fn a_request_that_is_granted_once_its_prompt_is_counted_is_not_a_refused_one() {
    let trial = Trial::begin(Some(NanoUsd::from_nanos(1_000_000))).await;
    let service =
        trial.service(priced("Model Flash", "input = \"1\"\ncached_input = \"1\"\noutput = \"1\"\n"));
    let bound = Authorize { prompt_tokens: 500, can_count: true, ..trial.authorize(1, 9) };
    let answer = one(&service, Call::Authorize(bound)).await;
    assert!(matches!(answer, Ok(Answer::Authorized(Err(_)))), "{answer:?}");
    granted(&service, trial.authorize(2, 1)).await;
    assert_eq!(counted(&service, &trial, None).await, []);
}
