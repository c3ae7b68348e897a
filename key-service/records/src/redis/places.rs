//! Lists the names in Redis, master by master.

use std::sync::Arc;

use redis::{Value, cmd};

use super::{
    client::Client,
    key_space::KeySpace,
    masters::server::Server,
    questions::{failure, senseless},
};
use crate::records::{Failure, Place, Space};

/// Approximate number of names scanned for a page; Redis needs a few hundred microseconds.
const PAGE: usize = 500;

pub(super) async fn all(client: &Client, names: &KeySpace) -> Result<Vec<(Space, Place)>, Failure> {
    let mut places = Vec::new();
    for master in client.masters() {
        let mut cursor = "0".to_owned();
        loop {
            let (next, found) = page(names, &master, &cursor).await?;
            places.extend(found);
            if next == "0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(places)
}

/// Scans a page of a master's names after a cursor, and returns the next cursor.
async fn page(
    names: &KeySpace,
    master: &Arc<Server>,
    cursor: &str,
) -> Result<(String, Vec<(Space, Place)>), Failure> {
    let mut scan = cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(names.pattern()).arg("COUNT").arg(PAGE);
    let answer: Value = master.ask(&scan).await.map_err(|e| failure(&e))?;
    let (next, found): (String, Vec<Vec<u8>>) = redis::from_redis_value(answer).map_err(|_| senseless())?;
    Ok((next, found.iter().filter_map(|name| names.read(name)).collect()))
}
