//! Sums for members and operators: what was used, spent and refused, by day, key, group, model and account.

pub mod account_list;
pub mod books;
pub mod entries;
pub mod margin;
pub mod spend;
pub mod statement;
pub mod top;
pub mod trouble;
pub mod upstreams;
pub mod usage;
