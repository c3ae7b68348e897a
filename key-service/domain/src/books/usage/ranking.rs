//! Ranks the parts of a sum by size.

use std::collections::BTreeMap;

use crate::books::usage::counts::Sums;

/// Adds up the sums of each part. Returns the parts with their sums, largest first; equal parts stay in order of `P`.
pub fn ranked<P: Ord>(
    sums: impl IntoIterator<Item = (P, Sums)>,
    size: impl Fn(Sums) -> i64,
) -> Vec<(P, Sums)> {
    let mut parts: BTreeMap<P, Sums> = BTreeMap::new();
    for (part, sums) in sums {
        let of_part = parts.entry(part).or_default();
        *of_part = of_part.plus(sums);
    }
    let mut parts: Vec<(P, Sums)> = parts.into_iter().collect();
    parts.sort_by_key(|(_, sums)| std::cmp::Reverse(size(*sums)));
    parts
}

/// Returns a part in thousandths of the whole; `None` if the whole is not above zero.
pub fn permille(part: i64, whole: i64) -> Option<i64> {
    let permille = (whole > 0).then(|| i128::from(part) * 1_000 / i128::from(whole))?;
    Some(i64::try_from(permille).unwrap_or(if part < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use shared::money::NanoUsd;

    use super::*;

    fn sums(charged: i64, requests: u64) -> Sums {
        Sums { requests, charged: NanoUsd::from_nanos(charged), ..Sums::default() }
    }

    #[test]
    fn parts_are_ranked_by_all_of_their_sums_and_equal_ones_in_their_order() {
        let of_days =
            [("c", sums(6, 1)), ("b", sums(4, 9)), ("a", sums(7, 1)), ("b", sums(4, 1)), ("d", sums(6, 2))];
        let by_charge = ranked(of_days, |sums| sums.charged.nanos());
        assert_eq!(by_charge, [("b", sums(8, 10)), ("a", sums(7, 1)), ("c", sums(6, 1)), ("d", sums(6, 2))]);
        let by_requests = ranked(of_days, |sums| sums.requests.cast_signed());
        assert_eq!(by_requests.iter().map(|(part, _)| *part).collect::<String>(), "bdac");
    }

    #[test]
    fn a_part_of_nothing_has_no_share() {
        assert_eq!((permille(1, 3), permille(0, 5), permille(-1, 4)), (Some(333), Some(0), Some(-250)));
        assert_eq!((permille(5, 0), permille(5, -1)), (None, None));
        assert_eq!(permille(i64::MAX, 1), Some(i64::MAX));
    }
}
