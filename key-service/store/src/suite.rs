//! The test suite for the store: the same cases run on several backends. Tests of the store's callers also use its
//! stores, steps and faults.

mod doctor;
pub mod in_redis;
#[cfg(test)]
mod money;
#[cfg(test)]
mod nouns;
mod outage;
mod steps;
#[cfg(test)]
mod subjects;

use std::sync::Arc;

use domain::ledger::histories::START;
use records::{Records, maps::Maps};
use shared::{
    clock::{Clock, System},
    ids::AccountId,
    time::Timestamp,
};

pub use self::{
    doctor::Fault,
    outage::Unreliable,
    steps::{
        act, after, capture, due_holds, hold, make_key, nanos, new_group, new_key, open_account,
        open_account_with, spend, tick,
    },
};
#[cfg(test)]
use self::{
    money::{books, budgets, clocks, deposits, leases, margins, requests, spending},
    nouns::{accounts, alerts, claims, events, groups, keys, members, moving, rotation, standing, webhooks},
    steps::{digest, execute_one},
};
use crate::store::{EVENTS_KEPT, EventBounds, Store, StoreRetention};

/// Limits on events. Only the cases about these limits reach them.
pub const SUITE_EVENTS: EventBounds = EventBounds { life: EVENTS_KEPT, count: 1_000, bytes: 512 << 10 };

/// A store under test, empty at first.
#[allow(async_fn_in_trait, reason = "tests know the type of a subject")]
pub trait Subject: Sized {
    /// Opens an empty store.
    async fn new() -> Self;

    fn store(&self) -> &Arc<Store>;

    /// Writes a fault into records directly, without the ledger.
    async fn doctor(&self, account: AccountId, fault: Fault) {
        self.store().doctor(account, fault).await;
    }

    /// Is called in the middle of a case. A subject that tests restarts closes its store here and opens it again.
    async fn interrupt(&mut self) {}
}

/// Opens a store on top of these records, with the settings that the cases expect.
pub fn over(records: Arc<dyn Records>) -> Arc<Store> {
    Arc::new(Store::new(records, Arc::new(FrozenClock), StoreRetention::all(SUITE_EVENTS)))
}

/// A clock that stands still, so that calls are decided at the times that the cases give.
pub(crate) struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        START
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

/// Opens an empty store in memory.
pub fn in_maps() -> Arc<Store> {
    over(Arc::new(Maps::default()))
}

/// Lists the cases once for all backends. Cases about money run on every backend. Cases about nouns run only on maps,
/// SQLite in memory and a Redis Cluster. This is enough, because the store keeps nouns in the same way in each backend,
/// and the suite of `records` compares the backends.
#[cfg(test)]
macro_rules! contract {
    ($store:ident: $subject:ty) => {
        mod $store {
            contract! { @money $subject }
            contract! { @nouns $subject }
        }
    };
    ($store:ident: $subject:ty, money only) => {
        mod $store {
            contract! { @money $subject }
        }
    };
    (@money $subject:ty) => {
        contract! { @cases $subject:
            books::{
                entries_come_in_the_order_of_settlement,
                a_correction_is_an_entry_of_its_own,
                usage_is_counted_by_day_key_and_model,
                books_are_sound_at_every_moment,
                doctored_books_are_found,
                the_latest_entries_come_newest_first,
                entries_are_found_by_key_model_day_and_outcome,
                lists_by_time_have_each_bill_once_whatever_clocks_do,
                entries_of_a_key_and_of_a_group_are_found_behind_any_number_of_others,
                refused_calls_are_counted_by_key_hour_and_reason,
            }
            clocks::{
                lists_by_time_have_each_bill_once_after_clocks_were_days_ahead,
                a_window_set_while_bills_are_ahead_of_the_clock_counts_later_ones_alone,
            }
            requests::{
                a_bill_says_how_its_request_was_asked_for_and_went,
                the_last_refused_calls_are_kept_in_the_order_of_time,
                bills_of_upstreams_add_up_by_hour_and_those_of_the_day_before_are_dropped,
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
                a_wallet_is_paid_and_refunded_in_one_step_with_the_credit,
            }
            margins::{
                margins_are_those_of_the_journal,
                sums_of_a_key_are_whole_however_many_models_it_uses,
            }
            leases::{
                holds_are_due_when_the_ledger_has_counted_their_lease,
                an_extension_counts_from_the_tick_it_comes_at,
                of_many_ticks_at_once_one_counts,
                accounts_with_holds_are_listed,
                a_hold_opened_again_for_another_key_is_due_once,
                due_holds_are_read_page_by_page,
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
                a_capture_whose_bill_may_have_been_dropped_is_no_bill,
                a_capture_after_an_expiry_replaces_its_bill,
            }
        }

        #[test]
        fn random_histories_end_as_the_ledger_says() {
            super::spending::random_histories_end_as_the_ledger_says::<$subject>();
        }
    };
    (@nouns $subject:ty) => {
        contract! { @cases $subject:
            accounts::{
                a_name_is_taken_once,
                an_account_is_found_by_its_name,
                accounts_are_listed_oldest_first_with_their_money_and_keys,
                the_operators_are_no_account_of_the_list_and_their_name_is_free,
                an_account_that_an_operator_makes_begins_with_an_event,
                a_credential_is_found_for_good,
                the_record_of_peppers_is_replaced_by_one_of_several_writers,
                management_keys_are_listed_oldest_first_each_with_its_account,
                a_management_key_that_is_not_made_leaves_no_owner_behind,
                a_management_key_comes_back_with_its_rights,
                a_use_of_a_management_key_is_recorded_once_a_minute,
                a_management_key_is_revoked_once,
                an_account_has_no_more_management_keys_than_it_may,
                what_belongs_to_no_account_is_refused,
            }
            claims::{
                an_external_id_makes_one_account_however_many_ask_at_once,
                a_call_that_dies_is_finished_by_whoever_repeats_it,
                a_taken_name_leaves_the_external_id_for_a_call_with_another_one,
                an_account_takes_one_external_id_that_no_other_has,
                a_refused_change_claims_no_external_id,
            }
            standing::{
                a_suspension_holds_from_its_answer_on_and_each_change_leaves_one_event,
                an_account_with_a_standing_is_refused_by_programs_that_do_not_know_of_it,
                an_account_with_money_is_not_closed,
            }
            events::{
                each_act_leaves_one_event_and_a_repetition_none,
                an_act_that_changes_nothing_or_is_refused_leaves_no_event,
                events_are_found_by_type_key_and_group_page_by_page,
                a_keys_and_a_groups_events_are_found_until_they_end,
                a_bound_that_is_lowered_tells_what_it_passes_once_with_the_act,
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
                another_role_is_told_and_the_same_one_is_not,
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
            alerts::{
                alerts_are_listed_oldest_first_changed_and_leave_nothing_behind,
                an_alert_is_raised_once_by_those_who_read_it_at_the_same_time,
                an_alert_of_a_suspended_account_is_not_raised,
                the_messages_of_an_alert_that_wait_are_bounded,
                an_account_tests_one_alert_a_minute_even_if_it_makes_it_anew,
            }
            keys::{
                a_key_comes_back_as_it_was_made,
                an_account_has_no_more_keys_than_it_may,
                keys_are_listed_in_the_order_of_their_ids,
                a_cursor_need_not_exist,
                keys_of_a_status_are_listed_as_of_now,
                a_disabled_key_is_listed_as_such_until_it_is_enabled_again,
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
        }
    };
    (@cases $subject:ty: $($module:ident::{$($case:ident),+ $(,)?})+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$module::$case(&mut <$subject as crate::suite::Subject>::new().await).await;
            }
        )+)+
    };
}

#[cfg(test)]
contract!(in_maps: super::subjects::InMaps);
#[cfg(test)]
contract!(sqlite: super::subjects::InFile, money only);
#[cfg(test)]
contract!(sqlite_in_memory: super::subjects::InMemory);
#[cfg(test)]
contract!(sqlite_reopened: super::subjects::Reopened, money only);
#[cfg(test)]
contract!(redis: super::in_redis::InRedis, money only);
#[cfg(test)]
contract!(redis_killed: super::in_redis::Killed, money only);
#[cfg(test)]
contract!(redis_cluster: super::in_redis::InCluster);
