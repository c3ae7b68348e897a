//! Tests thresholds of limits and credit: each is reported once, by the bill or the change of bounds that crosses it.

use shared::calendar::Per;

use super::*;
use crate::event::{MoneyBound, Threshold};

impl Book {
    fn bill(&mut self, n: u8, cost: i64) {
        self.hold(n, 1, cost, cost).unwrap();
        let total =
            Progress { usage: Usage::default(), cost: nanos(cost), upstream_cost: None, course: None };
        self.capture(n, total);
    }

    /// Returns types, percentages and used amounts of the thresholds reported so far.
    fn told(&self) -> Vec<(&'static str, u8, i64)> {
        let events = self.world.events[&account(MINE)].iter().map(|told| &told.event.kind);
        let line =
            |kind: &'static str, threshold: &Threshold| (kind, threshold.percent, threshold.used.nanos());
        events.filter_map(|kind| kind.threshold().map(|threshold| line(kind.as_str(), threshold))).collect()
    }
}

#[test]
fn each_part_of_a_limit_is_told_by_the_bill_that_reaches_it() {
    let mut book = Book::new(100_000, Some(101));
    let reached = "key.threshold_reached";
    book.bill(1, 50);
    assert_eq!(book.told(), []);
    book.bill(2, 1);
    assert_eq!(book.told(), [(reached, 50, 51)]);
    book.bill(3, 29);
    book.bill(4, 21);
    let all = [(reached, 50, 51), (reached, 80, 101), (reached, 95, 101), ("key.limit_reached", 100, 101)];
    assert_eq!(book.told(), all);
    book.hold(5, 1, 1, 1).unwrap_err();
    assert_eq!(book.told(), all, "a refusal does not report a limit again");
    book.set_limit(Some(202));
    book.bill(6, 1);
    assert_eq!(book.told().len(), all.len(), "half of the raised limit was already used");
    book.bill(7, 100);
    assert_eq!(book.told()[4..], [(reached, 80, 202), (reached, 95, 202), ("key.limit_reached", 100, 202)]);
}

#[test]
fn a_hold_that_a_limit_refuses_tells_the_limit_once() {
    let mut book = Book::new(100_000, Some(100));
    book.bill(1, 40);
    for n in 2..4 {
        book.hold(n, 61, 61, 61).unwrap_err();
    }
    assert_eq!(book.told(), [("key.limit_reached", 100, 40)]);
}

#[test]
fn the_credit_is_told_by_parts_of_the_last_deposit_s_balance() {
    let mut book = Book::new(1_000, None);
    book.bill(1, 799);
    assert_eq!(book.told(), []);
    book.bill(2, 1);
    book.bill(3, 150);
    let low = "credit.threshold_reached";
    assert_eq!(book.told(), [(low, 20, 800), (low, 5, 950)]);
    book.hold(4, 51, 51, 51).unwrap_err();
    book.bill(5, 50);
    assert_eq!(book.told()[2..], [("credit.exhausted", 0, 950)]);
    book.now = book.now.plus(Duration::from_secs(1));
    book.run(&Command::Deposit {
        id: deposit(1),
        amount: nanos(1_000),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    })
    .unwrap();
    book.bill(6, 1_000);
    assert_eq!(book.told()[3..], [(low, 20, 1_000), (low, 5, 1_000), ("credit.exhausted", 0, 1_000)]);
}

/// Returns limit, percentage and amount of the thresholds that a change of bounds crosses.
fn passed(before: Option<&Budget>, after: &Budget) -> Vec<(MoneyBound, u8, i64)> {
    let told = passed_by_bounds(Holder::Group(group(1)), before, after, START);
    let line = |told: &Told| {
        let Threshold { bound, percent, amount, .. } = *told.event.kind.threshold().unwrap();
        (bound, percent, amount.nanos())
    };
    told.iter().map(line).collect()
}

#[test]
fn a_bound_that_is_set_or_lowered_tells_the_thresholds_that_it_passes() {
    let window = |amount, used| Window {
        per: Per::Day,
        amount: nanos(amount),
        raised: None,
        start: START,
        used: nanos(used),
    };
    let budget = |limit: Option<i64>, used, window: Option<Window>| {
        let bounds = Bounds { windows: window.into_iter().collect(), ..Bounds::default() };
        let bounds = (bounds != Bounds::default()).then(|| Box::new(bounds));
        Budget { limit: limit.map(nanos), used: nanos(used), bounds, ..Budget::default() }
    };
    let (limit, day) = (MoneyBound::Limit, MoneyBound::Day);
    let of = |amount, used| budget(Some(amount), used, None);
    let cases = [
        ("set", Some(budget(None, 80, None)), of(100, 80), vec![(limit, 50, 100), (limit, 80, 100)]),
        ("lowered", Some(of(150, 80)), of(100, 80), vec![(limit, 80, 100)]),
        ("lowered to the use", Some(of(100, 80)), of(80, 80), vec![(limit, 95, 80), (limit, 100, 80)]),
        ("lowered while all is used", Some(of(80, 80)), of(40, 80), vec![]),
        ("raised", Some(of(80, 80)), of(100, 80), vec![]),
        ("left as it is", Some(of(100, 80)), of(100, 80), vec![]),
        ("removed", Some(of(100, 80)), budget(None, 80, None), vec![]),
        ("set to nothing, unused", Some(of(100, 0)), of(0, 0), vec![]),
        ("made with use", None, of(100, 50), vec![(limit, 50, 100)]),
        ("of a window", Some(budget(None, 9, Some(window(100, 9)))), budget(None, 9, Some(window(10, 9))), {
            vec![(day, 50, 10), (day, 80, 10)]
        }),
        ("of a new window", Some(budget(None, 9, None)), budget(None, 9, Some(window(1, 0))), vec![]),
    ];
    for (name, before, after, expected) in cases {
        assert_eq!(passed(before.as_ref(), &after), expected, "{name}");
    }
    let (before, after) = (budget(None, 9, Some(window(100, 9))), budget(None, 9, Some(window(10, 9))));
    let tomorrow = passed_by_bounds(Holder::Group(group(1)), Some(&before), &after, Per::Day.end(START));
    assert_eq!(tomorrow, [], "yesterday's use crosses no threshold today");
}
