//! Query parameters of listings: `limit`, `after`, `order`, and the filters of each noun. Other parameters are ignored.

use std::{borrow::Cow, ops::Range, str::FromStr};

use shared::{
    error::{ApiError, Code},
    ids::{GroupId, KeyId},
    time::Timestamp,
    wire::{EVENT_TYPES, MAX_EXTERNAL_ID_CHARS, MAX_PAGE, OPERATOR_EVENT_TYPES, OPERATOR_PAGE},
};

use super::error::unknown_cursor;
use domain::{
    event::{Event, EventSearch},
    ledger::Ending,
    refused::{RefusedCall, RefusedSearch},
    search::EntrySearch,
    usage::Day,
};
use key_service_management::{
    generations::Bill,
    governor::Governor,
    listing::{Listed, MetadataFilter},
    refusals::RefusedFilter,
};
use key_service_store::store::Order;

#[derive(Clone, Debug)]
pub(super) struct ListQuery<T: Listed> {
    /// Page size; `None` lists all objects.
    pub(super) limit: Option<usize>,
    /// The list starts after this object.
    pub(super) after: Option<T::Id>,
    pub(super) order: Order,
    pub(super) filter: T::Filter,
}

impl<T: Listed> ListQuery<T> {
    /// Lists a page even if the query has no limit.
    pub(super) fn in_pages(mut self) -> Self {
        self.limit.get_or_insert(OPERATOR_PAGE);
        self
    }

    /// If the caller is an operator key, limits the list to a page.
    pub(super) fn asked_by(self, caller: &Governor) -> Self {
        if caller.is_operator() { self.in_pages() } else { self }
    }
}

/// A noun whose lists can be filtered by query parameters.
pub(super) trait Filtered: Listed<Id: FromStr> {
    /// Reads and checks the filters.
    fn filter(query: &Query<'_>) -> Result<Self::Filter, ApiError>;
}

impl Filtered for Bill {
    fn filter(query: &Query<'_>) -> Result<EntrySearch, ApiError> {
        let ending = query.one("ending")?;
        let ending = ending.map(|text| {
            Ending::parse(text).filter(|ending| ending.is_bill()).ok_or_else(|| invalid("ending", BAD_ENDING))
        });
        let (begins, ends) = (query.time("start")?, query.time("end")?);
        Ok(EntrySearch {
            key: query.key()?,
            group: query.group()?,
            model: query.text("model")?,
            ending: ending.transpose()?,
            user: query.text("user")?,
            request: query.id("request_id", "a request")?,
            upstream: query.text("upstream")?,
            begins: begins.map(|time| time.start),
            ends: ends.map(|time| time.end),
            ..EntrySearch::default()
        })
    }
}

impl Filtered for RefusedCall {
    fn filter(query: &Query<'_>) -> Result<RefusedFilter, ApiError> {
        let (begins, ends) = (query.time("start")?, query.time("end")?);
        let search = RefusedSearch {
            key: query.key()?,
            reason: query.text("reason")?,
            model: query.text("model")?,
            user: query.text("user")?,
            request: query.id("request_id", "a request")?,
            begins: begins.map(|time| time.start),
            ends: ends.map(|time| time.end),
        };
        Ok(RefusedFilter { search, group: query.group()?, within: None })
    }
}

impl Filtered for Event {
    fn filter(query: &Query<'_>) -> Result<EventSearch, ApiError> {
        let kind = query.one("type")?.map(|text| {
            let kind = EVENT_TYPES.into_iter().chain(OPERATOR_EVENT_TYPES).find(|kind| *kind == text);
            kind.ok_or_else(|| invalid("type", "`type` must be a type of event, such as `key.created`."))
        });
        let (kind, key, group) = (kind.transpose()?, query.key()?, query.group()?);
        Ok(EventSearch { kind, key, group, ..EventSearch::default() })
    }
}

const BAD_ENDING: &str = "`ending` must be `captured` or `expired`.";

/// Reads and checks a query.
pub(super) fn read<T: Filtered>(query: Option<&str>) -> Result<ListQuery<T>, ApiError> {
    let query = Query::parse(query);
    let limit = query.one("limit")?.map(limit).transpose()?;
    let after = query.one("after")?.map(|text| text.parse().map_err(|_| unknown_cursor::<T>()));
    let order = match query.one("order")? {
        None | Some("desc") => Order::Descending,
        Some("asc") => Order::Ascending,
        Some(_) => return Err(invalid("order", "`order` must be `asc` or `desc`.")),
    };
    let filter = T::filter(&query)?;
    Ok(ListQuery { limit, after: after.transpose()?, order, filter })
}

/// Decoded parameters of a query.
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(super) fn parse(query: Option<&'a str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect())
    }

    /// Returns the value of a parameter. A repeated parameter is refused, because client and server might disagree
    /// about which value counts.
    pub(super) fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|(n, _)| n == name).map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(invalid(name, format!("`{name}` is given more than once."))),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ApiError> {
        Ok(self.one(name)?.map(str::to_owned))
    }

    pub(super) fn key(&self) -> Result<Option<KeyId>, ApiError> {
        self.id("key_id", "an API key")
    }

    pub(super) fn group(&self) -> Result<Option<GroupId>, ApiError> {
        self.id("group_id", "a group")
    }

    fn id<I: FromStr>(&self, name: &str, of: &str) -> Result<Option<I>, ApiError> {
        let id = self.one(name)?.map(str::parse);
        id.transpose().map_err(|_| invalid(name, format!("`{name}` must be the id of {of}.")))
    }

    /// Reads a time as a range. A date stands for the whole day, and an instant for just this instant.
    pub(super) fn time(&self, name: &str) -> Result<Option<Range<Timestamp>>, ApiError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let begins = |day: Day| Timestamp::from_millis(day.millis().0);
        let of_day = |day: Day| begins(day)..begins(day.plus(1));
        let instant = || Timestamp::parse(text).map(|at| at..at);
        let time = Day::parse(text).map(of_day).or_else(instant);
        let message = format!("`{name}` must be a date, such as 2027-12-31, or a date and time.");
        time.map(Some).ok_or_else(|| invalid(name, message))
    }

    /// Reads filters such as `metadata[name]=value`.
    pub(super) fn metadata(&self) -> Result<MetadataFilter, ApiError> {
        let mut metadata = MetadataFilter::new();
        for (parameter, value) in self.0.iter().filter(|(parameter, _)| parameter.starts_with("metadata")) {
            let name = parameter.strip_prefix("metadata[").and_then(|rest| rest.strip_suffix(']'));
            let bad = || invalid("metadata", "Filter by metadata with `metadata[name]=value`.");
            self.one(parameter)?;
            metadata.push((name.ok_or_else(bad)?.to_owned(), value.clone().into_owned()));
        }
        Ok(metadata)
    }
}

/// Reads the filter for an external id.
pub(super) fn external_id(query: &Query<'_>) -> Result<Option<String>, ApiError> {
    let external_id = query.text("external_id")?;
    if external_id.as_ref().is_some_and(|id| id.chars().count() > MAX_EXTERNAL_ID_CHARS) {
        let message = format!("`external_id` has more than {MAX_EXTERNAL_ID_CHARS} characters.");
        return Err(ApiError::at(Code::StringAboveMaxLength, "external_id", message));
    }
    Ok(external_id)
}

fn limit(text: &str) -> Result<usize, ApiError> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid("limit", format!("`limit` must be an integer from 1 to {MAX_PAGE}.")));
    }
    // A number that does not fit into a usize is above the maximum in any case.
    let magnitude = digits.parse().unwrap_or(usize::MAX);
    if negative || magnitude == 0 {
        return Err(ApiError::at(Code::IntegerBelowMinValue, "limit", "`limit` must be at least 1."));
    }
    if magnitude > MAX_PAGE {
        let message = format!("`limit` must be at most {MAX_PAGE}.");
        return Err(ApiError::at(Code::IntegerAboveMaxValue, "limit", message));
    }
    Ok(magnitude)
}

/// Returns the error for a parameter with an invalid value.
pub(super) fn invalid(param: &str, message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::at(Code::InvalidValue, param, message)
}

#[cfg(test)]
mod tests {
    use domain::key::ApiKey;
    use shared::wire::{ORDERS, STATUSES};

    use super::*;

    #[test]
    fn whatever_is_described_can_be_asked_for() {
        let asked = |query: String| super::read::<ApiKey>(Some(&query)).unwrap();
        let statuses = STATUSES.map(|name| asked(format!("status={name}")).filter.status.unwrap().as_str());
        assert_eq!(statuses, STATUSES);
        let orders = ORDERS.map(|name| asked(format!("order={name}")).order);
        assert_eq!((orders[0], orders[1]), (asked(String::new()).order, Order::Ascending));
        assert_eq!(asked(format!("limit={MAX_PAGE}")).limit, Some(MAX_PAGE));
    }
}
