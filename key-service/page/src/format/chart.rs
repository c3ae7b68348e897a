//! A bar chart of amounts by day or by hour, with the same figures in a table.

use std::{collections::BTreeMap, ops::RangeInclusive};

use maud::{Markup, html};
use shared::money::NanoUsd;

use super::show::{aligned, count, glance, scrolled_figures, short_count, usd};
use domain::usage::{Day, HOURS, Hour, Sums};
use key_service_management::spend::ChartStep;

/// Number of colours that the style sheet has for series. Colour-blind readers can tell them apart too. There is one
/// more colour for "others".
const COLOURS: usize = 7;
/// Height of the picture in pixels. The style sheet contains the same height.
const HEIGHT: i64 = 160;
/// Number of grid lines above zero.
const LINES: i64 = 3;
/// Round distances between grid lines, in tenths of a power of ten.
const STEPS: [i64; 8] = [10, 15, 20, 25, 30, 40, 50, 75];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Scales an amount by the factor that turns `whole` into `most`, without floats.
pub fn scaled(amount: NanoUsd, whole: NanoUsd, most: i64) -> i64 {
    share(amount.nanos(), whole.nanos(), most)
}

fn share(part: i64, whole: i64, most: i64) -> i64 {
    let (part, whole) = (i128::from(part.max(0)), i128::from(whole.max(1)));
    i64::try_from((part * i128::from(most) / whole).min(i128::from(most))).unwrap_or(most)
}

/// What a chart shows: charges in nano-USD, requests, or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Spend,
    Requests,
    /// Prompt and output tokens together.
    Tokens,
}

impl Measure {
    /// Every measure; the first is the default.
    pub const ALL: [Self; 3] = [Self::Spend, Self::Requests, Self::Tokens];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Spend => "Spend",
            Self::Requests => "Requests",
            Self::Tokens => "Tokens",
        }
    }

    pub fn of(self, sums: Sums) -> i64 {
        match self {
            Self::Spend => sums.charged.nanos(),
            Self::Requests => sums.requests.cast_signed(),
            Self::Tokens => sums.tokens.cast_signed(),
        }
    }

    /// Renders an amount in a short form, with the exact number in the tooltip.
    pub fn glance(self, amount: i64) -> Markup {
        match self {
            Self::Spend => glance(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => {
                html! { span.usd title=(count(amount.unsigned_abs())) { (short_count(amount.unsigned_abs())) } }
            }
        }
    }

    /// Renders an amount for a column of a table.
    pub fn aligned(self, amount: i64) -> Markup {
        match self {
            Self::Spend => aligned(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => html! { (count(amount.unsigned_abs())) },
        }
    }

    /// Writes an amount within a sentence.
    fn label(self, amount: i64) -> String {
        match self {
            Self::Spend => usd(NanoUsd::from_nanos(amount)),
            Self::Requests | Self::Tokens => short_count(amount.unsigned_abs()),
        }
    }

    /// Returns the labels of the grid lines, from the top down to zero. All have the same number of decimals.
    fn scale(self, step: i64) -> Vec<String> {
        let lines = (0..=LINES).rev().map(|line| self.label(step.saturating_mul(line)));
        let mut labels: Vec<String> = lines.collect();
        if self == Self::Spend {
            let decimals = |label: &String| label.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let most = labels.iter().map(decimals).max().unwrap_or_default();
            for label in &mut labels {
                label.extend(std::iter::repeat_n('0', most - decimals(label)));
            }
        }
        labels
    }
}

/// A series of a chart: the sums of one model, key, group or user.
pub struct Series {
    pub name: Markup,
    /// Number that decides the colour, so that the colour is the same on every page. For a model, it is the position in
    /// the catalogue; for other parts, it is derived from the id or the name. `None` for models that are no longer in
    /// the catalogue, and for sums of several parts.
    pub place: Option<usize>,
    /// Whether this series is the sum of all small series.
    pub is_rest: bool,
    pub times: BTreeMap<Hour, Sums>,
}

impl Series {
    pub fn total(&self) -> Sums {
        self.times.values().fold(Sums::default(), |all, sums| all.plus(*sums))
    }
}

pub struct Chart<'a> {
    pub measure: Measure,
    /// Days on the axis, including days without spend.
    pub days: RangeInclusive<Day>,
    /// Whether each bar stands for a day or for an hour.
    pub step: ChartStep,
    /// Name of the time zone of the days.
    pub zone: &'a str,
    /// The series, which are stacked in each bar from the bottom up.
    pub series: &'a [Series],
    /// Address of the list of requests that the chart adds up. Each bar links to the requests of its day or hour.
    pub requests: &'a str,
}

impl Chart<'_> {
    /// Lists the times of the bars. The time of a day is its first hour.
    fn times(&self) -> impl DoubleEndedIterator<Item = Hour> + use<> {
        let hours = match self.step {
            ChartStep::Day => 1,
            ChartStep::Hour => HOURS,
        };
        let days = (self.days.start().number()..=self.days.end().number()).map(Day::from_number);
        days.flat_map(move |day| (0..hours).map(move |hour| Hour::in_day(day, hour)))
    }

    fn on(&self, series: &Series, time: Hour) -> i64 {
        self.measure.of(series.times.get(&time).copied().unwrap_or_default())
    }

    fn total(&self, time: Hour) -> i64 {
        self.series.iter().fold(0, |sum: i64, series| sum.saturating_add(self.on(series, time)))
    }

    const fn unit(&self) -> &'static str {
        match self.step {
            ChartStep::Day => "day",
            ChartStep::Hour => "hour",
        }
    }

    fn name(&self, time: Hour) -> String {
        match self.step {
            ChartStep::Day => time.day().to_string(),
            ChartStep::Hour => clock(time),
        }
    }

    /// Renders the chart, with its table below.
    pub fn markup(&self) -> Markup {
        let (measure, count) = (self.measure, self.times().count());
        let most = self.times().map(|time| self.total(time)).max().unwrap_or_default();
        if most <= 0 {
            return html! { p.empty { "No requests were billed " (words(&self.days)) "." } };
        }
        let (step, colours, unit) = (step(most), colours(self.series), self.unit());
        let says = format!(
            "{} by {unit}, at most {}; the table has the amounts",
            measure.title(),
            measure.label(most)
        );
        html! {
            figure.chart {
                div.plot {
                    div.axis aria-hidden="true" {
                        @for label in measure.scale(step) { span { (label) } }
                    }
                    svg role="img" aria-label=(says) {
                        @for line in 0..=LINES {
                            @let y = HEIGHT - line * HEIGHT / LINES;
                            line x1="0" y1=(y) x2="100%" y2=(y) {}
                        }
                        @for (at, time) in self.times().enumerate() {
                            (self.column(time, at, count, &self.bars(time, step.saturating_mul(LINES), &colours)))
                        }
                    }
                    // These links are only for the pointer. For keyboards and screen readers, the table has the same
                    // links.
                    div.days aria-hidden="true" {
                        @for time in self.times() { a href=(self.requests_of(time)) tabindex="-1" {} }
                    }
                    p.box hidden {}
                }
                ul.legend {
                    @for (series, colour) in self.series.iter().zip(&colours) {
                        li { i class={ "c" (colour) } {} (series.name) " " strong { (measure.glance(measure.of(series.total()))) } }
                    }
                }
                (self.table())
            }
        }
    }

    fn requests_of(&self, time: Hour) -> String {
        let (sign, day) = (if self.requests.contains('?') { '&' } else { '?' }, time.day());
        let address = format!("{}{sign}from={day}&to={day}", self.requests);
        match self.step {
            ChartStep::Day => address,
            ChartStep::Hour => format!("{address}&hour={}", time.of_day()),
        }
    }

    /// Draws bar number `at` of `count`. `bars` has the colour and the height of each series in it.
    fn column(&self, time: Hour, at: usize, count: usize, bars: &[(usize, i64)]) -> Markup {
        let mut y = HEIGHT;
        let (dated, text) = match self.step {
            ChartStep::Day => (dated(time.day(), at, count), short(time.day())),
            ChartStep::Hour => (timed(time), clock(time)),
        };
        html! {
            rect.ground x=(across(10 * at, count)) y="0" width=(across(10, count)) height=(HEIGHT) {}
            @for (colour, height) in bars {
                @if *height > 0 {
                    @let y = { y -= height; y };
                    rect class={ "c" (colour) } x=(across(10 * at + 1, count)) y=(y) width=(across(8, count)) height=(height) {}
                }
            }
            @match dated {
                Dated::No => {},
                Dated::Wide => text.wide x=(across(10 * at + 5, count)) y=(HEIGHT + 18) { (text) },
                Dated::Always => text x=(across(10 * at + 5, count)) y=(HEIGHT + 18) { (text) },
            }
        }
    }

    /// Returns the colour and height of each series in a bar. `top` is the value of the highest grid line.
    fn bars(&self, time: Hour, top: i64, colours: &[usize]) -> Vec<(usize, i64)> {
        colours.iter().copied().zip(self.heights(time, top)).collect()
    }

    /// Returns the height of each series in a bar. A bar with a positive total is at least one pixel high. Each series
    /// gets its share of this height, which may be zero.
    fn heights(&self, time: Hour, top: i64) -> Vec<i64> {
        let parts: Vec<i64> = self.series.iter().map(|series| self.on(series, time).max(0)).collect();
        let sum: i128 = parts.iter().copied().map(i128::from).sum();
        let whole = self.total(time);
        let height = if whole > 0 { share(whole, top, HEIGHT).max(1) } else { 0 };
        let (mut below, mut y) = (0, 0);
        let heights = parts.into_iter().map(|part| {
            below += i128::from(part);
            // The upper edge of each part is rounded instead of its height, so that the parts add up to the bar.
            let end =
                i64::try_from((2 * below * i128::from(height) + sum) / (2 * sum).max(1)).unwrap_or(height);
            end - std::mem::replace(&mut y, end)
        });
        heights.collect()
    }

    /// Renders the table, with a row for each bar and a column for each series. The box next to the pointer shows the
    /// same row.
    fn table(&self) -> Markup {
        let cell = |amount: i64| {
            html! { td.n { @if amount == 0 { "–" } @else { (self.measure.aligned(amount)) } } }
        };
        let head = html! {
            th scope="col" { @match self.step { ChartStep::Day => "Day", ChartStep::Hour => "Hour" } " (" (self.zone) ")" }
            @for series in self.series { th.n scope="col" { (series.name) } }
            th.n scope="col" { "Total" }
        };
        let rows = html! {
            @for time in self.times().rev() {
                tr {
                    th scope="row" { a href=(self.requests_of(time)) { (self.name(time)) } }
                    @for series in self.series { (cell(self.on(series, time))) }
                    (cell(self.total(time)))
                }
            }
        };
        let name = format!("{} by {}", self.measure.title(), self.unit());
        html! { details { summary { "Table" } (scrolled_figures(&name, &head, &rows)) } }
    }
}

/// Whether a bar has a label below the chart.
enum Dated {
    No,
    /// The bar has a label only on a wide page.
    Wide,
    Always,
}

/// Decides whether a day has a label. In a range of up to seven days, every day has a label; in longer ranges, every
/// Monday; in ranges of more than 100 days, the first day of each month. On a narrow page, only every second of these
/// days has a label, or every fourth Monday, or the first day of each quarter.
fn dated(day: Day, at: usize, count: usize) -> Dated {
    match count {
        ..=7 if at.is_multiple_of(2) => Dated::Always,
        ..=7 => Dated::Wide,
        101.. => match day.to_string().get(5..) {
            Some("01-01" | "04-01" | "07-01" | "10-01") => Dated::Always,
            Some(date) if date.ends_with("-01") => Dated::Wide,
            Some(_) | None => Dated::No,
        },
        _ if !day.is_monday() => Dated::No,
        8..=31 => Dated::Always,
        _ if (day.number() + 3) / 7 % 4 == 0 => Dated::Always,
        _ => Dated::Wide,
    }
}

/// Decides whether an hour has a label: every sixth hour has one, and on a wide page every third.
const fn timed(time: Hour) -> Dated {
    match time.of_day() {
        hour if hour.is_multiple_of(6) => Dated::Always,
        hour if hour.is_multiple_of(3) => Dated::Wide,
        _ => Dated::No,
    }
}

/// Writes an hour of a day, such as `09:00`.
fn clock(time: Hour) -> String {
    format!("{:02}:00", time.of_day())
}

/// Writes `on 2026-11-23` or `from … to …`.
fn words(days: &RangeInclusive<Day>) -> String {
    if days.start() == days.end() {
        return format!("on {}", days.start());
    }
    format!("from {} to {}", days.start(), days.end())
}

/// Returns the smallest round step for which [`LINES`] steps reach `most`.
fn step(most: i64) -> i64 {
    let mut power: i64 = 1;
    loop {
        let round = STEPS.into_iter().map(|tenths| i128::from(tenths) * i128::from(power));
        let mut enough = round.filter(|step| step % 10 == 0).map(|step| step / 10);
        if let Some(step) = enough.find(|step| step * i128::from(LINES) >= i128::from(most)) {
            return i64::try_from(step).unwrap_or(i64::MAX);
        }
        power = power.saturating_mul(10);
    }
}

/// Returns a horizontal position as a percentage of the picture's width. `tenths` is the position in tenths of a bar.
fn across(tenths: usize, days: usize) -> String {
    let hundredths = tenths * 1_000 / days;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Writes a day without its year, such as `Nov 23`.
fn short(day: Day) -> String {
    let date = day.to_string();
    let number = |part: Option<&str>| part.and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(1);
    let month = MONTHS.get(number(date.get(5..7)).saturating_sub(1)).copied().unwrap_or_default();
    format!("{month} {}", number(date.get(8..10)))
}

/// Chooses the colour of each series: the colour for its place or, if another series has that colour, the next free
/// colour.
fn colours(series: &[Series]) -> Vec<usize> {
    let mut colours = vec![COLOURS; series.len()];
    let mut order: Vec<usize> = (0..series.len()).filter(|at| !series[*at].is_rest).collect();
    // The series are sorted by place instead of amount, so that colours do not change with the amounts.
    order.sort_by_key(|at| (series[*at].place.is_none(), series[*at].place));
    for at in order {
        let wanted = series[at].place.unwrap_or(COLOURS - 1);
        let free =
            (0..COLOURS).map(|next| (wanted + next) % COLOURS).find(|colour| !colours.contains(colour));
        colours[at] = free.unwrap_or(COLOURS);
    }
    colours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_scaled_without_floats() {
        let nanos = NanoUsd::from_nanos;
        assert_eq!(scaled(nanos(1), nanos(2), 100), 50);
        assert_eq!(scaled(NanoUsd::MAX, NanoUsd::MAX, 160), 160);
        assert_eq!(scaled(nanos(5), nanos(0), 100), 100);
        assert_eq!(scaled(nanos(-5), nanos(10), 100), 0);
    }

    #[test]
    fn a_scale_has_round_steps_and_room_for_the_highest_day() {
        for (most, expected) in
            [(1, 1), (3, 1), (4, 2), (31, 15), (60, 20), (9_700, 4_000), (i64::MAX, i64::MAX / 3)]
        {
            let step = step(most);
            assert!(i128::from(step) * 3 >= i128::from(most), "{most}: {step}");
            assert!(step == expected || most == i64::MAX, "{most}: {step}");
        }
    }

    fn part(name: &str, place: Option<usize>, day: Day, nanos: i64) -> Series {
        let sums = Sums { charged: NanoUsd::from_nanos(nanos), ..Sums::default() };
        let times = BTreeMap::from([(Hour::in_day(day, 0), sums)]);
        Series { name: html! { (name) }, place, is_rest: false, times }
    }

    #[test]
    fn a_day_is_as_high_as_its_sum_and_a_part_as_its_share() {
        let today = Day::parse("2026-11-23").unwrap();
        let heights = |parts: &[i64], top| {
            let series: Vec<Series> = parts.iter().map(|nanos| part("", None, today, *nanos)).collect();
            let (measure, days, step) = (Measure::Spend, today..=today, ChartStep::Day);
            Chart { measure, days, step, zone: "UTC", series: &series, requests: "" }
                .heights(Hour::in_day(today, 0), top)
        };
        assert_eq!(heights(&[996, 1, 1, 1, 1], 1_000), [159, 1, 0, 0, 0], "as high as the scale");
        assert_eq!(heights(&[500, 500, 0], 1_000), [80, 80, 0]);
        assert_eq!(
            heights(&[10, 10, 10, 10, 10, 10], 1_000).iter().sum::<i64>(),
            9,
            "six models cost as much as one"
        );
        assert_eq!(heights(&[60], 1_000), [9]);
        assert_eq!(heights(&[1, 1, 1], 1_000_000).iter().sum::<i64>(), 1, "every day with a cost is seen");
        assert_eq!(heights(&[0, 0], 1_000), [0, 0]);
        assert_eq!(heights(&[i64::MAX / 2, i64::MAX / 2], i64::MAX), [80, 79]);
    }

    #[test]
    fn a_colour_follows_the_place_in_the_catalogue_and_no_two_parts_share_one() {
        let today = Day::parse("2026-11-23").unwrap();
        let of = |places: &[Option<usize>]| {
            let series: Vec<Series> = places.iter().map(|place| part("", *place, today, 1)).collect();
            colours(&series)
        };
        assert_eq!(of(&[Some(3), Some(0)]), [3, 0]);
        assert_eq!(of(&[Some(0), Some(1), Some(3)]), [0, 1, 3], "another order changes no colour");
        assert_eq!(of(&[Some(8), Some(1), None, None]), [2, 1, 6, 0]);
        let mut rest = part("3 others", None, today, 1);
        rest.is_rest = true;
        assert_eq!(colours(&[part("", Some(6), today, 1), rest]), [6, COLOURS]);
    }

    #[test]
    fn amounts_of_a_scale_have_as_many_decimals() {
        assert_eq!(Measure::Spend.scale(15_000_000), ["$0.045", "$0.030", "$0.015", "$0.000"]);
        assert_eq!(Measure::Spend.scale(2_000_000_000), ["$6.00", "$4.00", "$2.00", "$0.00"]);
        assert_eq!(Measure::Requests.scale(20), ["60", "40", "20", "0"]);
    }

    #[test]
    fn every_day_has_a_row_and_its_bar_leads_to_its_requests() {
        let today = Day::parse("2026-11-23").unwrap();
        let series = [part("Model Max", Some(0), today.plus(-2), 7)];
        let page = |days: i64, requests: &str| {
            let days = today.plus(1 - days)..=today;
            let step = ChartStep::Day;
            let chart = Chart { measure: Measure::Spend, days, step, zone: "UTC", series: &series, requests };
            chart.markup().into_string().replace("&amp;", "&")
        };
        for days in [7_usize, 30, 90, 400] {
            let page = page(days.try_into().unwrap(), "/r");
            assert_eq!(page.matches("<th scope=\"row\">").count(), days);
            assert_eq!(page.matches("href=\"/r?from=2026-11-21&to=2026-11-21\"").count(), 2, "{days}");
        }
        let month = page(30, "/r?key=k");
        assert!(month.contains("href=\"/r?key=k&from=2026-11-21&to=2026-11-21\""), "{month}");
        assert!(month.contains("title=\"$0.000000007\""), "{month}");
        assert!(month.contains(">Nov 16</text>") && month.contains(">Nov 23</text>"), "{month}");
        assert!(
            page(400, "/r").contains("<text class=\"wide\"") && !page(400, "/r").contains(">Nov 16</text>")
        );
    }

    #[test]
    fn a_chart_of_hours_has_a_row_for_each_hour_and_its_bars_lead_to_the_requests_of_theirs() {
        let today = Day::parse("2026-11-23").unwrap();
        let (mut series, at) = (part("Model Max", Some(0), today, 7), Hour::in_day(today, 14));
        series.times = series.times.into_values().map(|sums| (at, sums)).collect();
        let chart = |days, series: &[Series]| {
            let (measure, step) = (Measure::Spend, ChartStep::Hour);
            let chart = Chart { measure, days, step, zone: "Zurich", series, requests: "/r" };
            chart.markup().into_string().replace("&amp;", "&")
        };
        let page = chart(today..=today, &[series]);
        assert_eq!(page.matches("<th scope=\"row\">").count(), 24);
        assert_eq!(page.matches("href=\"/r?from=2026-11-23&to=2026-11-23&hour=14\"").count(), 2);
        assert!(page.contains(">06:00</text>") && page.contains("Hour (Zurich)"), "{page}");
        assert!(chart(today..=today, &[]).contains("No requests were billed on 2026-11-23."));
    }

    /// Converts a colour, as eyes of this kind see it, to CIELAB. In this colour space, distances match perception.
    fn seen(colour: &str, eyes: [[f64; 3]; 3]) -> [f64; 3] {
        let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        let linear = [1, 3, 5]
            .map(part)
            .map(|c| if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        let product = |row: &[f64; 3], of: [f64; 3]| row.iter().zip(of).map(|(a, b)| a * b).sum::<f64>();
        let rgb = eyes.map(|row| product(&row, linear).clamp(0.0, 1.0));
        // The values are relative to D65, the white of screens.
        let whites = [[0.4338, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729]];
        let roots = whites.map(|row| match product(&row, rgb) {
            light if light > 0.008_856 => light.cbrt(),
            light => 7.787 * light + 16.0 / 116.0,
        });
        let [red, light, blue] = roots;
        [116.0 * light - 16.0, 500.0 * (red - light), 200.0 * (light - blue)]
    }

    #[test]
    fn colours_are_told_apart_by_people_who_see_two_primary_colours() {
        // Normal vision, protanopia and deuteranopia (Machado, Oliveira and Fernandes 2009).
        let eyes = [
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ];
        let css = include_str!("../site/assets/dashboard.css");
        let palettes: Vec<&str> = css.lines().filter(|line| line.trim_start().starts_with("--c0:")).collect();
        assert_eq!(palettes.len(), 3, "light, dark by the system, and dark by choice");
        for palette in palettes {
            let colours: Vec<&str> =
                palette.split(';').filter_map(|one| one.split_once(": ")).map(|(_, colour)| colour).collect();
            assert_eq!(colours.len(), COLOURS + 1);
            for eye in eyes {
                for (at, one) in colours.iter().enumerate() {
                    for other in &colours[at + 1..] {
                        let apart = seen(one, eye)
                            .iter()
                            .zip(seen(other, eye))
                            .map(|(a, b)| (a - b).powi(2))
                            .sum::<f64>()
                            .sqrt();
                        assert!(apart >= 7.0, "{one} and {other} are {apart} apart");
                    }
                }
            }
        }
    }
}
