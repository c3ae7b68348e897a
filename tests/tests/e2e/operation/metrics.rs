//! The metrics, the alerts and the dashboard that use them, and what `docs/observe.md` says about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use serde_json::Value;
use tests::{harness::Stack, upstream::Script};

use crate::house::documents::{collect, root};

const PAGE: &str = include_str!("../../../../docs/observe.md");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/faregate.json");
const RUNBOOK: &str = include_str!("../../../../docs/alerts.md");
const CASES: &str = include_str!("../../../../deploy/prometheus/alerts.test.yml");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yml");

/// Words of PromQL that may occur where the name of a metric may occur.
const KEYWORDS: [&str; 8] = ["and", "or", "unless", "bool", "by", "on", "ignoring", "without"];

/// What the documentation says about a metric.
#[derive(Debug, PartialEq, Eq)]
struct Explained {
    labels: BTreeSet<String>,
    meaning: String,
}

#[apply(fact)]
async fn every_metric_is_exported_from_the_start_and_explained_with_its_labels() {
    let stack = Stack::start().await;
    let explained = explained();
    let exported = scrape(&stack).await;
    let (helps, types) = (declared(&exported, "# HELP "), declared(&exported, "# TYPE "));
    assert_eq!(helps.keys().collect::<Vec<_>>(), types.keys().collect::<Vec<_>>());
    let meanings: BTreeMap<_, _> = explained.iter().map(|(name, it)| (*name, it.meaning.as_str())).collect();
    assert_eq!(helps, meanings, "docs/observe.md and /metrics explain the same");
    for (name, kind) in &types {
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
    }

    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).stream().await.rest().await.assert_done();
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let exported = scrape(&stack).await;
    let mut seen = BTreeSet::new();
    for line in exported.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let family = family(name, &types).unwrap_or_else(|| panic!("{name} has no type"));
        let labels: BTreeSet<_> = label_names(labels).filter(|label| label != "le").collect();
        assert_eq!(labels, explained[family].labels, "labels of {family}");
        seen.insert(family);
    }
    let without_labels = explained.iter().filter(|(_, it)| it.labels.is_empty()).map(|(name, _)| *name);
    let missing: Vec<_> = without_labels.filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "these begin at zero: {missing:?}");
}

#[test]
fn what_the_programs_measure_is_declared() {
    let explained = explained();
    let mut files = Vec::new();
    for source in ["shared", "key-service", "inference-gateway", "local-model", "faregate"] {
        collect(&root().join(source), &mut files);
    }
    let mut measured = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for call in ["counter!(", "gauge!(", "histogram!("] {
            let arguments = text.match_indices(call).map(|(at, _)| text[at + call.len()..].trim_start());
            for name in arguments.filter_map(|arguments| arguments.strip_prefix('"')?.split('"').next()) {
                assert!(explained.contains_key(name), "{} measures {name}", file.display());
                measured.insert(name.to_owned());
            }
        }
    }
    assert!(measured.len() > 30, "{measured:?}");
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_are_there() {
    let explained = explained();
    let mut asked = alerts().into_iter().map(|alert| alert.expr).collect::<Vec<_>>();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let shown = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    asked.extend(shown.map(|target| target["expr"].as_str().unwrap().to_owned()));
    asked.push(dashboard["annotations"]["list"][0]["expr"].as_str().unwrap().to_owned());
    assert!(asked.len() > 60, "{}", asked.len());
    for expression in asked {
        let names = metrics_of(&expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names.into_iter().filter(|name| name != "up") {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let is_there = |name: &str| explained.contains_key(name);
            assert!(is_there(&name) || base.is_some_and(is_there), "{name} in {expression}");
        }
    }
}

#[test]
fn the_dashboard_shows_what_somebody_is_woken_for() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let shown: BTreeSet<_> =
        targets.flat_map(|target| metrics_of(target["expr"].as_str().unwrap())).collect();
    for Alert { name, expr, labels, .. } in alerts() {
        let asked = metrics_of(&expr).into_iter().filter(|metric| metric != "up");
        for metric in asked.filter(|_| labels["severity"] == "page") {
            assert!(shown.contains(&metric), "{name} asks for {metric}, which no panel shows");
        }
    }
    for metric in
        ["gateway_ready", "keyservice_store_conflicts_total", "keyservice_store_damaged_records_total"]
    {
        assert!(shown.contains(metric), "{metric}");
    }
}

#[test]
fn no_panel_of_the_dashboard_covers_another() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut ids, mut covered) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{panel}");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(covered.insert((x, y)), "{} is covered", panel["title"]);
            }
        }
    }
}

#[test]
fn every_alert_says_what_it_means_and_what_to_do() {
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len(), "each has a name of its own");
    let sections: BTreeSet<_> = RUNBOOK
        .split("\n## ")
        .skip(1)
        .map(|section| {
            let (name, text) = section.split_once('\n').unwrap();
            assert!(text.trim().split("\n\n").count() >= 2, "{name}: what it means, and what to do");
            name
        })
        .collect();
    assert_eq!(sections, names, "docs/alerts.md explains the alerts that there are");
    for Alert { name, labels, annotations, .. } in &alerts {
        assert!(["page", "ticket"].contains(&labels["severity"].as_str()), "{name}");
        assert_eq!(
            annotations["runbook_url"],
            format!("{}#{}", runbook_url(), name.to_lowercase()),
            "{name}"
        );
        let cases = CASES.matches(&format!("alertname: {name}\n")).count();
        assert!(cases > 0, "{name}: an outage fires it");
        assert!(
            CASES.contains(&format!("alertname: {name}, exp_alerts: []}}")),
            "{name}: an idle installation does not"
        );
        assert!(!annotations["summary"].is_empty(), "{name}");
    }
}

#[apply(fact)]
async fn prometheus_accepts_the_alerts_and_the_metrics() {
    promtool(&["check", "rules", "deploy/prometheus/alerts.yml"]);
    promtool(&["test", "rules", "deploy/prometheus/alerts.test.yml"]);
    let stack = Stack::start().await;
    let key = stack.key().await;
    stack.call(&key, Script::tokens(12, 5)).send().await;
    let file = stack.data().join("metrics.txt");
    fs::write(&file, scrape(&stack).await).unwrap();
    let checked = Command::new(promtool_path())
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let faults = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{faults}");
}

/// Runs `promtool` at the root of the workspace.
fn promtool(arguments: &[&str]) {
    let checked = Command::new(promtool_path()).args(arguments).current_dir(root()).output().unwrap();
    let (said, faults) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "promtool {arguments:?}: {said}{faults}");
}

/// Returns the path of the `promtool` that `tests/tools/install.sh` downloads.
pub(crate) fn promtool_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/promtool")
}

async fn scrape(stack: &Stack) -> String {
    stack.http.get(&format!("{}/metrics", stack.server().admin())).await.text().to_owned()
}

/// Maps the name of each metric family that has a line with the prefix `line` to the rest of that line.
fn declared<'a>(exported: &'a str, line: &str) -> BTreeMap<&'a str, &'a str> {
    let lines: Vec<_> = exported.lines().filter_map(|it| it.strip_prefix(line)?.split_once(' ')).collect();
    let declared: BTreeMap<_, _> = lines.iter().copied().collect();
    assert_eq!(declared.len(), lines.len(), "each family is declared once");
    declared
}

fn family<'a>(series: &str, types: &BTreeMap<&'a str, &str>) -> Option<&'a str> {
    let suffixes = ["", "_bucket", "_sum", "_count"].into_iter();
    suffixes
        .filter_map(|suffix| types.get_key_value(series.strip_suffix(suffix)?))
        .map(|(name, _)| *name)
        .next()
}

/// Returns the names of the labels of a series. The values of the labels contain no quotes.
fn label_names(labels: &str) -> impl Iterator<Item = String> + '_ {
    labels
        .split('"')
        .step_by(2)
        .filter_map(|part| part.trim_start_matches(',').strip_suffix('='))
        .map(str::to_owned)
}

/// Returns the table of metrics in the documentation.
fn explained() -> BTreeMap<&'static str, Explained> {
    let rows = rows(section(PAGE, "Metrics")).map(|cells| {
        let [name, labels, meaning] = cells[..] else { panic!("{cells:?}") };
        let labels = labels.split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        (name.trim_matches('`'), Explained { labels, meaning: meaning.to_owned() })
    });
    rows.collect()
}

fn section(page: &'static str, title: &str) -> &'static str {
    let (_, rest) =
        page.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no section {title}"));
    rest.split("\n## ").next().unwrap()
}

/// Returns the cells in the rows of all tables in a text. The heads of the tables are left out.
pub(crate) fn rows(section: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| line.trim_matches('|').split(" |").map(str::trim).collect())
}

/// Returns the names of the metrics that a PromQL expression contains.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut bare = String::new();
    let (mut depth, mut quoted) = (0_u32, false);
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if depth > 0 => {}
            _ => bare.push(c),
        }
    }
    // Names in the parentheses after these words are labels.
    for word in ["by (", "on (", "group_left (", "without (", "ignoring ("] {
        while let Some((before, rest)) = bare.split_once(word) {
            bare = format!("{before} {}", rest.split_once(')').unwrap().1);
        }
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names = BTreeSet::new();
    let mut rest = bare.as_str();
    while let Some(start) = rest.find(is_name) {
        let word = &rest[start..];
        let end = word.find(|c| !is_name(c)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        let is_call = after.trim_start().starts_with('(');
        if !is_call && !KEYWORDS.contains(&name) && !name.starts_with(|c: char| c.is_ascii_digit()) {
            names.insert(name.to_owned());
        }
        rest = after;
    }
    names
}

/// Returns the address of the page about alerts, as the first alert contains it.
pub(crate) fn runbook_url() -> &'static str {
    let (_, url) = ALERTS.split_once("runbook_url: ").unwrap();
    let url = url.split('#').next().unwrap();
    assert!(url.starts_with("https://github.com/") && url.ends_with("/docs/alerts.md"), "{url}");
    url
}

/// An alert in `deploy/prometheus/alerts.yml`.
#[derive(Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    expr: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

fn alerts() -> Vec<Alert> {
    let rules: Rules = serde_saphyr::from_str(ALERTS).unwrap();
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}
