//! What one owner may store and read, and how much unauthenticated clients can make the store read, next to another
//! customer.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future::join_all, stream};
use http::{Method, Request, header};
use http_body_util::Full;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::row::Row;
use tests::{
    harness::{Account, Answer, ApiKey, Browser, Deployment, Form, Options, Stack, usd},
    upstream::Script,
};

/// Number of API keys that an account may have in the attack.
const KEYS: usize = 2_000;
/// Number of concurrent requests from an owner.
const AT_ONCE: usize = 32;
/// Number of forms whose attempt id is as long as a form allows.
const LONG_FORMS: usize = 200;
/// Bytes in Redis for a key with the longest label and `Idempotency-Key`, including its creation event.
const KEY_BYTES: u64 = 3_072;
/// Number of management keys that an account may have, and of members.
const OF_EACH: usize = 100;
/// How much longer another customer's chat may take because of one owner.
pub(super) const DELAY: Duration = Duration::from_secs(1);
/// Number of accounts besides the one whose name unauthenticated clients guess, and number of guesses.
const ACCOUNTS: usize = 200;
const GUESSES: usize = 50;
/// Number of Redis commands that a guess may need, however many accounts there are.
const COMMANDS: u64 = 40;

/// Starts services over one Redis, with tight limits on owners.
pub(super) async fn services() -> Stack {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let env = vec![
        ("FAREGATE_MAX_KEYS_PER_ACCOUNT", KEYS.to_string()),
        ("FAREGATE_TRUST_PROXY", "true".to_owned()),
    ];
    let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    stack.others_spend();
    stack
}

/// Runs an owner that fills the store, and measures the effect on another customer.
pub(super) async fn owner() -> Vec<Row> {
    let stack = services().await;
    let greedy = stack.open_account("greedy", usd("1"));
    let other = stack.key().await;
    let mut browser = owner_of(&stack, &greedy).await;
    let mut rows = vec![long_attempts(&stack, &mut browser).await, keys(&stack, &greedy).await];
    rows.extend(lists(&stack, browser, &other).await);
    rows.push(nearly_full(&stack, &other).await);
    rows
}

/// Returns a browser in which the owner of this account is signed in.
pub async fn owner_of(stack: &Stack, account: &Account) -> Browser {
    let link = stack.cli(&["sign-in-link", "--account", &account.name]);
    let mut browser = Browser::at(&stack.url(""));
    assert_eq!(browser.sign_in(&link).await.status, 303);
    browser.get("/dashboard").await;
    browser
}

async fn long_attempts(stack: &Stack, browser: &mut Browser) -> Row {
    let before = redis_info(stack, "memory", "used_memory");
    let mut refused = 0;
    for number in 0..LONG_FORMS {
        let attempt = format!("{number:032000}");
        let answer = browser.post("/dashboard/keys", &[("label", "x"), ("attempt", &attempt)]).await;
        refused += usize::from(answer.status == 400);
    }
    let grown = redis_info(stack, "memory", "used_memory").saturating_sub(before);
    let bound = 1 << 20;
    Row {
        name: format!("{LONG_FORMS} forms of one owner with an attempt of 32 kB"),
        expected: format!("all are refused, {} kB more", bound >> 10),
        seen: format!("{refused} are refused, {} kB more", grown >> 10),
        held: refused == LONG_FORMS && grown <= bound,
    }
}

async fn keys(stack: &Stack, account: &Account) -> Row {
    let before = redis_info(stack, "memory", "used_memory");
    let create = async |number: usize| {
        let body = json!({"label": "🔑".repeat(80)}).to_string();
        let request = Request::post(stack.url("/v1/management/keys"))
            .header(header::AUTHORIZATION, format!("Bearer {}", account.management_key))
            .header("idempotency-key", format!("{number:0255}"))
            .body(Full::new(body.into()));
        stack.http.send(request.unwrap()).await
    };
    let tried = KEYS + 50;
    let answers: Vec<Answer> = stream::iter(0..tried).map(create).buffer_unordered(AT_ONCE).collect().await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let refused = answers.iter().filter(|answer| answer.text().contains("too_many_keys")).count();
    let each = redis_info(stack, "memory", "used_memory").saturating_sub(before) / KEYS as u64;
    Row {
        name: format!("{tried} API keys of one account, labels and idempotency keys as long as they may be"),
        expected: format!("{KEYS} are made, {KEY_BYTES} bytes each"),
        seen: format!("{made} are made, {refused} are refused, {each} bytes each"),
        held: (made, refused) == (KEYS, tried - KEYS) && each <= KEY_BYTES,
    }
}

/// Creates management keys and members until they are refused. Then reads the pages that list them, without a pause.
async fn lists(stack: &Stack, mut browser: Browser, other: &ApiKey) -> Vec<Row> {
    let management_keys = made(&mut browser, "/dashboard/management-keys").await;
    let members = made(&mut browser, "/dashboard/members").await;
    let calm = slowest_chat(stack, other).await;
    let until = Instant::now() + Duration::from_secs(5);
    let reading = (0..AT_ONCE).map(|number| {
        let mut browser = browser.clone();
        let path =
            ["/dashboard/management-keys", "/dashboard/members", "/dashboard/keys?q=nothing"][number % 3];
        tokio::spawn(async move {
            while Instant::now() < until {
                browser.get(path).await;
            }
        })
    });
    let reading: Vec<_> = reading.collect();
    let mut worst = Duration::ZERO;
    while Instant::now() < until {
        worst = worst.max(slowest_chat(stack, other).await);
    }
    for reading in join_all(reading).await {
        reading.unwrap();
    }
    let delay = worst.saturating_sub(calm);
    vec![
        Row {
            name: "management keys and members of one account, as many as it can make".into(),
            // The account already had one of each.
            expected: format!("{OF_EACH} of each"),
            seen: format!("{} and {}", management_keys + 1, members + 1),
            held: (management_keys + 1, members + 1) == (OF_EACH, OF_EACH),
        },
        Row {
            name: format!("its pages, {AT_ONCE} at once without a pause"),
            expected: format!("another's chat waits {DELAY:?} longer"),
            seen: format!("{delay:.0?} ({calm:.0?}, then {worst:.0?})"),
            held: delay <= DELAY,
        },
    ]
}

/// Submits a form until it is refused. Returns how often it succeeded.
pub async fn made(browser: &mut Browser, path: &str) -> usize {
    browser.get(path).await;
    for number in 0..2 * OF_EACH {
        // Each has its own attempt id, as its page would send it.
        let attempt = format!("{number:064x}");
        let fields = [("name", format!("number {number}")), ("role", "viewer".into()), ("attempt", attempt)];
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if browser.post(path, &fields).await.status != 200 {
            return number;
        }
    }
    2 * OF_EACH
}

/// Fills a Redis almost completely as an owner, and measures another customer's chats.
async fn nearly_full(stack: &Stack, other: &ApiKey) -> Row {
    fill(stack);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let created = stack.manage(Method::POST, "", Some(json!({}))).await;
    let chats = join_all((0..AT_ONCE).map(|_| stack.call(other, Script::tokens(12, 5)).send())).await;
    let served = chats.iter().filter(|answer| answer.status == 200).count();
    empty(stack);
    Row {
        name: "Redis at nine tenths of its maxmemory".into(),
        expected: format!("no key is made, {AT_ONCE} chats are served"),
        seen: format!("a key is answered {}, {served} chats are served", created.status),
        held: created.text().contains("store_full") && served == AT_ONCE,
    }
}

/// Fills the Redis of a stack until nine tenths of the memory that is then allowed are used.
pub fn fill(stack: &Stack) {
    let used = redis_info(stack, "memory", "used_memory");
    let most = 4 * used.max(16 << 20);
    stack.redis().ask(0, &format!("CONFIG SET maxmemory {most}"));
    // The allocator provides blocks of this size, so the strings take no more memory than their length.
    for number in 0.. {
        if redis_info(stack, "memory", "used_memory") >= most / 10 * 9 {
            break;
        }
        stack.redis().ask(0, &format!("SETRANGE filler-{number} {} x", 1_000_000));
    }
}

/// Undoes [`fill`].
pub fn empty(stack: &Stack) {
    stack.redis().ask(0, "CONFIG SET maxmemory 0");
}

/// Runs unauthenticated clients that guess an account's name, next to many other accounts.
pub(super) async fn guesses() -> Row {
    let stack = services().await;
    let operator = stack.key_services[0].settings().clone();
    let made = stream::iter(0..ACCOUNTS).map(|number| {
        let operator = operator.clone();
        spawn_blocking(move || operator.cli(&["accounts", "create", "--name", &format!("account {number}")]))
    });
    made.buffer_unordered(4).for_each(async |made| drop(made.unwrap())).await;
    let before = redis_info(&stack, "stats", "total_commands_processed");
    for number in 0..GUESSES {
        let mut browser = Browser::at(&stack.url(""));
        browser.headers = vec![("x-forwarded-for", format!("203.0.113.{number}"))];
        browser.get("/dashboard/sign-in").await;
        let fields = [("account", "account 7"), ("name", "owner"), ("password", "a wrong password")];
        browser.post("/dashboard/sign-in", &fields).await;
    }
    let commands = redis_info(&stack, "stats", "total_commands_processed") - before;
    let each = commands / GUESSES as u64;
    Row {
        name: format!("guesses of unauthenticated clients at one of {ACCOUNTS} accounts"),
        expected: format!("{COMMANDS} commands of Redis each"),
        seen: format!("{each} commands each"),
        held: each <= COMMANDS,
    }
}

/// Returns how long the slowest of a few chats in a row took.
pub(super) async fn slowest_chat(stack: &Stack, key: &ApiKey) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..10 {
        let began = Instant::now();
        let answer = stack.call(key, Script::tokens(12, 5)).send().await;
        // A refused chat counts as endless.
        longest = longest.max(if answer.status == 200 { began.elapsed() } else { Duration::MAX });
    }
    longest
}

/// Reads a figure that a stack's Redis reports.
pub(super) fn redis_info(stack: &Stack, section: &str, name: &str) -> u64 {
    let info = stack.redis().ask(0, &format!("INFO {section}"));
    let figure = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    figure.expect("Redis has the figure").trim().parse().expect("it is a number")
}
