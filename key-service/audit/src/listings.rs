//! Compares payers' sums with the lists that are used to find a key's sums.

use std::collections::HashMap;

use domain::usage::Day;
use key_service_ledger::{StoreError, names::PayerName, stored::PayersOfKey, sums::SumsReader};
use shared::ids::KeyId;

use crate::sums::RecordedSum;

/// Number of keys whose lists are read at once.
const AT_ONCE: usize = 500;

/// The lists of keys as last read. A list that lacks a day is read again.
#[derive(Default)]
pub(super) struct PayerListings(HashMap<KeyId, PayersOfKey>);

impl PayerListings {
    /// Returns the payers with sums on a day that the lists lack.
    pub(super) async fn unlisted(
        &mut self,
        reader: &SumsReader<'_>,
        day: Day,
        sums: &[(Vec<u8>, RecordedSum)],
    ) -> Result<Vec<(KeyId, String)>, StoreError> {
        let payers = sums.iter().filter_map(|(name, _)| Some((name, PayerName::read(name)?)));
        let mut missing: Vec<_> = payers.filter(|(name, payer)| !self.has(payer.key, name, day)).collect();
        missing.sort_unstable_by_key(|(name, _)| *name);
        missing.dedup();
        for some in missing.chunks(AT_ONCE) {
            let keys: Vec<KeyId> = some.iter().map(|(_, payer)| payer.key).collect();
            let lists = reader.payers_of(&keys).await?;
            self.0.extend(keys.into_iter().zip(lists));
        }
        missing.retain(|(name, payer)| !self.has(payer.key, name, day));
        Ok(missing.into_iter().map(|(_, payer)| (payer.key, payer.model)).collect())
    }

    fn has(&self, key: KeyId, name: &[u8], day: Day) -> bool {
        self.0.get(&key).is_some_and(|list| list.finds(name, day))
    }
}
