//! Reads LiteLLM's keys and teams from its tables (versions 1.7x to 1.10x).

mod bounds;
mod fields;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use shared::{money::NanoUsd, text::is_control, wire::MAX_EXTERNAL_ID_CHARS};

use self::{
    bounds::BUDGETS,
    fields::{MODEL_ALIASES, RowFields, is_foreign_hint},
};
use super::{
    draft::{Draft, DraftGroup, DraftKey, Wrong},
    report::Report,
    values::{self, Row, RowFault},
};
use domain::{digest::ForeignKey, group::GroupPatch, key::KeyPatch};

const KEYS: &str = "LiteLLM_VerificationToken";
const TEAMS: &str = "LiteLLM_TeamTable";
/// Table with the aliases that teams refer to.
const MODELS: &str = "LiteLLM_ModelTable";
/// The team of those keys that stand for sign-ins to LiteLLM's UI.
const UI_SESSIONS: &str = "litellm-dashboard";
/// Routes that call no model. A key that is limited to these routes is imported as revoked, because every key can call
/// models here.
const ROUTES_WITHOUT_MODELS: [&str; 2] = ["management_routes", "info_routes"];

/// A table of an export.
#[derive(Debug, Default)]
pub struct Table {
    pub name: String,
    /// The rows, each with its location for messages.
    pub rows: Vec<(String, Row)>,
}

/// Returns which table a CSV file contains, according to its columns.
pub fn table_with(columns: &[String]) -> Option<&'static str> {
    let has = |column: &str| columns.iter().any(|name| name == column);
    let marks = [
        ("token", KEYS),
        ("team_alias", TEAMS),
        ("soft_budget", BUDGETS),
        ("model_aliases", MODELS),
        ("aliases", MODELS),
    ];
    marks.into_iter().find(|(column, _)| has(column)).map(|(_, table)| table)
}

/// Reads keys and groups, and reports how each field was handled. If any row is faulty, fails with a list of all faulty
/// rows.
pub fn read(tables: Vec<Table>) -> Result<(Draft, Report), Vec<Wrong>> {
    let mut reader = Reader::default();
    let (mut keys, mut teams) = (Vec::new(), Vec::new());
    for Table { name, rows } in tables {
        match name.as_str() {
            KEYS => keys.extend(rows),
            TEAMS => teams.extend(rows),
            BUDGETS => reader.budgets.extend(by_id(rows, "budget_id")),
            MODELS => reader.aliases.extend(by_id(rows, "id")),
            other => rows.iter().for_each(|_| {
                reader.report.begin_row();
                reader.report.add(other, "", "not imported: no counterpart");
            }),
        }
    }
    for (place, row) in teams {
        match reader.team(place.clone(), row) {
            Ok(group) => reader.draft.groups.push(group),
            Err(reason) => reader.wrong.push(Wrong { place, reason }),
        }
    }
    for (place, row) in keys {
        match reader.key(place.clone(), row) {
            Ok(key) => reader.draft.keys.extend(key),
            Err(reason) => reader.wrong.push(Wrong { place, reason }),
        }
    }
    reader.wrong.extend(reader.draft.repeated());
    if reader.wrong.is_empty() { Ok((reader.draft, reader.report)) } else { Err(reader.wrong) }
}

/// Indexes rows by a column.
fn by_id(rows: Vec<(String, Row)>, column: &str) -> impl Iterator<Item = (String, Row)> {
    rows.into_iter().filter_map(move |(_, row)| Some((values::text(row.get(column)?).ok()??, row)))
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    report: Report,
    wrong: Vec<Wrong>,
    budgets: HashMap<String, Row>,
    aliases: HashMap<String, Row>,
    /// Blocked teams, whose keys do not work.
    blocked: HashSet<String>,
}

impl Reader {
    fn team(&mut self, place: String, row: Row) -> Result<DraftGroup, RowFault> {
        let mut fields = RowFields::new(TEAMS, row, &mut self.report);
        let id = fields.take("team_id", values::text)?.ok_or("has no `team_id`")?;
        if id.chars().count() > MAX_EXTERNAL_ID_CHARS || id.chars().any(is_control) {
            return Err(format!(
                "`team_id` has more than {MAX_EXTERNAL_ID_CHARS} characters, or control characters"
            ));
        }
        fields.became("team_id", "external_id of a group");
        let name = fields.line("team_alias", "name")?.unwrap_or_else(|| fields::cut(&id));
        if fields.take("blocked", values::flag)? {
            fields.became("blocked", "the team's keys are disabled; the group is open for new keys");
            self.blocked.insert(id.clone());
        }
        let used = fields.used()?;
        let bounds = fields.bounds(None)?;
        let metadata = fields.metadata(&["organization_id"])?;
        if let Some(model) = fields.take("model_id", values::text)? {
            match self.aliases.get(&model) {
                Some(row) => {
                    let named =
                        MODEL_ALIASES.iter().find_map(|column| row.get(*column)).unwrap_or(&Value::Null);
                    fields.aliases("model_id", named)?;
                }
                None => fields.became(
                    "model_id",
                    format!("dropped: the aliases are in {MODELS}, which the export lacks"),
                ),
            }
        }
        fields.drop_rest();
        let settings = GroupPatch {
            name: Some(name),
            external_id: Some(Some(id)),
            bounds,
            metadata,
            ..GroupPatch::default()
        };
        Ok(DraftGroup { place, used, settings })
    }

    /// Reads a key; `None` if the row stands for a sign-in to LiteLLM's UI.
    fn key(&mut self, place: String, row: Row) -> Result<Option<DraftKey>, RowFault> {
        let mut fields = RowFields::new(KEYS, row, &mut self.report);
        let team = fields.take("team_id", values::text)?;
        if team.as_deref() == Some(UI_SESSIONS) {
            self.report.add(KEYS, "", "not imported: sign-ins to LiteLLM's own pages");
            return Ok(None);
        }
        let digits = fields.take("token", values::text)?;
        let foreign = digits.as_deref().and_then(ForeignKey::from_hex);
        let foreign = foreign.ok_or("`token` is not a SHA-256 in 64 hexadecimal digits")?;
        fields.became("token", "the credential: callers keep their keys");
        if team.is_some() {
            fields.became("team_id", "the group with this external_id");
        }
        let hint = fields.take("key_name", values::text)?.filter(|hint| is_foreign_hint(hint));
        if hint.is_some() {
            fields.became("key_name", "key_hint");
        }
        let label = fields.line("key_alias", "label")?;
        let expires_at = fields.take("expires", values::time)?;
        if expires_at.is_some() {
            fields.became("expires", "expires_at");
        }
        let used = fields.used()?;
        let budget = match fields.take("budget_id", values::text)? {
            None => None,
            Some(id) => {
                let missing =
                    || format!("`budget_id` is not in {BUDGETS}; the limits of that budget would be lost");
                let budget = self.budgets.get(&id).ok_or_else(missing)?;
                fields.became("budget_id", "the budget's limits, where the key has none");
                Some(budget)
            }
        };
        let bounds = fields.bounds(budget)?;
        let metadata = fields.metadata(&["user_id", "organization_id", "project_id", "agent_id"])?;
        if let Some(named) = fields.row.remove("aliases") {
            fields.aliases("aliases", &named)?;
        }
        let mut is_disabled = team.as_ref().is_some_and(|team| self.blocked.contains(team));
        if fields.take("blocked", values::flag)? {
            fields.became("blocked", "disabled");
            is_disabled = true;
        }
        let is_revoked = fields.calls_no_model()?;
        fields.drop_rest();
        let (expires_at, disabled) = (Some(expires_at), Some(is_disabled));
        let settings = KeyPatch { label, expires_at, disabled, bounds, metadata, ..KeyPatch::default() };
        Ok(Some(DraftKey { place, foreign, hint, is_revoked, used, settings, group: team }))
    }
}

impl RowFields<'_> {
    fn used(&mut self) -> Result<NanoUsd, RowFault> {
        let used = self.take("spend", values::amount)?.unwrap_or(NanoUsd::ZERO);
        if used > NanoUsd::MAX {
            return Err(format!("`spend` is more than {} USD", NanoUsd::MAX));
        }
        if used > NanoUsd::ZERO {
            self.became("spend", "used, over the lifetime");
        }
        Ok(used)
    }

    /// Takes the allowed routes. Returns whether the key could call no model with them.
    fn calls_no_model(&mut self) -> Result<bool, RowFault> {
        let routes = self.take("allowed_routes", values::list)?;
        if routes.is_empty() {
            return Ok(false);
        }
        let calls_none = routes.iter().all(|route| ROUTES_WITHOUT_MODELS.contains(&route.as_str()));
        let became = if calls_none {
            "revoked: its routes call no model"
        } else {
            "dropped: a key may call every model route"
        };
        self.became("allowed_routes", became);
        Ok(calls_none)
    }
}
