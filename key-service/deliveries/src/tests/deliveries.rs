//! Tests of events on their way to receivers, with a clock that the tests advance.

use std::collections::{BTreeMap, BTreeSet};

use shared::{
    clock::{Clock as _, System},
    ids::{AccountId, GenerationId},
    key::Prefix,
    money::NanoUsd,
};

use super::*;
use crate::Dispatcher;
use domain::{
    digest::Peppers,
    event::{Actor, EventSearch},
    key::{ApiKey, KeyPatch},
    ledger::{PaidTo, StandingAct},
    payment::PaymentId,
    webhook::{DisabledReason, Webhook, WebhookPatch},
};
use key_service_credentials::Credentials;
use key_service_management::{
    Management, accounts::payments::NewRefund, governed::Governed as _, testing::Office,
    webhooks::MAX_WEBHOOKS,
};
use key_service_records::servers::PATIENCE;
use key_service_store::store::{
    EventSlice, Ledger as _, Store,
    suite::{Subject as _, capture, hold, in_redis::InRedis},
};

const FAILS: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const GONE: &str = "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";

/// An account with a webhook to a receiver, and the dispatcher.
struct Desk {
    office: Office,
    account: AccountId,
    webhook: Webhook,
    dispatcher: Arc<Dispatcher>,
}

impl Desk {
    async fn open(receiver: &Receiver, settings: WebhookPatch) -> Self {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let url = WebhookUrl::parse(&receiver.url()).unwrap();
        let webhook = made(&office.management, account, (url, settings)).await;
        let dispatcher = dispatcher_of(&office);
        Self { office, account, webhook, dispatcher }
    }

    async fn make_key(&self) -> String {
        let made =
            ApiKey::create(self.office.management.by(self.account, Actor::System), KeyPatch::default(), None)
                .await;
        made.unwrap().made.into_inner().id.to_string()
    }

    /// Advances the clock, and lets the dispatcher do what is due.
    async fn pass(&self, time: Duration) {
        self.office.clock.set(&self.office.clock.now().plus(time).to_string());
        settle(&self.dispatcher).await;
    }

    async fn enable(&self) {
        let patch = WebhookPatch { disabled: Some(None), ..WebhookPatch::default() };
        let (account, id) = (self.account, self.webhook.id);
        Webhook::update(self.office.management.by(account, Actor::System), id, patch).await.unwrap();
    }

    async fn reason(&self) -> Option<DisabledReason> {
        let webhook = self.office.management.webhook(self.account, self.webhook.id).await.unwrap();
        webhook.disabled.map(|(_, reason)| reason)
    }
}

fn dispatcher_of(office: &Office) -> Arc<Dispatcher> {
    let (store, clock, credentials) =
        (office.store.clone(), office.clock.clone(), office.credentials.clone());
    Arc::new(Dispatcher::new(store, clock, credentials, Sender::new(&[])))
}

/// Checks all accounts once, and waits until the attempts end.
async fn settle(dispatcher: &Arc<Dispatcher>) {
    dispatcher.end_webhooks().await;
    dispatcher.look().await;
    dispatcher.running.close();
    dispatcher.running.wait().await;
    dispatcher.running.reopen();
}

/// Returns the types of the received events, in order.
fn kinds(receiver: &Receiver) -> Vec<String> {
    let kind = |request: &String| {
        let event: serde_json::Value =
            serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        event["type"].as_str().unwrap().to_owned()
    };
    receiver.requests().iter().map(kind).collect()
}

#[tokio::test]
async fn every_event_reaches_a_receiver_that_fails_half_of_the_time() {
    let receiver = Receiver::start(None, |n| if n % 2 == 0 { FAILS } else { OK }).await;
    let desk = Desk::open(&receiver, WebhookPatch::default()).await;
    for _ in 0..30 {
        desk.make_key().await;
    }
    let written = desk.office.store.events_after(desk.account, 0, 100).await.unwrap().events;
    let expected: BTreeMap<_, _> =
        written.iter().map(|event| (event.event.id.to_string(), event.event.to_json())).collect();
    // The events that created the account and its management key are older than the webhook, so they are not sent.
    let before = written.iter().filter(|event| event.event.kind.as_str() != "key.created").count();
    let mut arrived = BTreeSet::new();
    for _ in 0..100 {
        desk.pass(Duration::from_mins(10)).await;
        let requests = receiver.requests();
        for (n, request) in requests.iter().enumerate() {
            let id = header(request, "webhook-id").to_owned();
            assert_eq!(expected[&id], request.split("\r\n\r\n").nth(1).unwrap(), "the same event each time");
            if n % 2 == 1 {
                arrived.insert(id);
            }
        }
        if arrived.len() == written.len() - before {
            break;
        }
    }
    assert_eq!(arrived.len(), 30);
    assert!(receiver.requests().len() > 30, "some were repeated");
    assert_eq!(desk.reason().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_key_services_over_a_redis_never_make_the_same_attempt() {
    let subject = InRedis::new().await;
    let store: Arc<Store> = subject.store().clone();
    let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
    let credentials = Arc::new(Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap()));
    let management = Management::new(store.clone(), Arc::new(System), credentials.clone());
    let account = key_service_store::store::suite::open_account_with(&store, 1, 1).await;
    let receiver = Receiver::answers(OK).await;
    let url = WebhookUrl::parse(&receiver.url()).unwrap();
    let settings = WebhookPatch { url: Some(url), ..WebhookPatch::default() };
    Webhook::create(management.by(account, Actor::System), settings, None).await.unwrap();
    let seen = store.webhooks(account).await.unwrap().remove(0);
    let delivery = |n: u8| {
        let event = EventId::new(NOW, [n; 10]);
        Delivery::new(event, Some(n.into()), "key.created".into(), BODY.into(), NOW)
    };
    assert!(store.fan_out(account, seen, 100, (0..100).map(delivery).collect()).await.unwrap());
    let dispatcher = || {
        let (store, credentials) = (store.clone(), credentials.clone());
        Arc::new(Dispatcher::new(store, Arc::new(System), credentials, Sender::new(&[])))
    };
    let (one, other) = (dispatcher(), dispatcher());
    while receiver.requests().len() < 100 {
        tokio::join!(settle(&one), settle(&other));
    }
    tokio::join!(settle(&one), settle(&other));
    let requests = receiver.requests();
    let ids: BTreeSet<_> = requests.iter().map(|request| header(request, "webhook-id")).collect();
    assert_eq!((requests.len(), ids.len()), (100, 100));
}

#[tokio::test]
async fn an_attempt_of_a_key_service_that_died_is_made_again() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(&receiver, WebhookPatch::default()).await;
    desk.make_key().await;
    let seen = desk.office.store.webhooks(desk.account).await.unwrap();
    desk.dispatcher.fan_out(desk.account, &seen, seen[0].cursor).await.unwrap();
    let now = desk.office.clock.now();
    let until = now.plus(crate::CLAIMED_FOR);
    let lost =
        desk.office.store.claim_deliveries(desk.account, desk.webhook.id, now, until, 9).await.unwrap();
    assert_eq!(lost.len(), 1);
    desk.pass(Duration::from_secs(29)).await;
    assert_eq!(kinds(&receiver), [""; 0]);
    desk.pass(Duration::from_secs(1)).await;
    assert_eq!(kinds(&receiver), ["key.created"]);
}

#[tokio::test]
async fn a_webhook_gets_the_types_that_it_names_and_tests() {
    let receiver = Receiver::answers(OK).await;
    let types = WebhookPatch { types: Some(Some(vec!["key.revoked".into()])), ..WebhookPatch::default() };
    let desk = Desk::open(&receiver, types).await;
    let key = desk.make_key().await.parse().unwrap();
    desk.office.management.test_webhook(desk.account, desk.webhook.id).await.unwrap();
    desk.pass(Duration::ZERO).await;
    ApiKey::end(desk.office.management.by(desk.account, Actor::System), key).await.unwrap();
    desk.pass(Duration::ZERO).await;
    assert_eq!(kinds(&receiver), ["webhook.test", "key.revoked"]);
    let attempts = desk.office.management.attempts(desk.account, desk.webhook.id).await.unwrap();
    assert_eq!(
        attempts.iter().map(|attempt| &attempt.answer).collect::<Vec<_>>(),
        [&ReceiverAnswer::Status(200); 2]
    );
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_nothing_more_until_it_is_enabled() {
    let receiver = Receiver::start(None, |n| if n == 0 { GONE } else { OK }).await;
    let desk = Desk::open(&receiver, WebhookPatch::default()).await;
    desk.make_key().await;
    desk.pass(Duration::ZERO).await;
    assert_eq!(desk.reason().await, Some(DisabledReason::Gone));
    desk.make_key().await;
    desk.pass(Duration::from_hours(48)).await;
    assert_eq!(receiver.requests().len(), 1);
    desk.office.management.test_webhook(desk.account, desk.webhook.id).await.unwrap();
    desk.pass(Duration::ZERO).await;
    assert_eq!(kinds(&receiver)[1..], ["webhook.test"]);
    desk.enable().await;
    desk.pass(Duration::ZERO).await;
    let mut since = kinds(&receiver)[2..].to_vec();
    since.sort();
    assert_eq!(since, ["key.created", "key.created", "webhook.disabled"], "nothing is lost");
}

#[tokio::test]
async fn a_webhook_that_fails_for_a_day_is_disabled_with_an_event() {
    let receiver = Receiver::answers(FAILS).await;
    let desk = Desk::open(&receiver, WebhookPatch::default()).await;
    desk.make_key().await;
    let (mut hours, mut before) = (0, 0);
    while desk.reason().await.is_none() {
        assert!(hours < 48, "it is given up");
        desk.pass(Duration::from_mins(30)).await;
        hours += usize::from(receiver.requests().len() > before);
        before = receiver.requests().len();
    }
    assert_eq!(desk.reason().await, Some(DisabledReason::Failing));
    let last = desk
        .office
        .store
        .events(desk.account, EventSearch::default(), EventSlice::latest(1))
        .await
        .unwrap()
        .found
        .remove(0);
    assert_eq!(last.event.kind.as_str(), "webhook.disabled");
    let attempts = desk.office.management.attempts(desk.account, desk.webhook.id).await.unwrap();
    assert_eq!(attempts.len(), domain::webhook::KEPT_ATTEMPTS);
}

#[tokio::test]
async fn a_day_after_an_account_was_closed_its_webhooks_end() {
    let receiver = Receiver::answers(OK).await;
    let desk = Desk::open(&receiver, WebhookPatch::default()).await;
    let url = WebhookUrl::parse(&receiver.url()).unwrap();
    let second = made(&desk.office.management, desk.account, (url, WebhookPatch::default())).await;
    let (key, now) = (desk.make_key().await.parse().unwrap(), desk.office.clock.now());
    let generation = GenerationId::new(now, [1; 10]);
    let credit = desk.office.management.funds(desk.account).await.unwrap().unwrap().credit.nanos();
    let all = vec![hold(key, generation, credit, 3), capture(key, generation, credit)];
    let spent = desk.office.store.execute(desk.account, all, now).await.unwrap();
    assert!(spent.iter().all(Result::is_ok), "{spent:?}");
    for to in [StandingAct::Suspend("left".into()), StandingAct::Close] {
        desk.office.management.change_standing(desk.account, to, Actor::System).await.unwrap();
    }
    for _ in 0..8 {
        desk.pass(Duration::from_mins(5)).await;
    }
    let told: BTreeSet<String> = kinds(&receiver).into_iter().collect();
    assert!(told.contains("account.suspended") && told.contains("account.closed"), "{told:?}");
    desk.pass(Duration::from_hours(22)).await;
    assert_eq!(desk.reason().await, None, "what waits is delivered for a day");
    let refund = NewRefund {
        payment_id: PaymentId::parse("re_1").unwrap(),
        amount: NanoUsd::from_usd(1),
        from: PaidTo::Account,
        partial: true,
        of: None,
        note: String::new(),
    };
    desk.office.management.refund(desk.account, refund, Actor::System).await.unwrap();
    let events = desk.office.store.events_after(desk.account, 0, 100).await.unwrap().events;
    let last = events.last().map(|numbered| numbered.event.kind.as_str());
    assert_eq!(last, Some("credit.refunded"), "the closure is not the last event");
    desk.pass(Duration::from_hours(2)).await;
    assert_eq!(desk.reason().await, Some(DisabledReason::AccountClosed));
    let second = desk.office.management.webhook(desk.account, second.id).await.unwrap();
    assert_eq!(second.disabled.map(|(_, reason)| reason), Some(DisabledReason::AccountClosed));
}

/// Makes a webhook.
async fn made(
    management: &Management,
    account: AccountId,
    (url, settings): (WebhookUrl, WebhookPatch),
) -> Webhook {
    let settings = WebhookPatch { url: Some(url), ..settings };
    let issued = Webhook::create(management.by(account, Actor::System), settings, None).await.unwrap();
    issued.made.into_inner()
}

/// Creates as many webhooks as an account may have, all with this receiver.
async fn every_webhook(office: &Office, account: AccountId, receiver: &str) {
    for _ in 0..MAX_WEBHOOKS {
        let settings = (WebhookUrl::parse(receiver).unwrap(), WebhookPatch::default());
        made(&office.management, account, settings).await;
    }
}

async fn make_keys(office: &Office, account: AccountId, n: usize) {
    for _ in 0..n {
        ApiKey::create(office.management.by(account, Actor::System), KeyPatch::default(), None)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn slow_receivers_of_one_account_leave_places_to_others() {
    let receiver = Receiver::answers(OK).await;
    let office = Office::open();
    // The greedy account comes first, because accounts are listed oldest first.
    let (greedy, _) = office.account("greedy").await;
    let (other, _) = office.account("other").await;
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    every_webhook(&office, greedy, &format!("http://{}/", silent.local_addr().unwrap())).await;
    let url = WebhookUrl::parse(&receiver.url()).unwrap();
    made(&office.management, other, (url, WebhookPatch::default())).await;
    make_keys(&office, greedy, 10).await;
    let dispatcher = dispatcher_of(&office);
    for _ in 0..10 {
        dispatcher.look().await;
    }
    // Each attempt's task runs until the receiver times out.
    assert_eq!(dispatcher.running.len(), 16, "a quarter of the places");
    make_keys(&office, other, 3).await;
    dispatcher.look().await;
    let arrive = async {
        while receiver.requests().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    // No further check was made: these attempts began at once.
    assert!(tokio::time::timeout(PATIENCE, arrive).await.is_ok(), "{:?}", receiver.requests());
}

#[tokio::test]
async fn an_account_with_many_events_has_one_page_of_them_in_a_look() {
    let receiver = Receiver::answers(OK).await;
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    every_webhook(&office, account, &receiver.url()).await;
    let before = office.store.webhooks(account).await.unwrap().remove(0).cursor;
    make_keys(&office, account, 150).await;
    let dispatcher = dispatcher_of(&office);
    let cursors = async || {
        let webhooks = office.store.webhooks(account).await.unwrap();
        webhooks.iter().map(|stored| stored.cursor - before).collect::<BTreeSet<u64>>()
    };
    dispatcher.look().await;
    assert_eq!(cursors().await, [64].into(), "the page is for all webhooks that wait for it");
    dispatcher.look().await;
    assert_eq!(cursors().await, [128].into());
    dispatcher.look().await;
    assert_eq!(cursors().await, [150].into());
}

#[tokio::test]
async fn a_webhook_that_is_far_behind_and_one_that_is_not_take_turns() {
    let receiver = Receiver::answers(OK).await;
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    let url = || WebhookUrl::parse(&receiver.url()).unwrap();
    let types = WebhookPatch { types: Some(Some(vec!["key.revoked".into()])), ..WebhookPatch::default() };
    let far = made(&office.management, account, (url(), types)).await;
    let pause = WebhookPatch { disabled: Some(Some(DisabledReason::Owner)), ..WebhookPatch::default() };
    Webhook::update(office.management.by(account, Actor::System), far.id, pause).await.unwrap();
    make_keys(&office, account, 500).await;
    let near = made(&office.management, account, (url(), WebhookPatch::default())).await;
    let again = WebhookPatch { disabled: Some(None), ..WebhookPatch::default() };
    Webhook::update(office.management.by(account, Actor::System), far.id, again).await.unwrap();
    make_keys(&office, account, 1).await;
    let dispatcher = dispatcher_of(&office);
    let stored = async |id| {
        let webhooks = office.store.webhooks(account).await.unwrap();
        webhooks.into_iter().find(|stored| stored.webhook.id == id).unwrap().cursor
    };
    let (begun, last) = (stored(far.id).await, stored(near.id).await + 1);
    settle(&dispatcher).await;
    settle(&dispatcher).await;
    assert_eq!(kinds(&receiver), ["key.created"], "it waits for one page of the other");
    assert_eq!(stored(far.id).await, begun + 64);
    while stored(far.id).await < last {
        settle(&dispatcher).await;
    }
}
