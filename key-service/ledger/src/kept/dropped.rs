//! Records which sets of an account housekeeping has dropped.

use std::time::Duration;

use domain::usage::Day;
use shared::ids::{AccountId, GenerationId};

use crate::{names, stored::House};

/// An account may have sets from this long before its creation, since clocks differ.
const CLOCKS_DIFFER: Duration = Duration::from_mins(10);

/// Creates the record for a new account: the account has no set older than itself, unless a clock is slow.
pub fn begin(account: AccountId) -> House {
    let created_at = account.created_at().minus(CLOCKS_DIFFER);
    let day = names::day_part(Day::of(created_at));
    let generations = names::part(created_at, names::TEN_MINUTES);
    House { generations, held: Vec::new(), expired: day, sums: day, journal: 0 }
}

/// Returns whether a set was dropped that may have contained this generation's bill.
pub(crate) fn may_have_dropped(house: &House, account: AccountId, generation: GenerationId) -> bool {
    let (began, created_at) = (begin(account), generation.created_at());
    let part = names::part(created_at, names::TEN_MINUTES);
    let is_held = house.held.iter().any(|held| held.part == part);
    (began.generations..house.generations).contains(&part) && !is_held
        || (began.expired..house.expired).contains(&names::day_part(Day::of(created_at)))
}
