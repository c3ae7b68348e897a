//! Tests of gateways' calls, over the store in memory.

use async_trait::async_trait;
use shared::{
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    rates::{RateBound, RateLimit, RateStatus, TokenRoom},
    refusal::DenialDetail,
    secret::ExposeSecret,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
};
use shared_rpc::{Captured, Charge, Extended, Grant};

mod refusals;

use super::*;
use domain::{
    event::Actor,
    key::{ApiKey, KeyPatch},
    ledger::{BoundsPatch, Level, Refused},
};
use key_service_management::{governed::Governed as _, testing::Office};
use key_service_store::store::{Cursor, DueHolds, HoldIndex, MissingServers, Outcomes, Skew};

/// Returns a catalogue with this model at this price per million output tokens; prompts are free.
fn catalogue(model: &str, usd: u32) -> Arc<Current<Catalog>> {
    priced(model, &format!("input = \"0\"\ncached_input = \"0\"\noutput = \"{usd}\"\n"))
}

/// Returns a catalogue with this model. `price` is the content of its price table, and any tables after that.
fn priced(model: &str, price: &str) -> Arc<Current<Catalog>> {
    let text = format!(
        "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n\
         [[model]]\nid = \"{model}\"\nowned_by = \"f\"\naliases = [\"{model} Latest\"]\n\
         context_window = 9000\nmax_output_tokens = 9000\n[model.price]\n{price}\
         [[model.upstream]]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"f\"\n"
    );
    Arc::new(Current::new(Catalog::parse(&text, "test").unwrap()))
}

/// An account with 10 USD, a key, and services over a shared store.
struct Trial {
    office: Office,
    account: AccountId,
    key: KeyId,
    credential: String,
}

impl Trial {
    async fn begin(limit: Option<NanoUsd>) -> Self {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let settings = KeyPatch { bounds: BoundsPatch::of_limit(limit), ..KeyPatch::default() };
        let made =
            ApiKey::create(office.management.by(account, Actor::System), settings, None).await.unwrap();
        let credential = made.secret.unwrap().expose_secret().to_owned();
        Self { office, account, key: made.made.into_inner().id, credential }
    }

    fn service(&self, catalog: Arc<Current<Catalog>>) -> Service {
        self.over(self.office.store.clone(), catalog)
    }

    fn over(&self, ledger: Arc<dyn Ledger>, catalog: Arc<Current<Catalog>>) -> Service {
        let (clock, credentials) = (self.office.clock.clone(), self.office.credentials.clone());
        Service::new(ledger, clock, credentials, catalog, Duration::from_secs(30))
    }

    fn authorize(&self, n: u8, output_tokens: u64) -> Authorize {
        Authorize {
            credential: self.credential.clone(),
            generation: self.generation(n),
            model: "Model Flash".into(),
            prompt_tokens: 0,
            images: 0,
            readmitted: false,
            rated_tokens: None,
            can_count: false,
            is_free: false,
            output_tokens,
            enough_output_tokens: output_tokens,
            least_output_tokens: 1,
            valid_until: None,
            origin: None,
        }
    }

    /// Returns a generation made at the test's current time.
    fn generation(&self, n: u8) -> GenerationId {
        GenerationId::new(self.office.clock.now(), [n; 10])
    }

    async fn held(&self) -> i64 {
        self.office.store.key(self.account, self.key).await.unwrap().unwrap().spend.budget.held.nanos()
    }
}

async fn one(service: &Service, call: Call) -> Result<Answer, CallFailure> {
    let mut answers = (service as &dyn KeyService).answers(vec![call.into()]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

async fn granted(service: &Service, authorize: Authorize) -> Grant {
    match one(service, Call::Authorize(authorize)).await {
        Ok(Answer::Authorized(Ok(grant))) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn captured(service: &Service, hold: HoldRef, completion: u64) -> Captured {
    let usage = Usage::of(0, 0, completion);
    match one(service, Call::Capture(Capture { hold, usage, charged: None, estimated: false, course: None }))
        .await
    {
        Ok(Answer::Captured(captured)) => captured,
        other => panic!("not captured: {other:?}"),
    }
}

fn billed(charged: i64, shortfall: i64) -> Captured {
    let nanos = NanoUsd::from_nanos;
    Captured::Billed(Charge { charged: nanos(charged), shortfall: nanos(shortfall) })
}

#[tokio::test]
async fn what_ran_on_after_a_cut_is_recorded_as_shortfall_at_the_prices_of_the_hold() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let grant = granted(&service, trial.authorize(1, 100)).await;
    let capture = Capture {
        hold: grant.hold,
        usage: Usage::of(0, 0, 70),
        charged: Some(Usage::of(0, 0, 50)),
        estimated: false,
        course: None,
    };
    for _ in 0..2 {
        match one(&service, Call::Capture(capture.clone())).await {
            Ok(Answer::Captured(captured)) => assert_eq!(captured, billed(50 * 1_000, 20 * 1_000)),
            other => panic!("not captured: {other:?}"),
        }
    }
}

#[tokio::test]
async fn another_models_answer_is_billed_at_the_vendors_own_cost_where_that_is_higher() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    for (number, told, expected) in [(1, None, 50_000), (2, Some(49_999), 50_000), (3, Some(90_001), 90_001)]
    {
        let grant = granted(&service, trial.authorize(number, 100)).await;
        let course = Course { least_cost_nanos: told, ..Course::default() };
        let capture = Capture {
            hold: grant.hold,
            usage: Usage::of(0, 0, 50),
            charged: None,
            estimated: false,
            course: Some(Arc::new(course)),
        };
        match one(&service, Call::Capture(capture)).await {
            Ok(Answer::Captured(captured)) => assert_eq!(captured, billed(expected, 0), "{told:?}"),
            other => panic!("not captured: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_hold_keeps_the_prices_that_it_was_opened_with() {
    let trial = Trial::begin(None).await;
    let grant = granted(&trial.service(catalogue("Model Flash", 1)), trial.authorize(1, 100)).await;
    // The model becomes more expensive, and is then withdrawn.
    for later in [catalogue("Model Flash", 4), catalogue("Model Max", 4)] {
        let service = trial.service(later);
        let usage = Usage::of(0, 0, 100);
        let extend = Extend {
            hold: grant.hold.clone(),
            usage,
            prompt_tokens: 0,
            images: 0,
            output_tokens: 300,
            course: None,
        };
        let Ok(Answer::Extended(Extended::Open(extension))) = one(&service, Call::Extend(extend)).await
        else {
            panic!("the hold is open")
        };
        assert_eq!(extension.output_tokens, 300);
        assert_eq!(trial.held().await, 300 * 1_000);
    }
    let service = trial.service(catalogue("Model Max", 4));
    assert_eq!(captured(&service, grant.hold, 200).await, billed(200 * 1_000, 0));
}

#[tokio::test]
async fn a_copy_of_an_authorization_that_comes_too_late_opens_no_hold() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let now = Instant::now();
    let late =
        Authorize { valid_until: now.checked_sub(Duration::from_millis(1)), ..trial.authorize(1, 100) };
    let failed = one(&service, Call::Authorize(late)).await.unwrap_err();
    assert_eq!(failed.code, Code::DeadlineExceeded);
    assert_eq!(trial.held().await, 0);
    let valid_until = now.checked_add(Duration::from_mins(1));
    granted(&service, Authorize { valid_until, ..trial.authorize(1, 100) }).await;
    assert_eq!(trial.held().await, 100 * 1_000);
}

#[tokio::test]
async fn a_release_without_a_grant_finds_the_hold_by_its_credential() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    granted(&service, trial.authorize(1, 100)).await;
    let release = |credential: &str, n| {
        let (credential, generation) = (credential.to_owned(), trial.generation(n));
        Call::Release(Release::Unknown { credential, generation })
    };
    let stray = trial.credential.replace("fg_api_", "fg_mgmt_");
    for call in [release(&trial.credential, 2), release("fg_api_nonsense", 1), release(&stray, 1)] {
        assert!(matches!(one(&service, call).await, Ok(Answer::Released)));
        assert_eq!(trial.held().await, 100 * 1_000);
    }
    assert!(matches!(one(&service, release(&trial.credential, 1)).await, Ok(Answer::Released)));
    assert_eq!(trial.held().await, 0);
}

#[tokio::test]
async fn a_capture_whose_hold_is_lost_is_billed_up_to_what_is_left() {
    let trial = Trial::begin(Some(NanoUsd::from_nanos(150_000))).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let grant = granted(&service, trial.authorize(1, 100)).await;
    let lost = HoldRef { generation: trial.generation(2), ..grant.hold.clone() };
    assert_eq!(captured(&service, lost.clone(), 80).await, billed(50_000, 30_000));
    assert_eq!(captured(&service, lost, 80).await, billed(50_000, 30_000));
    assert_eq!(captured(&service, grant.hold, 100).await, billed(100_000, 0));
}

#[tokio::test]
async fn calls_that_can_never_succeed_are_answered_for_good() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let grant = granted(&service, trial.authorize(1, 100)).await;
    let key = KeyId::new(Timestamp::from_millis(1), [9; 10]);
    let unknown = HoldRef { key, ..grant.hold.clone() };
    let usage = Usage::default();
    assert_eq!(captured(&service, unknown.clone(), 1).await, Captured::Gone);
    let released = one(&service, Call::Release(Release::Hold(unknown.clone()))).await;
    assert!(matches!(released, Ok(Answer::Released)), "{released:?}");
    let extend = Extend { hold: unknown, usage, prompt_tokens: 0, images: 0, output_tokens: 1, course: None };
    let extended = one(&service, Call::Extend(extend)).await;
    assert!(matches!(extended, Ok(Answer::Extended(Extended::Gone))), "{extended:?}");

    // An operator has to repair a damaged record, so the answer must not ask the gateway to retry.
    let damaged = trial.over(Arc::new(Answering(Ok(Err(Refused::Damaged)))), catalogue("Model Flash", 1));
    let capture = Call::Capture(Capture {
        hold: grant.hold.clone(),
        usage,
        charged: None,
        estimated: false,
        course: None,
    });
    assert_eq!(one(&damaged, capture.clone()).await.unwrap_err().code, Code::DataLoss);
    let away = trial
        .over(Arc::new(Answering(Err(StoreError::Unavailable("away".into())))), catalogue("Model Flash", 1));
    assert_eq!(one(&away, capture).await.unwrap_err().code, Code::Unavailable);
    captured(&service, grant.hold, 1).await;
    let again = one(&service, Call::Authorize(trial.authorize(1, 100))).await;
    assert_eq!(again.unwrap_err().code, Code::FailedPrecondition);
}

#[tokio::test]
async fn a_batch_is_answered_in_the_order_of_its_calls() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let authenticate =
        |credential: &str| Call::Authenticate { credential: credential.into(), required: Class::Api };
    let unknown_model = Authorize { model: "Model Max".into(), ..trial.authorize(2, 1) };
    let calls = vec![
        authenticate("nonsense"),
        Call::Authorize(trial.authorize(1, 7)),
        authenticate(&trial.credential),
        Call::Authorize(unknown_model),
    ];
    let answers = (&service as &dyn KeyService).answers(calls.into_iter().map(Into::into).collect()).await;
    let refused = |refusal| Denial { refusal, detail: None };
    assert!(
        matches!(&answers[0], Ok(Answer::Authenticated(Err(e))) if *e == refused(Refusal::InvalidApiKey))
    );
    assert!(matches!(&answers[1], Ok(Answer::Authorized(Ok(grant))) if grant.output_tokens == 7));
    let identity = Identity::from(Principal::ApiKey(trial.account, trial.key));
    assert!(matches!(&answers[2], Ok(Answer::Authenticated(Ok(found))) if *found == identity));
    assert!(matches!(&answers[3], Ok(Answer::Authorized(Err(e))) if *e == refused(Refusal::ModelNotFound)));
    assert_eq!(answers.len(), 4);
}

#[tokio::test]
async fn a_refusal_by_a_bound_is_answered_with_what_its_caller_can_do() {
    let trial = Trial::begin(None).await;
    let none = DenialDetail::default();
    let resets_at = Timestamp::parse("2026-12-01T00:00:00Z");
    let (models, retry_after) = (vec!["Model Max".to_owned()], Duration::from_millis(1_200));
    let (key, parent) = (Level::Key, Level::Parent);
    let token_room = Some(TokenRoom { limit: 50, remaining: 7 });
    for (refused, refusal, detail) in [
        (Refused::GroupArchived, Refusal::GroupArchived, none.clone()),
        (Refused::LimitReached { level: key, resets_at: None }, Refusal::KeyLimitReached, none.clone()),
        (
            Refused::LimitReached { level: key, resets_at },
            Refusal::KeyLimitReached,
            DenialDetail { resets_at, ..none.clone() },
        ),
        (
            Refused::LimitReached { level: parent, resets_at },
            Refusal::GroupLimitReached,
            DenialDetail { resets_at, ..none.clone() },
        ),
        (
            Refused::ModelNotAllowed { models: models.clone() },
            Refusal::ModelNotAllowed,
            DenialDetail { models, ..none.clone() },
        ),
        (
            Refused::RateLimited { bound: RateBound::Tokens, retry_after, token_room },
            Refusal::RateLimitExceeded,
            DenialDetail {
                rate: Some(RateBound::Tokens),
                retry_after: Some(retry_after),
                token_room,
                ..none
            },
        ),
    ] {
        let service = trial.over(Arc::new(Answering(Ok(Err(refused.clone())))), catalogue("Model Flash", 1));
        let answer = one(&service, Call::Authorize(trial.authorize(1, 1))).await;
        let expected = Denial::new(refusal, detail);
        assert!(
            matches!(&answer, Ok(Answer::Authorized(Err(e))) if *e == expected),
            "{refused:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn models_rates_and_the_end_of_a_key_are_passed_on() {
    let trial = Trial::begin(None).await;
    let over = |outcome| trial.over(Arc::new(Answering(Ok(Ok(outcome)))), catalogue("Model Flash", 1));
    let models = Some(vec!["Model Flash".to_owned()]);
    let allowed = over(domain::ledger::Outcome::Allowed { models: models.clone() });
    let check = Call::Authenticate { credential: trial.credential.clone(), required: Class::Api };
    let answer = one(&allowed, check).await;
    assert!(matches!(&answer, Ok(Answer::Authenticated(Ok(found))) if found.models == models), "{answer:?}");

    let limit = RateLimit { limit: 60, remaining: 59, reset: Duration::from_secs(1) };
    let rates = RateStatus { requests: Some(limit), tokens: None };
    let held = over(domain::ledger::Outcome::Held { amount: NanoUsd::from_nanos(1), rates });
    let answer = one(&held, Call::Authorize(trial.authorize(1, 1))).await;
    let Ok(Answer::Authorized(Ok(grant))) = answer else { panic!("{answer:?}") };
    assert_eq!(grant.rates.as_deref(), Some(&rates));

    let revoked_by = Some(Refusal::GroupArchived);
    let extended = over(domain::ledger::Outcome::Extended { amount: NanoUsd::ZERO, revoked_by });
    let extend = Extend {
        hold: grant.hold,
        usage: Usage::default(),
        prompt_tokens: 0,
        images: 0,
        output_tokens: 1,
        course: None,
    };
    let answer = one(&extended, Call::Extend(extend)).await;
    let Ok(Answer::Extended(Extended::Open(extension))) = answer else { panic!("{answer:?}") };
    assert_eq!(extension.revoked_by, revoked_by);
}

/// A ledger with the same answer to every command.
struct Answering(Result<Result<domain::ledger::Outcome, Refused>, StoreError>);

#[async_trait]
impl Ledger for Answering {
    fn system(&self) -> &'static str {
        "answering"
    }

    async fn execute(
        &self,
        _: AccountId,
        commands: Vec<Command>,
        _: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        let answer = self.0.clone()?;
        Ok(commands.iter().map(|_| answer.clone()).collect())
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        HoldIndex::default()
    }

    async fn due_holds(&self, _: AccountId, _: Option<Cursor>) -> Result<DueHolds, StoreError> {
        Ok(DueHolds::default())
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(None)
    }

    async fn ping(&self) -> Result<MissingServers, StoreError> {
        Ok(MissingServers::default())
    }
}

#[tokio::test]
async fn a_hold_covers_images_the_request_and_the_dearest_tier_that_its_prompt_can_reach() {
    let trial = Trial::begin(None).await;
    let price = "input = \"1\"\ncached_input = \"0.1\"\ncache_write = \"1.25\"\noutput = \"2\"\nimage = \"0.01\"\n\
                 request = \"0.001\"\n[[model.price.above]]\nprompt_tokens = 1000\ninput = \"3\"\n";
    let service = trial.service(priced("Model Flash", price));
    let asked = Authorize { prompt_tokens: 1_000, images: 2, ..trial.authorize(1, 100) };
    // 1,000·1.25 + 100·2 = 1,450 micro-USD, plus two images and the request.
    let (fees, images) = (1_000_000, 2 * 10_000_000);
    let grant = granted(&service, asked.clone()).await;
    assert_eq!((grant.output_tokens, trial.held().await), (100, 1_450_000 + fees + images));
    // With one more token, the tier may apply: 1,001·3 + 100·2 = 3,203.
    let longer = Authorize { prompt_tokens: 1_001, generation: trial.generation(2), ..asked };
    let second = granted(&service, longer).await;
    assert_eq!(trial.held().await, 1_450_000 + 3_203_000 + 2 * (fees + images));
    let hold = second.hold.clone();
    let (usage, images) = (Usage::default(), 2);
    let extend = Extend { hold, usage, prompt_tokens: 1_001, images, output_tokens: 200, course: None };
    let extended = one(&service, Call::Extend(extend)).await;
    assert!(
        matches!(extended, Ok(Answer::Extended(Extended::Open(e))) if e.output_tokens == 200),
        "{extended:?}"
    );
    // 500·3 + 501·1.25 + 100·2, plus one image and the request. The tier inherits its write price from the table before
    // it.
    let details = UsageDetails { cache_write: 501, images: 1, ..UsageDetails::default() };
    let usage = Usage { details, ..Usage::of(1_001, 0, 100) };
    let capture = Capture { hold: second.hold, usage, charged: None, estimated: false, course: None };
    let Ok(Answer::Captured(captured)) = one(&service, Call::Capture(capture)).await else { panic!() };
    assert_eq!(captured, billed(1_500_000 + 626_250 + 200_000 + 10_000_000 + 1_000_000, 0));
}

#[tokio::test]
async fn a_bound_that_takes_more_than_a_quarter_of_what_is_available_is_to_be_counted() {
    let trial = Trial::begin(Some(NanoUsd::from_nanos(4_000_000))).await;
    let service =
        trial.service(priced("Model Flash", "input = \"1\"\ncached_input = \"1\"\noutput = \"1\"\n"));
    let ask = |n, prompt_tokens, can_count| Authorize { prompt_tokens, can_count, ..trial.authorize(n, 10) };
    let refused = async |ask| match one(&service, Call::Authorize(ask)).await {
        Ok(Answer::Authorized(Err(denial))) => assert_eq!(denial.refusal, Refusal::SpendReserved),
        other => panic!("not refused: {other:?}"),
    };
    refused(ask(1, 1_001, true)).await;
    let quarter = granted(&service, ask(2, 1_000, true)).await;
    // The open hold leaves 2,990.
    refused(ask(3, 748, true)).await;
    granted(&service, ask(3, 747, true)).await;
    captured(&service, quarter.hold, 0).await;
    granted(&service, ask(4, 2_000, false)).await;
}

#[tokio::test]
async fn a_request_of_which_nothing_is_generated_holds_no_money() {
    let trial = Trial::begin(None).await;
    let price = "input = \"1\"\ncached_input = \"1\"\noutput = \"1\"\nrequest = \"1\"\n";
    let service = trial.service(priced("Model Flash", price));
    let free = granted(&service, Authorize { is_free: true, ..trial.authorize(1, 0) }).await;
    assert_eq!((free.output_tokens, trial.held().await), (0, 0));
    granted(&service, trial.authorize(2, 0)).await;
    assert!(trial.held().await > 0);
}

#[tokio::test]
async fn a_hold_by_an_alias_is_one_of_the_model() {
    let trial = Trial::begin(None).await;
    let service = trial.service(catalogue("Model Flash", 1));
    let asked = Authorize { model: "Model Flash Latest".into(), ..trial.authorize(1, 1) };
    assert_eq!(granted(&service, asked).await.hold.model, "Model Flash");
}

#[tokio::test]
async fn a_change_of_the_catalogue_changes_no_cost_of_an_open_hold() {
    let trial = Trial::begin(None).await;
    let upstream = |cost: &str| {
        let url = "url = \"http://127.0.0.1:1/v1\"\nmodel = \"f\"";
        format!("[[model.upstream]]\nkind = \"vllm\"\n{url}\n{cost}\n")
    };
    let price = "input = \"1\"\ncached_input = \"1\"\noutput = \"4\"\nrequest = \"0.5\"\n";
    let cost = |request: &str| {
        let tokens = "input = \"0\"\ncached_input = \"0\"\noutput = \"0\"";
        upstream(&format!("[model.upstream.cost]\n{tokens}\nrequest = \"{request}\""))
    };
    // The first and last upstreams have no known prices.
    let with = |request: &str| priced("Model Flash", &format!("{price}{}{}", upstream(""), cost(request)));
    let before = trial.service(with("0.1"));
    let (other, gone) = (trial.service(with("0.3")), trial.service(catalogue("Model Large", 1)));
    let usage = Usage::of(1_000, 0, 500);
    for (n, place, after) in
        [(1, 1, &other), (2, 2, &other), (3, 3, &other), (4, 1, &gone), (5, 2, &gone), (6, 3, &gone)]
    {
        let grant = granted(&before, trial.authorize(n, 500)).await;
        let cost = grant.upstream_costs[usize::from(place - 1_u8)].clone();
        let upstream_cost = UpstreamCost::OfHold(cost);
        let hold = HoldRef { upstream: place.into(), upstream_cost, ..grant.hold };
        let call = Call::Capture(Capture { hold, usage, charged: None, estimated: false, course: None });
        one(after, call).await.unwrap();
    }
    let journal = trial.office.store.journal(trial.account, 0, 10).await.unwrap();
    let costs = journal.entries.iter().map(|entry| entry.entry.settlement.upstream_cost);
    let known = Some(NanoUsd::from_nanos(100_000_000));
    assert_eq!(costs.collect::<Vec<_>>(), [None, known, None, None, known, None]);
}

#[tokio::test]
async fn a_bill_keeps_the_cost_of_the_upstream_that_served() {
    let trial = Trial::begin(None).await;
    let (url, cost) = (
        "url = \"http://127.0.0.1:1/v1\"",
        "[model.upstream.cost]\ninput = \"1\"\ncached_input = \"0\"\noutput = \"2\"",
    );
    let price = "input = \"1\"\ncached_input = \"1\"\noutput = \"4\"\nrequest = \"0.5\"\n";
    let first =
        format!("[[model.upstream]]\nkind = \"vllm\"\n{url}\nmodel = \"f\"\n{cost}\nrequest = \"0.1\"\n");
    let service = trial.service(priced("Model Flash", &format!("{price}{first}")));
    let usage = Usage::of(1_000, 0, 500);
    // The second upstream's prices are unknown, and there is no third upstream; 0 means none. A model that has left the
    // catalogue has no prices.
    for (n, upstream, model) in [
        (1, 1, "Model Flash"),
        (2, 2, "Model Flash"),
        (3, 3, "Model Flash"),
        (4, 0, "Model Flash"),
        (5, 1, "gone"),
    ] {
        let grant = granted(&service, Authorize { prompt_tokens: 1_000, ..trial.authorize(n, 500) }).await;
        let hold = HoldRef { upstream, model: model.into(), ..grant.hold };
        let call = Call::Capture(Capture { hold, usage, charged: None, estimated: false, course: None });
        one(&service, call).await.unwrap();
    }
    let journal = trial.office.store.journal(trial.account, 0, 10).await.unwrap();
    let costs = journal.entries.iter().map(|entry| entry.entry.settlement.upstream_cost);
    // 1,000·1 + 500·2, plus the request.
    let known = Some(NanoUsd::from_nanos(1_000_000 + 1_000_000 + 100_000_000));
    assert_eq!(costs.collect::<Vec<_>>(), [known, None, None, None, None]);
}
