//! Fuzz target of the records of webhooks.

use prost::Message;
use shared_fuzz::{Examples, Input, fuzz};

use super::*;

/// Webhooks, deliveries and attempts survive writing and reading.
#[test]
fn records_of_webhooks() {
    let (at, id) = (1_795_140_665_000, WebhookId::new(time(1_795_140_665_000), [1; 10]));
    let webhook = messages::Webhook {
        url: "https://example.com/hook".into(),
        types: Some(WebhookTypes { types: vec!["key.created".into()] }),
        secret: vec![7; 32],
        created_at: at,
        end: Some(WebhookEnd { at, reason: DisabledReason::Gone.as_str().to_owned() }),
        cursor: 9,
    };
    let answer = Some(delivery_attempt::Answer::Status(204));
    let (event, kind) = (vec![1; 16], "key.created".to_owned());
    let attempt = messages::DeliveryAttempt { event: event.clone(), kind, at, milliseconds: 12, answer };
    let pending = PendingDelivery { event, number: Some(3), due_at: at, attempts: 2 };
    assert!(read_webhook(id, webhook.clone()).is_some());
    let examples = [webhook.encode_to_vec(), attempt.encode_to_vec(), pending.encode_to_vec()];
    fuzz(&Examples::of(examples), |input: &Input| {
        let bytes = input.bytes();
        if let Ok(message) = messages::Webhook::decode(bytes)
            && let Some(webhook) = read_webhook(id, message)
        {
            assert_eq!(read_webhook(id, write_webhook(&webhook)), Some(webhook));
        }
        if let Ok(message) = messages::DeliveryAttempt::decode(bytes)
            && let Some(attempt) = read_attempt(message)
        {
            assert_eq!(read_attempt(write_attempt(&attempt)), Some(attempt));
        }
        if let Ok(message) = PendingDelivery::decode(bytes)
            && let Some(delivery) = read_pending(&message)
        {
            assert_eq!(read_pending(&write_pending(&delivery)), Some(delivery));
        }
    });
}
