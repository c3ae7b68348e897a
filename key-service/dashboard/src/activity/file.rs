//! The journal as a file, streamed as fast as the client reads.

use std::{collections::HashMap, sync::Arc};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::header;
use shared::ids::{GroupId, KeyId};
use shared_door::admission::Permit;

use crate::activity::{
    export::{EntryNames, ExportLines},
    filters,
};
use key_service_management::{Management, reach::AccountReach, reading::EntrySearch};
use key_service_page::{
    app::App,
    failure::Failure,
    form::query,
    session::{KeysViewer, Viewer},
};
use key_service_ranges::range::Range;
use key_service_store::store::StoreError;

/// Number of entries to read at a time, which limits the memory that an export needs.
const ENTRIES_IN_PIECE: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileForm {
    Csv,
    /// One JSON object per line.
    JsonLines,
}

/// Streams the matching entries as CSV.
pub(crate) async fn csv(
    app: State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    file(app, &viewer, &request, FileForm::Csv)
}

/// Streams the matching entries as JSON lines.
pub(crate) async fn json_lines(
    app: State<App>,
    KeysViewer(viewer): KeysViewer,
    request: Request,
) -> Result<Response, Failure> {
    file(app, &viewer, &request, FileForm::JsonLines)
}

/// The rest of a file, still to be sent.
struct Rest {
    _permit: Permit,
    management: Arc<Management>,
    reach: AccountReach,
    search: EntrySearch,
    format: FileForm,
    lines: ExportLines,
    before: Option<u64>,
    labels: HashMap<KeyId, String>,
    groups: HashMap<GroupId, String>,
    is_first: bool,
}

fn file(
    State(app): State<App>,
    viewer: &Viewer,
    request: &Request,
    format: FileForm,
) -> Result<Response, Failure> {
    let (query, today) = (query(request), viewer.today(&app));
    let range = Range::of(&query, &today);
    let query = filters::with_range(&query, &range);
    let rest = Rest {
        _permit: app.exports.begin(viewer.signed_in.account)?,
        management: app.management,
        reach: viewer.reach(),
        // Files contain only billed requests.
        search: filters::search(&query, &today.zone)?.billed.ok_or(Failure::NotFound)?,
        format,
        lines: ExportLines { with_upstream_cost: viewer.is_owner() },
        before: None,
        labels: HashMap::new(),
        groups: HashMap::new(),
        is_first: true,
    };
    let (content_type, extension) = match format {
        FileForm::Csv => ("text/csv; charset=utf-8", "csv"),
        FileForm::JsonLines => ("application/jsonl; charset=utf-8", "jsonl"),
    };
    let name = range.attachment("activity", extension);
    let headers = [(header::CONTENT_TYPE, content_type), (header::CONTENT_DISPOSITION, name.as_str())];
    Ok((headers, Body::from_stream(try_unfold(Some(rest), Rest::next_piece))).into_response())
}

impl Rest {
    /// Returns the next piece of the file. If the store fails, the connection is cut, so that no client mistakes a part
    /// for the whole file.
    async fn next_piece(rest: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, StoreError> {
        let Some(mut rest) = rest else { return Ok(None) };
        let (management, reach) = (rest.management.clone(), rest.reach);
        let page = management.find_entries(reach, &rest.search, rest.before, ENTRIES_IN_PIECE).await?;
        let unknown = page.found.iter().map(|entry| entry.entry.settlement.payer.key);
        let unknown: Vec<KeyId> = unknown.filter(|id| !rest.labels.contains_key(id)).collect();
        let keys = management.keys_by_id(reach, unknown).await?;
        rest.labels.extend(keys.into_iter().map(|(id, key)| (id, key.label)));
        let groups = page.found.iter().flat_map(|entry| entry.entry.settlement.payer.groups).flatten();
        let unknown: Vec<GroupId> = groups.filter(|id| !rest.groups.contains_key(id)).collect();
        let groups = management.groups_by_id(reach, unknown).await?;
        rest.groups.extend(groups.into_iter().map(|(id, group)| (id, group.name)));
        let mut piece = String::new();
        if rest.is_first && rest.format == FileForm::Csv {
            piece.push_str(&rest.lines.csv_head());
        }
        rest.is_first = false;
        for entry in &page.found {
            let payer = &entry.entry.settlement.payer;
            let label = rest.labels.get(&payer.key).map_or("", String::as_str);
            let name = |id: GroupId| rest.groups.get(&id).map_or("", String::as_str);
            let names = EntryNames { label, groups: payer.groups.map(|id| id.map_or("", name)) };
            match rest.format {
                FileForm::Csv => rest.lines.csv(&mut piece, entry, names),
                FileForm::JsonLines => rest.lines.json(&mut piece, entry, names),
            }
        }
        rest.before = page.next;
        let left = rest.before.is_some().then_some(rest);
        Ok(Some((Bytes::from(piece), left)))
    }
}
