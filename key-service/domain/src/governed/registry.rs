//! Refusals about accounts in the operator API.

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    wire::MAX_METADATA,
};

use crate::ledger::StandingRefused;

/// Reason why an account was not created, changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryRefused {
    NotFound,
    /// The name is empty, surrounded by spaces, or contains invisible characters.
    BadName,
    /// This account has the name.
    NameTaken(AccountId),
    /// This account has the external id.
    ExternalIdTaken(AccountId),
    /// The account has another external id.
    ExternalIdFixed,
    /// The metadata would have too many names.
    TooMuchMetadata,
    /// The reason for a suspension is empty, surrounded by spaces, or contains invisible characters.
    BadReason,
    /// The account cannot be suspended, restored or closed now.
    Standing(StandingRefused),
}

impl From<RegistryRefused> for ApiError {
    fn from(refused: RegistryRefused) -> Self {
        match refused {
            RegistryRefused::NotFound => Self::new(Code::AccountNotFound, "There is no such account."),
            RegistryRefused::BadName => {
                let says = "`name` must be visible characters, without spaces around them.";
                Self::at(Code::InvalidValue, "name", says)
            }
            RegistryRefused::NameTaken(id) => {
                Self::at(Code::AccountNameTaken, "name", format!("The account {id} has this name."))
            }
            RegistryRefused::ExternalIdTaken(id) => {
                let says = format!("The account {id} has this external id.");
                Self::at(Code::ExternalIdTaken, "external_id", says)
            }
            RegistryRefused::ExternalIdFixed => {
                let says = "`external_id` cannot be changed once it is set.";
                Self::at(Code::InvalidValue, "external_id", says)
            }
            RegistryRefused::TooMuchMetadata => {
                let says = format!("`metadata` would have more than {MAX_METADATA} members.");
                Self::at(Code::ObjectAboveMaxProperties, "metadata", says)
            }
            RegistryRefused::BadReason => {
                let says = "`reason` must be visible characters, without spaces around them.";
                Self::at(Code::InvalidValue, "reason", says)
            }
            RegistryRefused::Standing(StandingRefused::Closed) => closed(),
            RegistryRefused::Standing(StandingRefused::Active) => {
                Self::new(Code::AccountNotSuspended, "Suspend the account before you close it.")
            }
            RegistryRefused::Standing(StandingRefused::HasMoney { credit, held }) => {
                let says = format!(
                    "Close the account once it has no credit and nothing is held. It has {credit} USD, and {held} USD \
                     are held."
                );
                Self::new(Code::AccountHasMoney, says)
            }
        }
    }
}

/// Returns the error for a change in a closed account.
pub fn closed() -> ApiError {
    ApiError::new(Code::AccountEnded, "The account is closed.")
}
