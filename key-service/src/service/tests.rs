//! Calls of gateways, over the store in memory.

use async_trait::async_trait;
use shared::{
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    rpc::{Captured, Charge, Extended, Grant},
    secret::ExposeSecret,
    time::Timestamp,
    tokens::Usage,
};

use super::*;
use crate::{
    management::{Created, testing::Office},
    store::{Cursor, DueHolds, HoldIndex, Keys, Skew},
};
use domain::{key::KeyPatch, ledger::Refused};

/// A catalogue with this model, at this price per million output tokens; prompts are free.
fn catalogue(model: &str, usd: u32) -> Arc<Catalog> {
    let text = format!(
        "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n\
         [[model]]\nid = \"{model}\"\nowned_by = \"f\"\ncontext_window = 9000\nmax_output_tokens = 9000\n\
         [model.price]\ninput = \"0\"\ncached_input = \"0\"\noutput = \"{usd}\"\n\
         [[model.upstream]]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"f\"\n"
    );
    Arc::new(Catalog::parse(&text, "test").unwrap())
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
        let settings = KeyPatch { limit: Some(limit), ..KeyPatch::default() };
        let made = office.management.create(account, settings, None).await.unwrap();
        let Created::New { key, plaintext } = made else { panic!("{made:?}") };
        Self { office, account, key: key.id, credential: plaintext.expose_secret().to_owned() }
    }

    fn service(&self, catalog: Arc<Catalog>) -> Service {
        self.over(self.office.store.clone(), catalog)
    }

    fn over(&self, ledger: Arc<dyn Ledger>, catalog: Arc<Catalog>) -> Service {
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
            output_tokens,
            enough_output_tokens: output_tokens,
            least_output_tokens: 1,
            valid_until: None,
        }
    }

    /// A generation made at the current time of the test.
    fn generation(&self, n: u8) -> GenerationId {
        GenerationId::new(self.office.clock.now(), [n; 10])
    }

    async fn held(&self) -> i64 {
        self.office.store.key(self.account, self.key).await.unwrap().unwrap().spend.budget.held.nanos()
    }
}

async fn one(service: &Service, call: Call) -> Result<Answer, CallFailure> {
    let mut answers = service.handle(vec![call]).await;
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
    match one(service, Call::Capture(Capture { hold, usage, estimated: false })).await {
        Ok(Answer::Captured(captured)) => captured,
        other => panic!("not captured: {other:?}"),
    }
}

fn billed(charged: i64, shortfall: i64) -> Captured {
    let nanos = NanoUsd::from_nanos;
    Captured::Billed(Charge { charged: nanos(charged), shortfall: nanos(shortfall) })
}

#[tokio::test]
async fn a_hold_keeps_the_prices_that_it_was_opened_with() {
    let trial = Trial::begin(None).await;
    let grant = granted(&trial.service(catalogue("Model Flash", 1)), trial.authorize(1, 100)).await;
    // The model becomes more expensive, and is then withdrawn.
    for later in [catalogue("Model Flash", 4), catalogue("Model Max", 4)] {
        let service = trial.service(later);
        let usage = Usage::of(0, 0, 100);
        let extend =
            Extend { hold: grant.hold.clone(), usage, prompt_tokens: 0, images: 0, output_tokens: 300 };
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
    let extend = Extend { hold: unknown, usage, prompt_tokens: 0, images: 0, output_tokens: 1 };
    let extended = one(&service, Call::Extend(extend)).await;
    assert!(matches!(extended, Ok(Answer::Extended(Extended::Gone))), "{extended:?}");

    // An operator has to repair a damaged record, so the answer must not ask for another attempt.
    let damaged = trial.over(Arc::new(Answering(Ok(Err(Refused::Damaged)))), catalogue("Model Flash", 1));
    let capture = Call::Capture(Capture { hold: grant.hold.clone(), usage, estimated: false });
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
    let answers = service.handle(calls).await;
    assert!(matches!(answers[0], Ok(Answer::Authenticated(Err(Refusal::InvalidApiKey)))));
    assert!(matches!(&answers[1], Ok(Answer::Authorized(Ok(grant))) if grant.output_tokens == 7));
    let principal = Principal::ApiKey(trial.account, trial.key);
    assert!(matches!(answers[2], Ok(Answer::Authenticated(Ok(found))) if found == principal));
    assert!(matches!(answers[3], Ok(Answer::Authorized(Err(Refusal::ModelNotFound)))));
    assert_eq!(answers.len(), 4);
}

/// A ledger with the same answer to every command.
struct Answering(Result<Result<domain::ledger::Outcome, Refused>, StoreError>);

#[async_trait]
impl Ledger for Answering {
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

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
