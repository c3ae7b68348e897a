//! Refusals about accounts in the operator API.

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    wire::MAX_METADATA,
};

/// Reason why an account was not opened, changed or found.
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
        }
    }
}
