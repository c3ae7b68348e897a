//! Stores and records, as `store copy` and `store show` take them.

use clap::{Args, Subcommand};
use shared::secret::SecretString;
use shared_config::parse_secret;

use key_service_store::store::ShownObject;

/// Commands on the store itself.
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy everything to an empty store, such as from an SQLite file to a Redis, compare both, and audit both
    ///
    /// Stop every program that serves either before. A copy that ended early is completed by the same command. Settings of Redis
    /// (prefix, certificates) hold for both stores.
    Copy(StoreCopy),
    /// Print the records of an account, or of something that it has, as JSON lines
    ///
    /// Without --id the records of the account itself: money, profile, house-keeping, lists. Secrets, and digests and hashes of
    /// secrets, are shown as "hidden". Amounts are in nano-USD, times in milliseconds since 1970. Works while the store is served.
    Show(StoreShow),
}

/// The stores of a copy.
#[derive(Args, Clone, Debug)]
pub struct StoreCopy {
    /// URL of the store that is copied, which stays as it is: as FAREGATE_STORE takes it, but for memory:
    #[arg(long, value_name = "URL", value_parser = parse_secret)]
    pub from: SecretString,
    /// URL of the store that is written: an empty one, or one that an earlier copy has begun to write
    #[arg(long, value_name = "URL", value_parser = parse_secret)]
    pub to: SecretString,
}

/// The records to show.
#[derive(Args, Clone, Debug)]
pub struct StoreShow {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    pub account: String,
    /// A key (ak_…), group (grp_…), generation (gen_…), deposit (dep_…), management key (mk_…), member (mem_…) or webhook (wh_…)
    #[arg(long, value_name = "ID")]
    pub id: Option<ShownObject>,
}
