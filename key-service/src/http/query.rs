//! Query of a listing: `limit`, `after`, `order`, `status`. Other parameters are ignored.

use std::borrow::Cow;

use shared::{
    error::{ApiError, Code},
    ids::KeyId,
    wire::MAX_PAGE,
};

use crate::{management::KeyRefused, store::Order};
use domain::key::Status;

/// The parameters of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListQuery {
    /// The size of the page; `None` is all keys.
    pub(super) limit: Option<usize>,
    /// Key behind which the listing begins.
    pub(super) after: Option<KeyId>,
    /// Order of the listing.
    pub(super) order: Order,
    /// Only keys with this status.
    pub(super) status: Option<Status>,
}

/// Reads and checks a query.
pub(super) fn read(query: Option<&str>) -> Result<ListQuery, ApiError> {
    let pairs: Vec<_> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
    let limit = one(&pairs, "limit")?.map(limit).transpose()?;
    let after = one(&pairs, "after")?.map(|text| text.parse().map_err(|_| KeyRefused::UnknownCursor));
    let order = match one(&pairs, "order")? {
        None | Some("desc") => Order::Descending,
        Some("asc") => Order::Ascending,
        Some(_) => return Err(invalid("order", "`order` must be `asc` or `desc`.")),
    };
    let status = one(&pairs, "status")?
        .map(|text| Status::parse(text).ok_or_else(|| invalid("status", BAD_STATUS)))
        .transpose()?;
    Ok(ListQuery { limit, after: after.transpose()?, order, status })
}

const BAD_STATUS: &str = "`status` must be `active`, `expired` or `revoked`.";

/// Value of a parameter. A parameter given twice is refused, since client and server may disagree about the value.
fn one<'a>(pairs: &'a [(Cow<'_, str>, Cow<'_, str>)], name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = pairs.iter().filter(|(n, _)| n == name).map(|(_, value)| &**value);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(invalid(name, format!("`{name}` is given more than once."))),
    }
}

fn limit(text: &str) -> Result<usize, ApiError> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid("limit", format!("`limit` must be an integer from 1 to {MAX_PAGE}.")));
    }
    // Digits that do not fit a usize are a number that is too large.
    let magnitude = digits.parse().unwrap_or(usize::MAX);
    if negative || magnitude == 0 {
        return Err(ApiError::at(Code::IntegerBelowMinValue, "limit", "`limit` must be at least 1."));
    }
    if magnitude > MAX_PAGE {
        let message = format!("`limit` must be at most {MAX_PAGE}; leave it out to get every key.");
        return Err(ApiError::at(Code::IntegerAboveMaxValue, "limit", message));
    }
    Ok(magnitude)
}

fn invalid(param: &str, message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::at(Code::InvalidValue, param, message)
}

#[cfg(test)]
mod tests {
    use shared::wire::{ORDERS, STATUSES};

    use super::*;

    #[test]
    fn whatever_is_described_can_be_asked_for() {
        let asked = |query: String| super::read(Some(&query)).unwrap();
        let statuses = STATUSES.map(|name| asked(format!("status={name}")).status.unwrap().as_str());
        assert_eq!(statuses, STATUSES);
        let orders = ORDERS.map(|name| asked(format!("order={name}")).order);
        assert_eq!((orders[0], orders[1]), (asked(String::new()).order, Order::Ascending));
        assert_eq!(asked(format!("limit={MAX_PAGE}")).limit, Some(MAX_PAGE));
    }
}
