//! A statement of an account's money over a month.

use std::collections::BTreeMap;

use shared::{calendar::Per, ids::AccountId, money::NanoUsd, time::Timestamp};

use crate::{
    management::Management,
    reports::{spend::Spend, usage::MAX_DEPOSITS},
};
use domain::usage::{Day, Sums};
use key_service_store::store::{Deposit, StoreError};

/// Maximum number of readings while the money keeps changing. After that, a busy account is shown as last read.
const READINGS: usize = 5;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A calendar month in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Month {
    pub first: Day,
    pub last: Day,
}

/// An account's money over a month.
#[derive(Debug)]
pub struct Statement {
    /// Credit at the start of the month.
    pub opening: NanoUsd,
    pub deposits: Vec<Deposit>,
    pub models: BTreeMap<String, Sums>,
    pub charged: NanoUsd,
    /// Credit at the end of the month, or now.
    pub closing: NanoUsd,
}

impl Month {
    /// Returns the month that contains a day.
    pub fn of(day: Day) -> Self {
        let at = Timestamp::from_millis(day.millis().0);
        Self { first: Day::of(Per::Month.beginning(at)), last: Day::of(Per::Month.end(at)).plus(-1) }
    }

    /// Parses a month such as `2026-11`.
    pub fn parse(text: &str) -> Option<Self> {
        Day::parse(&format!("{text}-01")).map(Self::of)
    }

    /// Returns the month as text such as `2026-11`.
    pub fn name(self) -> String {
        self.first.to_string().chars().take(7).collect()
    }

    /// Returns the month in words, such as `November 2026`.
    pub fn title(self) -> String {
        let name = self.name();
        let (year, number) = name.split_once('-').unwrap_or((&name, ""));
        let month = number.parse().ok().and_then(|number: usize| MONTHS.get(number.checked_sub(1)?));
        format!("{} {year}", month.copied().unwrap_or_default())
    }

    #[must_use]
    pub fn before(self) -> Self {
        Self::of(self.first.plus(-1))
    }
}

/// An account's money, read in several steps.
struct MoneyReading {
    credit: NanoUsd,
    deposits: Vec<Deposit>,
    spend: Spend,
}

impl Management {
    /// Returns whether the store still has the counters for all days since the month began.
    pub fn has_counters_of(&self, month: Month) -> bool {
        let age = self.today().number() - month.first.number();
        self.store.counters_kept().is_none_or(|days| age <= i64::from(days))
    }

    /// Returns the statement of a month whose counters still exist.
    pub async fn statement(&self, account: AccountId, month: Month) -> Result<Statement, StoreError> {
        let (mut readings, mut read) = (0, self.read_money(account, month).await?);
        // A charge between reading the credit and the counters would be missing from one of the two.
        while readings < READINGS {
            let again = self.read_money(account, month).await?;
            let is_stable = again.credit == read.credit;
            read = again;
            if is_stable {
                break;
            }
            readings += 1;
        }
        Ok(state(month, read))
    }

    async fn read_money(&self, account: AccountId, month: Month) -> Result<MoneyReading, StoreError> {
        let deposits = self.store.deposits(account, MAX_DEPOSITS).await?;
        let spend = self.spend(account, month.first..=self.today().max(month.first)).await?;
        let funds = self.store.funds(account).await?.ok_or_else(|| StoreError::no_account(account))?;
        Ok(MoneyReading { credit: funds.credit, deposits, spend })
    }
}

/// Calculates the credit at the start and end of the month, backwards from the current credit.
fn state(month: Month, read: MoneyReading) -> Statement {
    let MoneyReading { credit, mut deposits, spend } = read;
    let day = |deposit: &Deposit| Day::of(deposit.at());
    let sum = |amounts: &mut dyn Iterator<Item = NanoUsd>| {
        amounts.map(|amount| i128::from(amount.nanos())).sum::<i128>()
    };
    let of_days = |first: Day, last: Day| {
        let days = spend.iter().filter(move |(day, _)| (first..=last).contains(*day));
        days.flat_map(|(_, models)| models.values().map(|sums| sums.charged))
    };
    let later = sum(&mut of_days(month.last.plus(1), Day::from_number(i64::MAX)));
    let deposited_later =
        sum(&mut deposits.iter().filter(|it| day(it) > month.last).map(|it| it.deposited.amount));
    deposits.retain(|deposit| (month.first..=month.last).contains(&day(deposit)));
    deposits.reverse();
    let charged = sum(&mut of_days(month.first, month.last));
    let deposited = sum(&mut deposits.iter().map(|deposit| deposit.deposited.amount));
    let closing = i128::from(credit.nanos()) - deposited_later + later;
    let mut models: BTreeMap<String, Sums> = BTreeMap::new();
    for (model, sums) in spend.range(month.first..=month.last).flat_map(|(_, models)| models) {
        let all = models.entry(model.clone()).or_default();
        *all = all.plus(*sums);
    }
    let money = |nanos: i128| NanoUsd::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX));
    Statement {
        opening: money(closing - deposited + charged),
        deposits,
        models,
        charged: money(charged),
        closing: money(closing),
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::DepositId;

    use super::*;
    use domain::ledger::Deposited;

    #[test]
    fn a_statement_leads_from_the_credit_before_to_the_credit_after() {
        let month = Month::parse("2026-02").unwrap();
        assert_eq!((month.last.to_string(), month.before().name()), ("2026-02-28".into(), "2026-01".into()));
        assert_eq!(Month::parse("2026-13"), None);
        let at = |day: Day| Timestamp::from_millis(day.millis().0 + 1);
        let deposit = |day: Day, usd| Deposit {
            id: DepositId::new(at(day), [1; 10]),
            deposited: Deposited {
                amount: NanoUsd::from_usd(usd),
                credit: None,
                note: String::new(),
                payment: None,
                wallet: None,
                refund: None,
            },
        };
        let charge = |usd| {
            BTreeMap::from([(
                "Model".to_owned(),
                Sums { requests: 1, tokens: 2, charged: NanoUsd::from_usd(usd) },
            )])
        };
        let spend =
            Spend::from([(month.first, charge(1)), (month.last, charge(2)), (month.last.plus(1), charge(4))]);
        let deposits =
            vec![deposit(month.last.plus(3), 8), deposit(month.last, 16), deposit(month.first.plus(-1), 32)];
        let stated = state(month, MoneyReading { credit: NanoUsd::from_usd(100), deposits, spend });
        // The credit is now 100: after the month, 8 were deposited and 4 charged.
        assert_eq!(stated.closing, NanoUsd::from_usd(96));
        assert_eq!((stated.charged, stated.deposits.len()), (NanoUsd::from_usd(3), 1));
        assert_eq!(
            stated.opening,
            NanoUsd::from_usd(83),
            "96 without the 16 that came, with the 3 that went"
        );
        assert_eq!(stated.models["Model"].requests, 2);
    }
}
