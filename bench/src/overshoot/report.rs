//! Outcomes as a table.

use super::{
    outcome::Outcome,
    setting::{Gateway, Tenant},
};

impl Gateway {
    const fn words(self) -> &'static str {
        match self {
            Self::Faregate => "Faregate",
            Self::Litellm => "LiteLLM 1.108.7",
        }
    }
}

impl Tenant {
    fn overshoot(&self) -> i64 {
        (self.generated - self.cut - self.cap).max(0)
    }

    fn overshoot_with_cut(&self) -> i64 {
        (self.generated - self.cap).max(0)
    }

    /// Returns the share of the cap that was used, at most 1.
    fn usable(&self) -> f64 {
        ratio(self.generated, self.cap).min(1.0)
    }
}

/// Formats an amount of nano-USD in dollars.
fn dollars(nanos: i64) -> String {
    format!("${:.6}", ratio(nanos, 1_000_000_000))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "six digits are shown")]
fn ratio(part: i64, whole: i64) -> f64 {
    part as f64 / whole as f64
}

/// Returns a table with one line for each run.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut table = "| system | kills | caps | generated | overshoot, whole answers | with cut ones | worst tenant | tenants over | least, mean \
                     use of a cap | answers whole, cut | refused, failed | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Outcome { gateway, kills, tenants, answers, lasted } in outcomes {
        let sum = |of: fn(&Tenant) -> i64| tenants.iter().map(of).sum::<i64>();
        let worst =
            tenants.iter().map(|tenant| ratio(tenant.overshoot_with_cut(), tenant.cap)).fold(0.0, f64::max);
        let over = tenants.iter().filter(|tenant| tenant.overshoot_with_cut() > 0).count();
        let least = tenants.iter().map(Tenant::usable).fold(1.0, f64::min);
        let mean = tenants.iter().map(Tenant::usable).sum::<f64>()
            / f64::from(u32::try_from(tenants.len()).expect("they are few"));
        let line = format!(
            "| {} | {kills} | {} | {} | {} | {} | {} | {over} of {} | {}, {} | {}, {} | {}, {} | {:.0} |\n",
            gateway.words(),
            dollars(sum(|tenant| tenant.cap)),
            dollars(sum(|tenant| tenant.generated)),
            dollars(sum(Tenant::overshoot)),
            dollars(sum(Tenant::overshoot_with_cut)),
            percent(worst),
            tenants.len(),
            percent(least),
            percent(mean),
            answers.whole,
            answers.cut,
            answers.refused,
            answers.failed,
            lasted.as_secs_f64(),
        );
        table.push_str(&line);
    }
    table
}
