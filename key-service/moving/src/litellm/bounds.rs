//! Converts LiteLLM's budgets and rates to limits.

use serde_json::Value;
use shared::{
    calendar::Per,
    money::NanoUsd,
    text::is_control,
    wire::{Limit, MAX_LIMIT, MAX_MODEL_CHARS, MAX_MODELS, MAX_RATE},
};

use super::{
    super::values::{self, Row, RowFault},
    fields::RowFields,
};
use domain::ledger::BoundsPatch;

/// Table with the budgets that keys refer to.
pub(super) const BUDGETS: &str = "LiteLLM_BudgetTable";
/// Length of each window in seconds. A month counts as thirty days.
const WINDOWS: [(Per, u64); 4] =
    [(Per::Hour, 3_600), (Per::Day, 86_400), (Per::Week, 604_800), (Per::Month, 2_592_000)];
/// Names that stand for all models.
const ALL_MODELS: [&str; 3] = ["all-proxy-models", "all-team-models", "*"];

impl RowFields<'_> {
    /// Reads the limits of a key or a team. Values that the row does not set are taken from the budget to which a key
    /// refers.
    pub(super) fn bounds(&mut self, budget: Option<&Row>) -> Result<BoundsPatch, RowFault> {
        let mut bounds = BoundsPatch { models: self.models()?.map(Some), ..BoundsPatch::default() };
        self.money(&mut bounds, budget)?;
        let rates = [
            ("tpm_limit", "tokens_per_minute", &mut bounds.tokens_per_minute),
            ("rpm_limit", "requests_per_minute", &mut bounds.requests_per_minute),
            ("max_parallel_requests", "max_in_flight", &mut bounds.max_in_flight),
        ];
        let mut allows_nothing = false;
        for (column, name, bound) in rates {
            let Some((table, most)) = self.first(column, budget, values::count)? else { continue };
            if most == 0 {
                allows_nothing = true;
                self.of(table, column, "limit 0: it allowed nothing");
            } else {
                *bound = Some(Some(most.min(MAX_RATE)));
                self.of(table, column, name);
            }
        }
        if allows_nothing {
            bounds.limit = Some(Some(NanoUsd::ZERO));
        }
        Ok(bounds)
    }

    fn money(&mut self, bounds: &mut BoundsPatch, budget: Option<&Row>) -> Result<(), RowFault> {
        let amount = self.first("max_budget", budget, values::amount)?;
        let duration = self.first("budget_duration", budget, values::text)?;
        let mut windows: Vec<(Per, NanoUsd)> = Vec::new();
        match (amount, duration) {
            (None, None) => {}
            (None, Some((table, _))) => self.of(table, "budget_duration", "dropped: there is no max_budget"),
            (Some((table, amount)), None) => {
                self.of(table, "max_budget", format!("limit{}", capped(amount)));
                bounds.limit = Some(Some(amount.min(MAX_LIMIT)));
            }
            (Some((table, amount)), Some((of_duration, duration))) => {
                let per = nearest(&duration)?;
                self.of(table, "max_budget", format!("limits per {}{}", per.as_str(), capped(amount)));
                self.of(of_duration, "budget_duration", format!("{duration} becomes per {}", per.as_str()));
                windows.push((per, amount.min(MAX_LIMIT)));
            }
        }
        for (per, amount) in self.budget_limits()? {
            // If two limits have the same window, the smaller one applies.
            match windows.iter_mut().find(|(other, _)| *other == per) {
                Some((_, before)) => *before = amount.min(*before),
                None => windows.push((per, amount.min(MAX_LIMIT))),
            }
        }
        windows.sort_by_key(|(per, _)| *per);
        let windows: Vec<_> = windows.into_iter().map(|(per, amount)| Limit::new(amount, per)).collect();
        bounds.windows = Some(windows).filter(|windows| !windows.is_empty());
        Ok(())
    }

    /// Reads the limits for several windows.
    fn budget_limits(&mut self) -> Result<Vec<(Per, NanoUsd)>, RowFault> {
        let fault = || "`budget_limits` is not a list of budget_duration and max_budget".to_owned();
        let limits = match self.take("budget_limits", values::json)? {
            Value::Null => return Ok(Vec::new()),
            Value::Array(limits) => limits,
            Value::Object(limits) if limits.is_empty() => return Ok(Vec::new()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => return Err(fault()),
        };
        let limit = |limit: &Value| {
            let member = |name| limit.get(name).unwrap_or(&Value::Null);
            let amount = values::amount(member("max_budget")).ok().flatten();
            let duration = values::text(member("budget_duration")).ok().flatten();
            let (amount, duration) = amount.zip(duration).ok_or_else(fault)?;
            let per = nearest(&duration)?;
            self.became("budget_limits", format!("{duration} becomes limits per {}", per.as_str()));
            Ok((per, amount))
        };
        limits.iter().map(limit).collect()
    }

    /// Returns the value in the row or, if the row has none, the value in its budget, with the name of the table that
    /// has it.
    fn first<T>(
        &mut self,
        column: &str,
        budget: Option<&Row>,
        read: fn(&Value) -> Result<Option<T>, RowFault>,
    ) -> Result<Option<(&'static str, T)>, RowFault> {
        let own = self.take(column, read)?;
        let of_budget = || match budget.and_then(|budget| budget.get(column)) {
            Some(value) if own.is_none() => {
                read(value).map_err(|fault| format!("`{column}` of its budget {fault}"))
            }
            Some(_) | None => Ok(None),
        };
        let of_budget = of_budget()?;
        Ok(own.map(|own| (self.table, own)).or(of_budget.map(|value| (BUDGETS, value))))
    }

    /// Returns the allowed models. Unknown names stay in the list, so that the list never allows more than before.
    fn models(&mut self) -> Result<Option<Vec<String>>, RowFault> {
        let mut models = self.take("models", values::list)?;
        if models.is_empty() {
            return Ok(None);
        }
        if models.iter().any(|model| ALL_MODELS.contains(&model.as_str())) {
            self.became("models", "all models, as in the list");
            return Ok(None);
        }
        models.sort();
        models.dedup();
        if models.len() > MAX_MODELS {
            return Err(format!("`models` has {} ids; the maximum is {MAX_MODELS}", models.len()));
        }
        let is_id = |model: &String| {
            (1..=MAX_MODEL_CHARS).contains(&model.chars().count()) && !model.chars().any(is_control)
        };
        if !models.iter().all(is_id) {
            return Err(format!(
                "`models` has an id that is empty, has control characters, or is longer than {MAX_MODEL_CHARS} \
                 characters"
            ));
        }
        self.became("models", "models");
        if models.iter().any(|model| model.contains('*')) {
            self.became("models", "wildcards do not work here: name each model");
        }
        Ok(Some(models))
    }
}

/// Returns a remark if an amount is above the highest possible limit; otherwise an empty text.
fn capped(amount: NanoUsd) -> String {
    if amount > MAX_LIMIT { format!(", cut to {MAX_LIMIT} USD") } else { String::new() }
}

/// Returns the window whose length is closest to this duration, judged by the ratio of the two.
fn nearest(duration: &str) -> Result<Per, RowFault> {
    let fault = || {
        format!(
            "`budget_duration` is `{}`, which is not a duration such as 30d",
            duration.chars().take(20).collect::<String>()
        )
    };
    let digits = duration.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = duration.split_at(digits);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 604_800,
        "mo" => 2_592_000,
        _ => return Err(fault()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(fault)?;
    let square = u128::from(seconds) * u128::from(seconds);
    let is_nearer = |pair: &&[(Per, u64)]| square < u128::from(pair[0].1) * u128::from(pair[1].1);
    Ok(WINDOWS.windows(2).find(is_nearer).map_or(Per::Month, |pair| pair[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_becomes_the_nearest_window() {
        let cases = [
            ("30s", Per::Hour),
            ("45m", Per::Hour),
            ("1h", Per::Hour),
            ("4h", Per::Hour),
            ("5h", Per::Day),
            ("24h", Per::Day),
            ("1d", Per::Day),
            ("2d", Per::Day),
            ("3d", Per::Week),
            ("7d", Per::Week),
            ("1w", Per::Week),
            ("14d", Per::Week),
            ("15d", Per::Month),
            ("30d", Per::Month),
            ("1mo", Per::Month),
            ("365d", Per::Month),
        ];
        for (duration, per) in cases {
            assert_eq!(nearest(duration), Ok(per), "{duration}");
        }
        for bad in ["", "d", "30", "30y", "-1d", "99999999999999999999d", "18446744073709551615w"] {
            assert!(nearest(bad).is_err(), "{bad}");
        }
    }
}
