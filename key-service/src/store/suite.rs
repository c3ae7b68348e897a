//! Contract tests of stores: the same cases run against each store.

mod accounts;
mod books;
mod budgets;
mod deposits;
pub(crate) mod events;
mod groups;
pub(crate) mod in_redis;
mod keys;
mod leases;
mod listing;
mod margins;
mod measure;
mod members;
mod moving;
mod mutations;
mod outage;
pub(crate) mod reference;
mod rotation;
pub(crate) mod servers;
mod spending;
mod webhooks;

pub(crate) use outage::Outage;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, params_from_iter};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};
use tempfile::TempDir;

use self::reference::Reference;
use super::{DueHold, EVENTS_KEPT, EventBounds, NewAccount, Outcomes, Store, sqlite::Sqlite};
use domain::{
    digest::Digest,
    event::{Act, Actor},
    group::{Group, NewGroup},
    key::{ApiKey, NewKey},
    ledger::{
        self, Command, NewHold, Outcome, Progress, Refused,
        histories::{START, deposit},
    },
};

/// Bounds of events: more than any case writes that is not about them.
const SUITE_EVENTS: EventBounds = EventBounds { life: EVENTS_KEPT, count: 1_000, bytes: 512 << 10 };

/// The list of cases, written once.
macro_rules! contract {
    ($store:ident: $subject:ty) => {
        mod $store {
            contract! { @cases $subject:
                accounts::{
                    a_name_is_taken_once,
                    an_account_is_found_by_its_name,
                    accounts_are_listed_oldest_first_with_their_money_and_keys,
                    a_credential_is_found_for_good,
                    the_record_of_peppers_is_replaced_by_one_of_several_writers,
                    management_keys_are_listed_oldest_first_each_with_its_account,
                    a_management_key_comes_back_with_its_rights,
                    a_use_of_a_management_key_is_recorded_once_a_minute,
                    a_management_key_is_revoked_once,
                    an_account_has_no_more_management_keys_than_it_may,
                    what_belongs_to_no_account_is_refused,
                }
                books::{
                    entries_come_in_the_order_of_settlement,
                    a_correction_is_an_entry_of_its_own,
                    usage_is_counted_by_day_key_and_model,
                    books_are_sound_at_every_moment,
                    doctored_books_are_found,
                    the_latest_entries_come_newest_first,
                    entries_are_found_by_key_model_day_and_outcome,
                    refused_calls_are_counted_by_key_hour_and_reason,
                }
                budgets::{
                    no_level_is_passed_by_many_at_once,
                    refusals_come_whole,
                    a_window_turns_between_two_commands,
                    a_reached_limit_is_told_until_it_is_raised_or_its_window_ends,
                    a_rate_admits_exactly_its_number_at_once,
                    requests_in_flight_are_free_again_when_they_end,
                    tokens_count_by_their_bound_until_they_are_known,
                    a_readmitted_request_counts_once,
                    history_stays_with_the_groups_that_paid,
                }
                deposits::{
                    funds_and_deposits_are_those_of_the_account,
                    a_payment_is_added_once_and_tells_when,
                }
                events::{
                    each_act_leaves_one_event_and_a_repetition_none,
                    an_act_that_changes_nothing_or_is_refused_leaves_no_event,
                    events_are_found_by_type_key_and_group_page_by_page,
                    a_keys_and_a_groups_events_are_found_until_they_end,
                    events_are_dropped_when_they_are_too_old,
                    an_account_keeps_its_latest_events_within_their_number_and_bytes,
                    acts_at_once_leave_an_event_each,
                }
                groups::{
                    a_group_is_made_once_and_found_by_both_of_its_ids,
                    a_race_for_an_external_id_makes_one_group,
                    changes_of_one_object_at_once_all_take_effect,
                    an_idempotency_key_makes_one_group,
                    groups_are_listed_in_the_order_of_their_ids,
                    groups_have_two_levels,
                    a_patch_of_a_group_changes_what_it_names,
                    an_archived_group_takes_nothing,
                    keys_of_a_group_are_counted_and_listed,
                    an_account_has_no_more_groups_than_it_may,
                    a_key_comes_back_with_its_bounds,
                    usage_has_its_parts_and_the_cost_to_the_operator,
                }
                members::{
                    members_are_listed_oldest_first_each_in_its_account,
                    a_member_is_found_by_its_name,
                    an_account_has_no_more_members_than_it_may,
                    members_at_once_are_no_more_than_there_may_be,
                    a_change_of_a_member_changes_what_it_names,
                    a_second_factor_is_replaced_once_and_tells_when_it_comes_and_goes,
                    a_removed_member_takes_its_links_and_sessions_along,
                    a_link_signs_in_once_and_before_it_expires,
                    a_session_lives_until_it_expires_or_is_ended,
                    attempts_are_counted_until_they_are_forgotten,
                }
                webhooks::{
                    webhooks_are_listed_oldest_first_and_leave_nothing_behind,
                    an_account_has_no_more_webhooks_than_it_may,
                    an_idempotency_key_makes_one_webhook_until_it_ends,
                    a_change_of_a_webhook_changes_what_it_names,
                    a_cursor_moves_together_with_the_deliveries,
                    a_delivery_is_claimed_once_until_it_falls_due_again,
                    an_attempt_that_another_one_followed_ends_nothing,
                    the_last_attempts_are_kept,
                    a_disabled_webhook_looks_at_the_events_of_its_deliveries_again,
                }
                margins::{
                    margins_are_those_of_the_journal,
                }
                leases::{
                    holds_are_due_when_the_ledger_has_counted_their_lease,
                    an_extension_counts_from_the_tick_it_comes_at,
                    of_many_ticks_at_once_one_counts,
                    accounts_with_holds_are_listed,
                    a_hold_opened_again_for_another_key_is_due_once,
                    due_holds_are_read_page_by_page,
                }
                keys::{
                    a_key_comes_back_as_it_was_made,
                    an_account_has_no_more_keys_than_it_may,
                    keys_are_listed_in_the_order_of_their_ids,
                    a_cursor_need_not_exist,
                    keys_of_a_status_are_listed_as_of_now,
                    names_of_keys_are_listed_as_the_keys_are,
                    keys_that_spent_most_come_first,
                    a_patch_changes_what_it_names,
                    a_revoked_key_stays_as_it_is,
                    another_accounts_key_is_out_of_reach,
                    an_idempotency_key_makes_one_key,
                    a_replayed_key_is_answered_as_it_is_now,
                    an_idempotency_key_ends,
                    old_idempotency_keys_make_room_for_new_ones,
                    a_race_for_an_idempotency_key_makes_one_key,
                    a_creation_sent_again_makes_nothing_more,
                }
                moving::{
                    an_import_makes_groups_and_keys_that_are_found_and_listed_like_others,
                    an_imported_key_spends_on_from_what_it_spent_elsewhere,
                    a_repeated_import_changes_nothing,
                    an_import_is_made_whole_or_not_at_all,
                    a_dry_run_says_what_would_be_made_and_makes_nothing,
                    imports_at_once_make_each_key_once,
                    an_import_of_many_keys_is_complete,
                }
                rotation::{
                    both_credentials_spend_until_the_grace_is_over,
                    both_credentials_of_a_grouped_key_spend_until_the_grace_is_over,
                    a_rotated_key_that_moves_keeps_its_credentials,
                    a_credential_that_was_admitted_goes_on,
                    what_cannot_be_rotated_stays_as_it_is,
                    an_idempotency_key_rotates_once,
                    a_rotation_sent_again_changes_nothing,
                    a_rotation_leaves_one_event,
                    credentials_that_ended_are_forgotten,
                    of_rotations_at_once_each_has_a_number_of_its_own,
                    of_rotations_at_once_one_begins_the_grace,
                }
                spending::{
                    an_unknown_account_is_refused_everything,
                    no_commands_have_no_outcomes,
                    the_largest_numbers_come_back,
                    holds_at_once_never_pass_the_limit,
                    holds_at_once_never_pass_the_credit,
                    a_capture_sent_by_many_at_once_is_billed_once,
                    changes_at_once_lose_no_money,
                    it_answers_a_ping,
                    what_ran_on_after_a_cut_is_recorded_as_shortfall,
                    a_capture_without_a_hold_is_billed_once,
                    a_capture_of_a_forgotten_age_is_recorded_as_shortfall,
                    a_capture_after_an_expiry_replaces_its_bill,
                }
            }

            #[test]
            fn random_histories_end_as_the_ledger_says() {
                super::spending::random_histories_end_as_the_ledger_says::<$subject>();
            }
        }
    };
    (@cases $subject:ty: $($module:ident::{$($case:ident),+ $(,)?})+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$module::$case(&mut <$subject as super::Subject>::new().await).await;
            }
        )+)+
    };
}

contract!(in_maps: super::InMaps);
contract!(sqlite: super::InFile);
contract!(sqlite_in_memory: super::InMemory);
contract!(sqlite_reopened: super::Reopened);
contract!(redis: super::in_redis::InRedis);
contract!(redis_killed: super::in_redis::Killed);
contract!(redis_cluster: super::in_redis::InCluster);

/// A store under test, empty at first.
pub(crate) trait Subject: Sized {
    async fn new() -> Self;

    fn store(&self) -> &Arc<dyn Store>;

    /// Writes directly, without the ledger.
    async fn doctor(&self, account: AccountId, fault: Fault);

    /// Called in the middle of a case: subjects that test restarts close and open their store.
    async fn interrupt(&mut self) {}
}

/// A fault for an audit to find.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The key's `used` is one too much.
    Used(KeyId),
    /// The account's credit is one too much.
    Credit,
    /// The journal has no entry of this generation.
    LostEntry(GenerationId),
    /// This generation has an open hold that covers nothing; it looks like that of the other.
    PhantomHold(GenerationId, GenerationId),
}

/// The reference store.
struct InMaps {
    reference: Arc<Reference>,
    store: Arc<dyn Store>,
}

impl Subject for InMaps {
    async fn new() -> Self {
        let reference = Arc::new(Reference::new());
        Self { store: reference.clone(), reference }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.reference.doctor(account, fault);
    }
}

/// The SQLite store in memory.
struct InMemory {
    sqlite: Arc<Sqlite>,
    store: Arc<dyn Store>,
}

impl Subject for InMemory {
    async fn new() -> Self {
        let sqlite = Arc::new(Sqlite::in_memory().unwrap().keeping_events(SUITE_EVENTS));
        Self { store: sqlite.clone(), sqlite }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.sqlite.change(move |connection| doctor(connection, account, fault)).await;
    }
}

/// The SQLite store in a file.
struct InFile {
    store: Arc<dyn Store>,
    path: PathBuf,
    _folder: TempDir,
}

impl Subject for InFile {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        Self { store: Arc::new(open_file(&path)), path, _folder: folder }
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        doctor(&Connection::open(&self.path).unwrap(), account, fault);
    }
}

fn open_file(path: &Path) -> Sqlite {
    Sqlite::open(path).unwrap().keeping_events(SUITE_EVENTS)
}

/// Writes a fault into tables of SQLite.
fn doctor(connection: &Connection, account: AccountId, fault: Fault) {
    let account = account.as_bytes().as_slice();
    let write = |sql: &str, ids: &[&[u8]]| {
        let written = connection.execute(sql, params_from_iter([&[account], ids].concat()));
        assert_eq!(written.unwrap(), 1);
    };
    match fault {
        Fault::Used(key) => {
            write("UPDATE api_keys SET used = used + 1 WHERE account = ? AND id = ?", &[key.as_bytes()]);
        }
        Fault::Credit => write("UPDATE accounts SET credit = credit + 1 WHERE id = ?", &[]),
        Fault::LostEntry(lost) => {
            write("DELETE FROM journal WHERE account = ? AND generation = ?", &[lost.as_bytes()]);
        }
        Fault::PhantomHold(phantom, like) => write(
            "INSERT INTO holds SELECT account, ?2, key, model, amount, prompt, cached, completion, cost, lease_until,
                               group_id, parent, details, upstream_cost, counted, counted_tokens
             FROM holds WHERE account = ?1 AND generation = ?3",
            &[phantom.as_bytes(), like.as_bytes()],
        ),
    }
}

/// The SQLite store, closed and opened again in the middle of each case.
struct Reopened(InFile);

impl Subject for Reopened {
    async fn new() -> Self {
        Self(InFile::new().await)
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.0.doctor(account, fault).await;
    }

    async fn interrupt(&mut self) {
        // The file is closed before it is opened again.
        self.0.store = Arc::new(Reference::new());
        self.0.store = Arc::new(open_file(&self.0.path));
    }
}

pub(super) fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

/// An act at this time. Each act has an id of its own.
pub(crate) fn act(at: Timestamp) -> Act {
    static ACTS: AtomicU64 = AtomicU64::new(0);
    let mut chance = [0; 10];
    chance[..8].copy_from_slice(&ACTS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Act { actor: Actor::System, at, chance }
}

pub(crate) fn nanos(n: i64) -> NanoUsd {
    NanoUsd::from_nanos(n)
}

fn digest(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

/// Makes the account of this number.
async fn open_account(store: &dyn Store, n: u8) -> AccountId {
    let id = ledger::histories::account(n);
    let new = NewAccount { id, name: format!("Customer {n}"), created_at: after(n.into()) };
    assert!(store.create_account(new).await.unwrap());
    id
}

/// Makes the account of this number, with credit.
pub(crate) async fn open_account_with(store: &dyn Store, n: u8, credit: i64) -> AccountId {
    let account = open_account(store, n).await;
    let command = Command::Deposit {
        id: deposit(0),
        amount: nanos(credit),
        note: String::new(),
        payment_id: None,
        actor: Actor::System,
    };
    let outcome = Ok(Outcome::Deposited(nanos(credit)));
    assert_eq!(store.execute(account, vec![command], START).await.unwrap(), [outcome]);
    account
}

/// The key of this number, not yet made.
fn new_key(account: AccountId, n: u8) -> NewKey {
    let blank = ApiKey::new(ledger::histories::key(n), format!("fg_api_{n}…"), after(n.into()));
    let key = ApiKey { label: format!("Key {n}"), ..blank };
    NewKey { account, key, digest: digest(&format!("{account} {n}")), most: u64::MAX >> 11 }
}

/// The group of this number, not yet made.
pub(super) fn new_group(account: AccountId, n: u8) -> NewGroup {
    let blank = Group::new(ledger::histories::group(n), after(n.into()));
    let group = Group { name: format!("Group {n}"), ..blank };
    NewGroup { account, group, most: 100 }
}

/// Makes a key that may spend this much.
pub(crate) async fn make_key(store: &dyn Store, account: AccountId, n: u8, limit: Option<i64>) -> KeyId {
    let mut new = new_key(account, n);
    new.key.spend.budget.limit = limit.map(nanos);
    store.create_key(new, None, &act(START)).await.unwrap();
    ledger::histories::key(n)
}

pub(crate) fn hold(key: KeyId, generation: GenerationId, amount: i64, lease_ticks: u64) -> Command {
    let amount = nanos(amount);
    let model = "Model Flash".into();
    Command::Hold(NewHold {
        key,
        credential: 0,
        generation,
        model,
        least: amount,
        enough: amount,
        most: amount,
        prompt_tokens: 1,
        readmitted: false,
        lease_ticks,
    })
}

pub(crate) fn capture(key: KeyId, generation: GenerationId, cost: i64) -> Command {
    let usage = Usage::of(1, 0, cost.unsigned_abs());
    let (model, total) = ("Model Flash".into(), Progress { usage, cost: nanos(cost), upstream_cost: None });
    Command::Capture { key, generation, model, total, chargeable: None, estimated: false }
}

/// Advances lease time by this many ticks.
pub(super) async fn tick(store: &dyn Store, account: AccountId, ticks: u64) {
    let mut seen = None;
    for _ in 0..=ticks {
        let Ok(Outcome::Ticked(tick)) = execute_one(store, account, Command::Tick { seen }).await else {
            panic!("the account has no lease time")
        };
        seen = Some(tick);
    }
}

/// All due holds of the account, in the order of their generations.
pub(super) async fn due_holds(store: &dyn Store, account: AccountId) -> Vec<DueHold> {
    let (mut due, mut after) = (Vec::new(), None);
    loop {
        let page = store.due_holds(account, after).await.unwrap();
        due.extend(page.holds);
        after = page.next;
        if after.is_none() {
            // A store may list a hold again that changed meanwhile.
            due.sort_by_key(|hold: &DueHold| hold.generation);
            due.dedup();
            return due;
        }
    }
}

async fn execute_one(store: &dyn Store, account: AccountId, command: Command) -> Result<Outcome, Refused> {
    let mut outcomes: Outcomes = store.execute(account, vec![command], START).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

pub(crate) async fn spend(store: &dyn Store, account: AccountId, key: KeyId) -> ledger::Key {
    store.key(account, key).await.unwrap().unwrap().spend
}
