//! The list of models in pages, as the Messages API's clients read it.

use schemars::JsonSchema;
use serde::Serialize;
use shared::{
    error::{ApiError, Code},
    time::Timestamp,
};

/// Models of a page at most.
const MAX_PAGE: usize = 1000;

/// A model in a listing.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Model")]
pub(super) struct ModelObject<'a> {
    pub(super) id: &'a str,
    #[schemars(extend("const" = "model"))]
    pub(super) object: &'static str,
    pub(super) created: i64,
    pub(super) owned_by: &'a str,
    /// The model's id, if `id` is an alias of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) alias_of: Option<&'a str>,
}

/// A model, with the members of either API.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PagedModel")]
pub(super) struct PagedModel<'a> {
    #[serde(flatten)]
    model: ModelObject<'a>,
    #[schemars(extend("const" = "model"))]
    r#type: &'static str,
    display_name: &'a str,
    created_at: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ModelPage")]
pub(super) struct ModelPage<'a> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<PagedModel<'a>>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

impl<'a> PagedModel<'a> {
    pub(super) fn new(model: ModelObject<'a>) -> Self {
        let created_at = Timestamp::from_millis(model.created.saturating_mul(1000)).to_string();
        Self { display_name: model.id, created_at, r#type: "model", model }
    }
}

/// Returns the page that a query asks for: all models without a `limit`.
pub(super) fn page<'a>(models: Vec<ModelObject<'a>>, query: Option<&str>) -> Result<ModelPage<'a>, ApiError> {
    let (mut limit, mut after, mut before) = (usize::MAX, None, None);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let place = || {
            let place = models.iter().position(|model| model.id == value);
            place.ok_or_else(|| invalid(&name, "there is no such model in the list"))
        };
        match &*name {
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
                limit = number.ok_or_else(|| invalid(&name, "must be an integer from 1 to 1000"))?;
            }
            "after_id" => after = Some(place()?),
            "before_id" => before = Some(place()?),
            _ => {}
        }
    }
    let first = after.map_or(0, |after| after + 1);
    let end = before.unwrap_or(models.len()).max(first);
    // A page before a model ends next to that model.
    let (start, stop) = match before {
        Some(_) if after.is_none() => (end.saturating_sub(limit), end),
        Some(_) | None => (first, end.min(first.saturating_add(limit))),
    };
    let has_more = start > first || stop < end;
    let data: Vec<_> = models.into_iter().skip(start).take(stop - start).map(PagedModel::new).collect();
    let (first_id, last_id) = (data.first(), data.last());
    let (first_id, last_id) = (first_id.map(|model| model.model.id), last_id.map(|model| model.model.id));
    Ok(ModelPage { object: "list", first_id, last_id, has_more, data })
}

fn invalid(name: &str, problem: &str) -> ApiError {
    ApiError::at(Code::InvalidValue, name, format!("Invalid '{name}': {problem}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn models() -> Vec<ModelObject<'static>> {
        IDS.into_iter()
            .map(|id| ModelObject { id, object: "model", created: 1, owned_by: "o", alias_of: None })
            .collect()
    }

    fn ids(query: &str) -> (String, bool) {
        let page = page(models(), Some(query)).unwrap();
        assert_eq!(page.first_id, page.data.first().map(|model| model.model.id));
        (page.data.iter().map(|model| model.model.id).collect(), page.has_more)
    }

    #[test]
    fn a_page_begins_after_or_ends_before_a_model() {
        for (query, expected, has_more) in [
            ("", "abcde", false),
            ("limit=2", "ab", true),
            ("limit=2&after_id=b", "cd", true),
            ("limit=2&after_id=d", "e", false),
            ("limit=9&after_id=e", "", false),
            ("limit=2&before_id=d", "bc", true),
            ("before_id=c&x=1", "ab", false),
            ("after_id=a&before_id=e&limit=2", "bc", true),
        ] {
            assert_eq!(ids(query), (expected.to_owned(), has_more), "{query}");
        }
    }

    #[test]
    fn what_names_no_page_is_refused() {
        for query in ["limit=0", "limit=1001", "limit=x", "after_id=z", "before_id="] {
            assert_eq!(page(models(), Some(query)).err().unwrap().code, Code::InvalidValue, "{query}");
        }
    }
}
