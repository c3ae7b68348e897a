//! The number of the layout in Redis. Data with another layout is refused, because it would be misread.

use redis::{RedisResult, cmd};

use super::{
    connection::{Connection, if_here, refused},
    key_space::KeySpace,
};

/// The layout that this program reads and writes. Programs with the layouts 1 to 5 check the same number, and refuse
/// this layout.
const LAYOUT: u32 = 6;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum OtherLayout {
    #[error(
        "Redis holds data in the layout of an earlier version, which this version cannot read and leaves as it is. \
         Read what is there with the earlier version (`accounts list`, `journal export`), start this version with \
         another FAREGATE_REDIS_PREFIX or an empty Redis, and enter the credit that is left with `credits add`"
    )]
    Earlier,
    #[error(
        "Redis holds data in layout {0}, and this version reads layout {LAYOUT}: use the version that wrote it"
    )]
    Later(String),
}

/// Refuses data with another layout. Writes the number into an empty Redis. In a cluster, each master is checked for
/// its own names.
pub(super) async fn check(connection: &mut Connection, key_space: &KeySpace) -> RedisResult<()> {
    let layout = cmd("GET").arg(key_space.schema()).query_async::<Option<String>>(connection).await;
    let layout = if_here(layout)?;
    if let Some(Some(layout)) = layout {
        return match layout.parse() {
            Ok(LAYOUT) => Ok(()),
            Ok(..LAYOUT) => Err(refused(OtherLayout::Earlier)),
            Ok(_) | Err(_) => Err(refused(OtherLayout::Later(layout))),
        };
    }
    let accounts = cmd("HLEN").arg(key_space.first_layout()).query_async::<u64>(connection).await;
    if if_here(accounts)?.unwrap_or_default() > 0 {
        return Err(refused(OtherLayout::Earlier));
    }
    match layout {
        Some(_) => cmd("SET").arg(key_space.schema()).arg(LAYOUT).query_async(connection).await,
        None => Ok(()),
    }
}
