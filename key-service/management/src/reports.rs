//! Sums for members and operators: usage, spend and refusals by day, key, group, model and account.

pub mod account_list;
pub mod books;
mod by_upstream;
pub mod entries;
pub mod jumps;
pub mod local_days;
pub mod margin;
pub mod spend;
pub mod statement;
pub mod top;
pub mod trouble;
pub mod upstreams;
pub mod usage;
