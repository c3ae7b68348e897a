//! Pseudonyms of users and caches for vendors.

use shared::ids::AccountId;

/// Makes a pseudonym for a caller's user or cache. It differs between accounts, reveals no name to the vendor, and is
/// the same on every gateway.
pub(crate) fn pseudonym(account: AccountId, text: &str) -> String {
    let account = account.to_string();
    let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 pseudonyms of callers' names");
    hasher.update(&(account.len() as u64).to_le_bytes()).update(account.as_bytes()).update(text.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// Maximum length, in bytes, of a user's or cache's name that is kept unchanged. Vendors accept 64 to 256 characters.
const MAX_NAME: usize = 256;

/// Returns the form in which a caller's name for a user or a cache is kept with a request: the name itself or, if it is
/// long, its hash.
pub(crate) fn kept_name(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let hash = blake3::derive_key("faregate 2026 long names of callers", name.as_bytes());
    blake3::Hash::from_bytes(hash).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use shared::time::Timestamp;

    use super::*;

    fn account(number: u8) -> AccountId {
        AccountId::new(Timestamp::from_millis(1), [number; 10])
    }

    #[test]
    fn a_name_has_one_pseudonym_an_account_which_fits_where_vendors_take_names() {
        let name = pseudonym(account(1), "user-7");
        assert_eq!((name.len(), &name), (64, &pseudonym(account(1), "user-7")));
        assert_ne!(name, pseudonym(account(2), "user-7"));
        assert_ne!(name, pseudonym(account(1), "user-8"));
    }

    #[test]
    fn a_name_of_any_length_is_kept_in_few_bytes_and_stays_apart_from_others() {
        let long = "u".repeat(MAX_NAME);
        assert_eq!(kept_name(&long), long);
        let longer =
            [format!("{long}1"), format!("{long}2"), "u".repeat(1 << 20)].map(|name| kept_name(&name));
        assert!(longer.iter().all(|kept| kept.len() == 64));
        assert!(longer[0] != longer[1] && longer[1] != longer[2]);
    }
}
