//! Imports keys and groups of another gateway into an account.

mod draft;
pub mod litellm;
mod plan;
mod report;
mod values;

pub use self::{
    draft::{Draft, DraftGroup, DraftKey, Wrong},
    plan::{DigestOwner, Import, ImportRefused, ImportedKey, Plan, Present},
    report::{Report, ReportLine},
    values::Row,
};

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
