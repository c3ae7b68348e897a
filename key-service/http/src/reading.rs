//! Read-only routes: an account's money, counters, bills and events, and the API key that makes the request.

use std::collections::BTreeSet;

use axum::{
    extract::{Request, State},
    response::Response,
};
use shared::{
    error::{ApiError, Code},
    ids::GenerationId,
    wire::{Credits, MAX_TOP, UsageList, UsageObject},
};
use shared_door::http::ok;

use crate::{
    api::Api,
    error::{forbidden, read_error},
    listing,
    parts::{Caller, Holder, PathId},
    query::{self, Query, invalid},
};
use domain::{access::Subject, event::Event, refused::RefusedCall, usage::Day};
use key_service_management::{
    generations::Bill,
    usage::{GROUPINGS, Grouping, MAX_DAYS, UsageSearch, UsageSum, UserPart},
};
use key_service_objects::{Shown, own_group, with_group};

/// Number of days of usage to show if the request has no `start`.
const DEFAULT_DAYS: i64 = 30;
/// Maximum number of days for usage by hour, because each line of a day becomes up to 24 lines.
const MAX_HOURLY_DAYS: i64 = 31;

pub(super) async fn credits(State(api): State<Api>, Caller(caller): Caller) -> Result<Response, ApiError> {
    let money = api.management.money(caller.account).await.map_err(read_error)?;
    Ok(ok(&Credits {
        object: "credits",
        credit: money.credit,
        held: money.held,
        total_deposited: money.deposited,
        total_refunded: money.refunded,
        total_used: money.used,
    }))
}

pub(super) async fn usage(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let mut search = usage_search(&Query::parse(request.uri().query()), api.management.today())?;
    search.within = caller.access.group;
    if !search.is_counted() {
        let message = "Sums by `user` or by `upstream` cover the whole account, and can be grouped further only by `day`.";
        return Err(invalid("group_by", message));
    }
    let sums = api.management.sums_of_usage(caller.account, &search).await.map_err(read_error)?;
    let data = sums.iter().map(line).collect();
    Ok(ok(&UsageList { object: "list", data, has_more: false }))
}

fn usage_search(query: &Query<'_>, today: Day) -> Result<UsageSearch, ApiError> {
    let days = |name| Ok::<_, ApiError>(query.time(name)?.map(|time| Day::of(time.start)));
    let last = days("end")?.unwrap_or(today);
    let first = days("start")?.unwrap_or(last.plus(1 - DEFAULT_DAYS));
    if last.number() - first.number() >= MAX_DAYS {
        return Err(invalid("start", format!("`start` and `end` must be at most {MAX_DAYS} days apart.")));
    }
    let mut by = BTreeSet::new();
    for name in query.one("group_by")?.iter().flat_map(|names| names.split(',')) {
        let grouping = GROUPINGS.into_iter().find(|grouping| grouping.as_str() == name);
        let message = "`group_by` must be one or more of `day`, `hour`, `key`, `group`, `top_group`, `model`, `user` and `upstream`, separated by commas.";
        by.insert(grouping.ok_or_else(|| invalid("group_by", message))?);
    }
    if by.contains(&Grouping::Hour) && last.number() - first.number() >= MAX_HOURLY_DAYS {
        let message = format!("Sums by `hour` cover at most {MAX_HOURLY_DAYS} days.");
        return Err(invalid("group_by", message));
    }
    let top = query.one("top")?.map(|text| {
        let top = text.parse().ok().filter(|top| (1..=MAX_TOP).contains(top));
        top.ok_or_else(|| invalid("top", format!("`top` must be a number between 1 and {MAX_TOP}.")))
    });
    let (key, group, top) = (query.key()?, query.group()?, top.transpose()?);
    Ok(UsageSearch { days: first..=last, key, group, within: None, by, top })
}

fn line((of, counts): &UsageSum) -> UsageObject<'_> {
    UsageObject {
        day: of.day.map(|day| day.to_string()),
        hour: of.hour.map(|hour| hour.begins().to_string()),
        user: of.user.as_ref().map(|user| match user {
            UserPart::Named(user) => Some(user.as_str()),
            UserPart::Unnamed | UserPart::Others => None,
        }),
        other_users: of.user == Some(UserPart::Others),
        key_id: of.key,
        group_id: of.group,
        top_group_id: of.top_group,
        upstream: of.upstream.as_ref().map(Option::as_deref),
        others: of.are_others,
        model: of.model.as_deref(),
        requests: counts.requests,
        prompt_tokens: counts.prompt,
        cached_tokens: counts.cached,
        completion_tokens: counts.completion,
        cost: counts.charged,
    }
}

pub(super) async fn generations(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<Bill>(request.uri().query())?.asked_by(&caller);
    query.filter.within = caller.access.group;
    listing::respond(api, caller.account, query).await
}

pub(super) async fn refusals(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let mut query = query::read::<RefusedCall>(request.uri().query())?.asked_by(&caller);
    query.filter.within = caller.access.group;
    listing::respond(api, caller.account, query).await
}

pub(super) async fn events(
    State(api): State<Api>,
    Caller(caller): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Event>(request.uri().query())?.asked_by(&caller);
    listing::respond(api, caller.account, query).await
}

pub(super) async fn generation(
    State(api): State<Api>,
    Caller(caller): Caller,
    path: PathId<GenerationId>,
) -> Result<Response, ApiError> {
    let unknown = || ApiError::new(Code::GenerationNotFound, "The account has no bill of this generation.");
    let bill = api.management.bill(caller.account, path.or(unknown())?).await.map_err(read_error)?;
    let bill = bill.ok_or_else(unknown)?;
    let judged = caller.may(Subject::Key(bill.settlement.payer.groups));
    judged.map_err(|error| forbidden(error, unknown()))?;
    Ok(ok(&bill.shown(api.clock.now())))
}

/// Shows an API key to the program that holds it. This does not count as a use of the key, and works even without
/// money.
pub(super) async fn own_key(State(api): State<Api>, Holder(own): Holder) -> Response {
    let group = own.group.as_ref().map(|(group, parent)| own_group(group, parent.as_ref()));
    ok(&with_group(&own.key, group.as_ref(), api.clock.now()))
}
