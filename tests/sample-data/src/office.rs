//! Carries out the story through the key-service's own use cases, so that prices, holds, bills and refusals are real.

use std::{fmt::Debug, path::Path, sync::Arc, time::Duration};

use anyhow::{anyhow, bail};
use domain::digest::{Pepper, Peppers};
use key_service_credentials::Credentials;
use key_service_management::Management;
use key_service_records::{Records, copy::copy, sqlite::Sqlite};
use key_service_spending::service::Service;
use key_service_store::store::{EVENTS_KEPT, EventBounds, Store, StoreRetention};
use shared::{
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::{GenerationId, RequestId},
    key::Prefix,
    private_files, secret,
    time::Timestamp,
    tokens::Usage,
};
use shared_catalog::Catalog;
use shared_config::current::Current;
use shared_rpc::{Answer, Authorize, Call, Capture, Captured, KeyService};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{chance::StoryClock, traffic::SampleRequest};

/// The sample's catalogue, which is also written into the data directory.
pub(crate) const MODELS: &str = include_str!("models.toml");
/// Lease of holds. No hold in the story is open for that long.
const LEASE: Duration = Duration::from_secs(30);
/// How far back bills count for the health of upstreams; the store drops older counts.
const HEALTH: Duration = Duration::from_hours(24);

/// An open installation in memory, which is written to a file at the end.
pub(crate) struct SampleOffice {
    pub(crate) clock: Arc<StoryClock>,
    pub(crate) management: Arc<Management>,
    records: Arc<dyn Records>,
    /// The first bills everything before the last day; the second bills the last day.
    services: [Arc<Service>; 2],
    last_day: Timestamp,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl SampleOffice {
    pub(crate) async fn open(dir: &Path, clock: StoryClock, until: Timestamp) -> anyhow::Result<Self> {
        if dir.join("faregate.db").exists() {
            bail!("{} contains a store already; name another directory", dir.display());
        }
        private_files::create_folder(dir)?;
        private_files::write(&dir.join("models.toml"), MODELS.as_bytes())?;
        let clock = Arc::new(clock);
        let pepper = secret::read_or_make(&dir.join("pepper"), &*clock)?;
        let current = Pepper::from_hex(&pepper).ok_or_else(|| anyhow!("the file `pepper` is damaged"))?;
        let prefix = Prefix::parse("fg").ok_or_else(|| anyhow!("no prefix"))?;
        let records: Arc<dyn Records> = Arc::new(Sqlite::in_memory()?);
        let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
        let store = Arc::new(Store::new(records.clone(), clock.clone(), kept));
        let credentials =
            Arc::new(Credentials::new(store.clone(), Peppers { current, previous: None }, prefix));
        done(credentials.check_peppers(until).await)?;
        let catalog = Arc::new(Current::new(Catalog::parse(MODELS, "models.toml")?));
        let management = Management::new(store.clone(), clock.clone(), credentials.clone());
        let management = Arc::new(management.with_catalog(catalog.clone()));
        let service = || {
            let (clock, credentials) = (clock.clone(), credentials.clone());
            Arc::new(Service::new(store.clone(), clock, credentials, catalog.clone(), LEASE))
        };
        let services = [service(), service()];
        let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for service in &services {
            tasks.spawn(service.refusals().run(store.clone(), shutdown.clone()));
        }
        tasks.spawn(services[1].upstream_bills().run(store.clone(), shutdown.clone()));
        let last_day = until.minus(HEALTH);
        Ok(Self { clock, management, records, services, last_day, shutdown, tasks })
    }

    /// Sends a request with a key's plaintext. Returns whether it was billed; otherwise it was refused.
    pub(crate) async fn request(&self, credential: &str, request: &SampleRequest) -> anyhow::Result<bool> {
        let SampleRequest { model, prompt, completion, user, latency_ms, upstream, .. } = request;
        let generation = GenerationId::generate(&*self.clock);
        let origin = Origin {
            api: ModelApi::Chat,
            stream: true,
            user: user.clone(),
            request: Some(RequestId::generate(&*self.clock)),
        };
        let authorize = Authorize {
            credential: credential.to_owned(),
            generation,
            model: (*model).to_owned(),
            prompt_tokens: *prompt,
            images: 0,
            readmitted: false,
            rated_tokens: None,
            is_free: false,
            output_tokens: completion + 1,
            enough_output_tokens: 1,
            least_output_tokens: 1,
            valid_until: None,
            origin: Some(Arc::new(origin)),
            can_count: false,
        };
        let grant = match self.answer(Call::Authorize(authorize)).await? {
            Answer::Authorized(Ok(grant)) => grant,
            Answer::Authorized(Err(_)) => return Ok(false),
            other => bail!("an authorization was answered with {other:?}"),
        };
        let is_cut = grant.output_tokens <= *completion;
        let course = Course {
            upstream: Some((*upstream).to_owned()),
            authorized_ms: Some(1),
            first_token_ms: Some(latency_ms / 8 + 40),
            latency_ms: Some(*latency_ms),
            finish_reason: Some(if is_cut { FinishReason::Length } else { FinishReason::Stop }),
            least_cost_nanos: None,
        };
        let usage = Usage::of(*prompt, prompt / 4, (*completion).min(grant.output_tokens));
        let mut hold = grant.hold;
        hold.upstream = 1;
        let course = Some(Arc::new(course));
        let capture = Capture { hold, usage, charged: None, estimated: false, course };
        match self.answer(Call::Capture(capture)).await? {
            Answer::Captured(Captured::Billed(_)) => Ok(true),
            other => bail!("a capture was answered with {other:?}"),
        }
    }

    async fn answer(&self, call: Call) -> anyhow::Result<Answer> {
        let [earlier, last] = &self.services;
        let is_last = shared::clock::Clock::now(&*self.clock) >= self.last_day;
        let service: &dyn KeyService = if is_last { &**last } else { &**earlier };
        let answer = service.answers(vec![call.into()]).await.pop();
        Ok(answer.ok_or_else(|| anyhow!("a call was not answered"))??)
    }

    /// Writes what is still in memory, and copies everything to a file in the data directory.
    pub(crate) async fn close(mut self, dir: &Path) -> anyhow::Result<()> {
        self.shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        let file: Arc<dyn Records> = Arc::new(Sqlite::open(&dir.join("faregate.db"))?);
        done(copy(&self.records, &file, |_| ()).await)?;
        Ok(())
    }
}

/// Converts a use case's error to an error of the program.
pub(crate) fn done<T, E: Debug>(result: Result<T, E>) -> anyhow::Result<T> {
    result.map_err(|error| anyhow!("the store refuses the sample: {error:?}"))
}
