//! Fuzz target for queries.

use domain::{alert::Alert, event::Event, group::Group, key::ApiKey, webhook::Webhook};
use key_service_management::generations::Bill;
use shared::{error::Code, wire::MAX_PAGE};
use shared_fuzz::{Examples, Input, fuzz};

use crate::query::{Filtered, Query, read};

fn examples() -> Examples {
    Examples::of([
        "limit=100&order=asc&status=active&after=ak_0198f1a2b3c4d5e6f708192a3b4c5d6e&metadata[a%20b]=c",
        "start=2027-12-31&end=9999-12-31&key_id=ak_0198f1a2b3c4d5e6f708192a3b4c5d6e&model=Model%20Flash",
        "type=key.created&group_id=grp_0198f1a2b3c4d5e6f708192a3b4c5d6e&external_id=t+1&start=2027-12-31T23:59:59-02:00",
    ])
}

/// Checks that the page size is within its limits for any accepted query, and that a refusal names a parameter.
#[test]
fn queries() {
    fuzz(&examples(), |input: &Input| {
        let text = input.text();
        check::<ApiKey>(&text);
        check::<Group>(&text);
        check::<Webhook>(&text);
        check::<Alert>(&text);
        check::<Event>(&text);
        check::<Bill>(&text);
        let query = Query::parse(Some(&*text));
        for name in ["start", "end"] {
            if let Ok(Some(time)) = query.time(name) {
                assert!(time.start <= time.end);
            }
        }
    });
}

fn check<T: Filtered>(query: &str) {
    match read::<T>(Some(query)) {
        Ok(list) => assert!(list.limit.is_none_or(|limit| (1..=MAX_PAGE).contains(&limit))),
        Err(error) => assert!(error.param.is_some() && error.code != Code::InternalError, "{error:?}"),
    }
}
