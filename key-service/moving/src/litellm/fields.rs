//! Takes the fields of a row one by one, and reports how each field was handled.

use std::collections::BTreeMap;

use serde_json::Value;
use shared::{
    text::is_control,
    wire::{MAX_LABEL_CHARS, MAX_METADATA, MAX_METADATA_NAME_CHARS, MAX_METADATA_VALUE_CHARS},
};

use super::super::{
    report::Report,
    values::{self, Row, RowFault, is_empty},
};
use domain::settings::MetadataPatch;

/// Names of the column with a team's aliases: in LiteLLM's schema, and in its database.
pub(super) const MODEL_ALIASES: [&str; 2] = ["model_aliases", "aliases"];
/// Maximum length of a masked key, such as `sk-...abcd`.
const MAX_HINT_CHARS: usize = 20;

/// Columns that are dropped, with the reasons.
const DROPPED: [(&[&str], &str); 9] = [
    (
        &["created_at", "created_by", "updated_at", "updated_by", "last_active"],
        "dropped: times begin with the import",
    ),
    (&["budget_reset_at"], "dropped: windows follow the calendar, in UTC"),
    (&["model_spend"], "dropped: the journal begins with the import"),
    (
        &["soft_budget", "soft_budget_cooldown"],
        "dropped: events report when 50, 80 and 95 % of a limit are spent",
    ),
    (
        &["model_max_budget", "default_team_member_models"],
        "dropped: give each model or person a separate key",
    ),
    (&["config", "router_settings"], "dropped: the catalogue defines how models are served"),
    (
        &["rotation_count", "auto_rotate", "rotation_interval", "last_rotation_at", "key_rotation_at"],
        "dropped: rotate keys with the management API",
    ),
    (
        &["admins", "members", "members_with_roles", "team_member_permissions"],
        "dropped: invite people with `members invite`",
    ),
    (
        &[
            "permissions",
            "allowed_cache_controls",
            "policies",
            "access_group_ids",
            "object_permission_id",
            "allow_team_guardrail_config",
        ],
        "dropped: no counterpart",
    ),
];

/// The fields of a row that have not been taken yet.
pub(super) struct RowFields<'a> {
    pub(super) table: &'static str,
    pub(super) row: Row,
    report: &'a mut Report,
}

impl<'a> RowFields<'a> {
    pub(super) fn new(table: &'static str, row: Row, report: &'a mut Report) -> Self {
        report.begin_row();
        Self { table, row, report }
    }

    /// Takes and parses the value in a column.
    pub(super) fn take<T>(
        &mut self,
        column: &str,
        read: fn(&Value) -> Result<T, RowFault>,
    ) -> Result<T, RowFault> {
        let value = self.row.remove(column).unwrap_or(Value::Null);
        read(&value).map_err(|fault| format!("`{column}` {fault}"))
    }

    /// Reports how a column was handled.
    pub(super) fn became(&mut self, column: &str, became: impl Into<String>) {
        self.report.add(self.table, column, became);
    }

    /// Reports how a column of any table was handled.
    pub(super) fn of(&mut self, table: &str, column: &str, became: impl Into<String>) {
        self.report.add(table, column, became);
    }

    /// Takes a line of text, truncated to the maximum length of a label.
    pub(super) fn line(&mut self, column: &str, name: &str) -> Result<Option<String>, RowFault> {
        let Some(text) = self.take(column, values::text)? else { return Ok(None) };
        let line = cut(&text);
        self.became(
            column,
            if line == text {
                name.to_owned()
            } else {
                format!("{name}, cut to {MAX_LABEL_CHARS} characters")
            },
        );
        Ok(Some(line))
    }

    /// Takes these columns and the metadata, and returns both as metadata.
    pub(super) fn metadata(&mut self, columns: &[&str]) -> Result<MetadataPatch, RowFault> {
        let mut kept = BTreeMap::new();
        for column in columns {
            if let Some(text) = self.take(column, values::text)? {
                kept.insert(
                    (*column).to_owned(),
                    Some(text.chars().take(MAX_METADATA_VALUE_CHARS).collect()),
                );
                self.became(column, format!("metadata.{column}"));
            }
        }
        for (name, value) in self.take("metadata", values::object)? {
            if value.is_null() {
                continue;
            }
            let text = plain(&value).filter(|text| {
                let has_room = kept.len() < MAX_METADATA && !kept.contains_key(&name);
                let is_short = text.chars().count() <= MAX_METADATA_VALUE_CHARS;
                has_room && is_short && (1..=MAX_METADATA_NAME_CHARS).contains(&name.chars().count())
            });
            if let Some(text) = text {
                kept.insert(name, Some(text));
                self.became("metadata", "metadata");
            } else {
                let name = cut(&name);
                self.became(
                    "metadata",
                    format!("dropped: `{name}` is nested, or too long, or over the maximum"),
                );
            }
        }
        Ok(MetadataPatch { is_cleared: false, changes: kept })
    }

    /// Reports that aliases are dropped, and how to keep each of them.
    pub(super) fn aliases(&mut self, column: &str, named: &Value) -> Result<(), RowFault> {
        let aliases = values::object(named).map_err(|fault| format!("`{column}` {fault}"))?;
        for (alias, model) in aliases {
            let model = values::text(&model).map_err(|fault| format!("`{column}` {fault}"))?;
            let (alias, model) = (cut(&alias), cut(&model.unwrap_or_default()));
            self.became(column, format!("dropped: to keep it, add to the model `{model}` in the catalogue: aliases = [\"{alias}\"]"));
        }
        Ok(())
    }

    /// Reports all remaining columns that have a value as dropped.
    pub(super) fn drop_rest(&mut self) {
        for (column, _) in self.row.iter().filter(|(_, value)| !is_empty(value)) {
            let reason = DROPPED.iter().find(|(columns, _)| columns.contains(&column.as_str()));
            let reason = reason.map_or("dropped: unknown column", |(_, reason)| reason);
            self.report.add(self.table, column, reason);
        }
    }
}

/// Removes control characters, and truncates a text to the maximum length of a label.
pub(super) fn cut(text: &str) -> String {
    text.chars().filter(|c| !is_control(*c)).take(MAX_LABEL_CHARS).collect()
}

/// Returns whether a text is a masked key instead of a complete key.
pub(super) fn is_foreign_hint(text: &str) -> bool {
    text.contains("...") && text.chars().count() <= MAX_HINT_CHARS && !text.chars().any(is_control)
}

/// Returns the text of a simple value, or of a list of texts.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => values.iter().all(Value::is_string).then(|| value.to_string()),
    }
}
