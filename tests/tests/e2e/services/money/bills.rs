//! Compares each bill with what the upstream itself counted.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    harness::{Answer, ApiKey, Call, FLASH, PATIENCE, Server, Stack, billed, cost, nanos, usd},
    upstream::{Generation, Script, Usage},
};
use tokio::time::{sleep, timeout_at};

/// Number of tokens in the shortest prompt. Each prompt of a key has a different length. So it is clear to which
/// request a journal entry belongs.
pub(crate) const FEWEST: u64 = 10;
/// Number of tokens in the longest prompt.
pub(crate) const MOST: u64 = 2_000;
/// Maximum time that a client waits for an answer.
pub(crate) const GIVEN_UP: Duration = Duration::from_secs(20);

/// A reason for a difference: the answer was cut off before its end.
pub(crate) const CUT: &str = "cut, with tokens on their way";

/// A request, and the period in which its client waited for the answer.
pub(crate) struct Sent {
    pub(crate) tag: String,
    pub(crate) key: String,
    pub(crate) prompt: u64,
    pub(crate) gateway: usize,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// Generation id, if the answer contained one.
    generation: Option<String>,
    /// Status of the answer; 0 if there was no answer.
    pub(crate) status: u16,
    /// Number of output tokens that the client received.
    pub(crate) received: u64,
    /// Whether the client may send the request again, to another gateway.
    pub(crate) may_be_repeated: bool,
}

/// Sends a request to this gateway, for a whole answer or for a stream, and waits until the answer ends.
pub(crate) async fn send(
    stack: &Stack,
    gateway: usize,
    key: &ApiKey,
    script: Script,
    (streamed, choices): (bool, u64),
) -> Sent {
    let prompt = script.prompt_tokens.unwrap();
    let call = call(stack, &stack.gateways[gateway], key, script).with("n", choices);
    let (tag, from) = (call.tag.clone(), Instant::now());
    let given_up = from + GIVEN_UP;
    let received = if streamed { stream(call, given_up).await } else { whole(call, given_up).await };
    let Received { status, generation, is_last, tokens } = received.unwrap_or_default();
    Sent {
        tag,
        key: key.id.clone(),
        prompt,
        gateway,
        from,
        to: Instant::now(),
        generation: Some(generation).filter(|id| !id.is_empty()),
        status,
        received: tokens,
        may_be_repeated: (matches!(status, 0 | 429) || status >= 500) && !is_last,
    }
}

/// What a client has received before it leaves.
#[derive(Default)]
struct Received {
    status: u16,
    /// Generation id. It is empty if the answer contained none.
    generation: String,
    /// Whether no client retries after this answer.
    is_last: bool,
    tokens: u64,
}

impl Received {
    fn of(answer: &Answer) -> Self {
        let tokens = (answer.status == 200).then(|| answer.json()["usage"]["completion_tokens"].as_u64());
        Self {
            status: answer.status,
            generation: answer.header("x-generation-id").to_owned(),
            is_last: answer.header("x-should-retry") == "false",
            tokens: tokens.flatten().unwrap_or_default(),
        }
    }
}

async fn whole(call: Call, given_up: Instant) -> Option<Received> {
    let answer = timeout_at(given_up.into(), call.try_send()).await.ok()?.ok()?;
    Some(Received::of(&answer))
}

async fn stream(call: Call, given_up: Instant) -> Option<Received> {
    match timeout_at(given_up.into(), call.reach_stream()).await.ok()?.ok()? {
        Ok(stream) => {
            let generation = stream.header("x-generation-id").to_owned();
            let ended = stream.rest_until(given_up).await;
            let status = if ended.chunks.is_empty() { 0 } else { 200 };
            // A client that has begun to read a stream does not retry.
            Some(Received { status, generation, is_last: true, tokens: ended.tokens() as u64 })
        }
        Err(answer) => Some(Received::of(&answer)),
    }
}

/// Returns a request whose prompt has no more tokens than its upper bound.
fn call(stack: &Stack, gateway: &Server, key: &ApiKey, script: Script) -> Call {
    let call = stack.call_at(gateway, key, script);
    let padding = "x".repeat(usize::try_from(MOST).unwrap());
    let script = call.body["messages"][0]["content"].clone();
    let messages = json!([{"role": "system", "content": padding}, {"role": "user", "content": script}]);
    call.with("messages", messages).with("max_tokens", 200).costing(NanoUsd::ZERO, usd("1"))
}

/// A generation whose bill differs from the cost of the tokens that were served.
pub(crate) struct Difference {
    pub(crate) tag: String,
    pub(crate) key: String,
    pub(crate) served: NanoUsd,
    pub(crate) charged: NanoUsd,
    pub(crate) entry: Option<Value>,
    /// The reason for the difference, which is documented; `None` if there is no such reason.
    pub(crate) reason: Option<&'static str>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tag, key: _, served, charged, entry, reason } = self;
        let entry = entry.as_ref().map_or_else(|| "no entry".into(), ToString::to_string);
        write!(f, "{tag}: {served} served, {charged} billed: {}; {entry}", reason.unwrap_or("NO REASON"))
    }
}

/// Journal entries. They can be found by the generation's id, or by the key and the length of the prompt.
struct Entries {
    by_generation: HashMap<String, Value>,
    by_prompt: HashMap<(String, u64), Value>,
}

impl Entries {
    fn of(stack: &Stack) -> Self {
        let (mut by_generation, mut by_prompt) = (HashMap::new(), HashMap::new());
        for entry in stack.journal(&stack.account) {
            let key = entry["key_id"].as_str().unwrap().to_owned();
            by_generation.insert(entry["generation_id"].as_str().unwrap().to_owned(), entry.clone());
            by_prompt.insert((key, entry["prompt_tokens"].as_u64().unwrap()), entry);
        }
        Self { by_generation, by_prompt }
    }

    fn find(&self, sent: &Sent) -> Option<&Value> {
        let by_generation = sent.generation.as_ref().and_then(|id| self.by_generation.get(id));
        by_generation.or_else(|| self.by_prompt.get(&(sent.key.clone(), sent.prompt)))
    }
}

/// Returns all generations whose bill differs from the cost of what was served, each with its reason. Bills for which
/// there is no generation are included.
pub(crate) fn differences(
    stack: &Stack,
    sent: &[Sent],
    reason: impl Fn(&Generation, &Sent, Option<&Value>) -> Option<&'static str>,
) -> Vec<Difference> {
    let entries = Entries::of(stack);
    let generations = stack.upstream.generations();
    let by_tag: HashMap<&str, &Generation> = generations.iter().map(|g| (g.tag.as_str(), g)).collect();
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    for sent in sent {
        let entry = entries.find(sent);
        known.extend(entry.map(|entry| entry["generation_id"].as_str().unwrap()));
        let Some(generation) = by_tag.get(sent.tag.as_str()) else { continue };
        let charged = entry.map_or(NanoUsd::ZERO, |entry| nanos(&entry["charged"]));
        let (least, most) = billed(FLASH, generation);
        let served = cost(FLASH, generation.served);
        // If a stream was cut off, it must be billed for the tokens that were generated before that.
        let cut = generation.streamed && least < most;
        let right = if cut { charged == served } else { (least..=most).contains(&charged) };
        if !right {
            let (tag, key, entry) = (sent.tag.clone(), sent.key.clone(), entry.cloned());
            let reason = reason(generation, sent, entry.as_ref());
            all.push(Difference { tag, key, served, charged, entry, reason });
        }
    }
    let keys: HashSet<&str> = sent.iter().map(|sent| sent.key.as_str()).collect();
    for (id, entry) in &entries.by_generation {
        let (key, charged) = (entry["key_id"].as_str().unwrap(), nanos(&entry["charged"]));
        // If a request never began, its hold expires and costs nothing.
        if charged > NanoUsd::ZERO && keys.contains(key) && !known.contains(id.as_str()) {
            let (tag, key) = (format!("not sent: {id}"), key.to_owned());
            let entry = Some(entry.clone());
            all.push(Difference { tag, key, served: NanoUsd::ZERO, charged, entry, reason: None });
        }
    }
    all
}

/// Returns the requests that were billed although their client got no answer, and therefore may have retried.
pub(crate) fn billed_in_vain(stack: &Stack, sent: &[Sent]) -> Vec<String> {
    let entries = Entries::of(stack);
    let unanswered = sent.iter().filter(|sent| sent.status != 200);
    let entry_of = |sent| Some((sent, entries.find(sent)?));
    let shown = |(sent, entry): (&Sent, &Value)| format!("{}, answered {}: {entry}", sent.tag, sent.status);
    unanswered
        .filter_map(entry_of)
        .filter(|(_, entry)| nanos(&entry["charged"]) > NanoUsd::ZERO)
        .map(shown)
        .collect()
}

/// Waits until every difference has a reason, or until the time is up, and returns the differences. Captures that could
/// not reach their store are delivered later, so the differences change.
pub(crate) async fn differences_at_last(
    stack: &Stack,
    sent: &[Sent],
    reason: impl Fn(&Generation, &Sent, Option<&Value>) -> Option<&'static str>,
) -> Vec<Difference> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let differences = differences(stack, sent, &reason);
        if Instant::now() > deadline || differences.iter().all(|difference| difference.reason.is_some()) {
            return differences;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Asserts that each difference has a reason, and prints the differences. Of those that concern cut streams, only the
/// number is printed.
pub(crate) fn assert_explained(differences: &[Difference]) {
    let cut = differences.iter().filter(|difference| difference.reason == Some(CUT)).count();
    println!(
        "{} differences; {cut} of them were cut with tokens on their way; the others:",
        differences.len()
    );
    for difference in differences.iter().filter(|difference| difference.reason != Some(CUT)) {
        println!("{difference}");
    }
    let unexplained = differences.iter().filter(|difference| difference.reason.is_none()).count();
    assert_eq!(unexplained, 0, "{unexplained} differences have no reason");
}

/// Returns whether the bill is higher than the cost of what was served.
pub(crate) fn is_above(generation: &Generation, entry: Option<&Value>) -> bool {
    entry.is_some_and(|entry| nanos(&entry["charged"]) > cost(FLASH, generation.served))
}

/// Returns whether the bill is an estimate.
pub(crate) fn is_estimated(entry: Option<&Value>) -> bool {
    entry.is_some_and(|entry| entry["estimated"] == true)
}

/// Returns whether the only tokens that the bill lacks are those that were on their way when the answer was cut off.
/// The bill must contain all tokens that the client received, and cost as much as they do, but no more tokens than the
/// upstream generated.
pub(crate) fn lacks_only_tokens_on_their_way(
    generation: &Generation,
    sent: &Sent,
    entry: Option<&Value>,
) -> bool {
    entry.is_some_and(|entry| {
        let billed = entry["completion_tokens"].as_u64().unwrap();
        let received = Usage { completion: sent.received, ..generation.served };
        // If nothing arrived, the gateway may not know the length of the prompt either.
        let is_paid = sent.received == 0 || nanos(&entry["charged"]) >= cost(FLASH, received);
        (sent.received..=generation.served.completion).contains(&billed) && is_paid
    })
}
