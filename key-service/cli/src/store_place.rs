//! Arguments of `store copy` and `store show`.

use clap::{Args, Subcommand};
use shared::secret::SecretString;
use shared_config::parse_secret;

use key_service_store::store::ShownObject;

#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy everything to an empty store, for example from an SQLite file to a Redis, then compare and audit both
    ///
    /// Stop every program that uses either store first. If the copy is interrupted, run the same command again to
    /// complete it. The Redis settings (prefix, certificates) apply to both stores.
    Copy(StoreCopy),
    /// Print the records of an account, or of one of its objects, as JSON lines
    ///
    /// Without --id, prints the records of the account itself: money, profile, housekeeping and lists. Secrets, digests
    /// and hashes are shown as "hidden". Ids, times and amounts are written as in the API. Works while the store is in
    /// use.
    Show(StoreShow),
}

#[derive(Args, Clone, Debug)]
pub struct StoreCopy {
    /// URL of the store to copy from, which stays unchanged. It has the form of FAREGATE_STORE, but cannot be memory:
    #[arg(long, value_name = "URL", value_parser = parse_secret)]
    pub from: SecretString,
    /// URL of the store to copy to: an empty store, or a store that an interrupted copy has partly filled
    #[arg(long, value_name = "URL", value_parser = parse_secret)]
    pub to: SecretString,
}

#[derive(Args, Clone, Debug)]
pub struct StoreShow {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    pub account: String,
    /// A key (ak_…), group (grp_…), generation (gen_…), deposit (dep_…), management key (mk_…), member (mem_…), webhook (wh_…) or alert (alr_…)
    #[arg(long, value_name = "ID")]
    pub id: Option<ShownObject>,
}
