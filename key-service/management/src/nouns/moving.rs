//! Imports keys and groups from another gateway together.

use shared::{
    clock::random_bytes,
    ids::{AccountId, GroupId, KeyId},
};

use crate::management::Management;
use domain::{event::Actor, ledger::Budget};
use key_service_moving::{Draft, Import, ImportRefused, ImportedKey, Plan};
use key_service_store::store::Error;

impl Management {
    /// Imports keys and groups, or only reports what an import would create. Existing keys and groups stay unchanged.
    pub async fn import(
        &self,
        account: AccountId,
        draft: &Draft,
        is_dry_run: bool,
        actor: Actor,
    ) -> Result<Plan, Error<ImportRefused>> {
        self.check_room_for_secret().await?;
        let act = self.act(actor);
        let now = act.at;
        let at = self.later_than_the_last(now);
        let groups = draft.groups.iter().zip(0..).map(|(group, n)| {
            let mut group = group.group(GroupId::new(at, in_order(n, random_bytes(&*self.clock))), now);
            self.name_by_id(models(&mut group.spend.budget).chain(models(&mut group.key_defaults.budget)));
            group
        });
        let mut keys = Vec::with_capacity(draft.keys.len());
        for (key, n) in draft.keys.iter().zip(0..) {
            let digest = self.credentials.digest_of(&key.foreign).await?;
            let id = KeyId::new(at, in_order(n, random_bytes(&*self.clock)));
            let mut made = key.key(id, now);
            self.name_by_id(models(&mut made.spend.budget));
            keys.push(ImportedKey { key: made, digest, group: key.group.clone() });
        }
        let (most_keys, most_groups) = (self.max_keys, self.max_keys);
        let import = Import { account, groups: groups.collect(), keys, most_keys, most_groups };
        self.store.import(import, is_dry_run, &act).await
    }
}

/// Returns the list of models that a budget allows, if it has one.
fn models(budget: &mut Budget) -> impl Iterator<Item = &mut Vec<String>> {
    budget.bounds.iter_mut().filter_map(|bounds| bounds.models.as_mut())
}

/// Writes a number below 2^18 into the random bytes of an id, so that ids from the same millisecond sort by it. An id
/// keeps only 4, 8 and 6 bits of the first three bytes.
fn in_order(n: u32, mut random: [u8; 10]) -> [u8; 10] {
    let [_, high, middle, low] = (n << 2).to_be_bytes();
    random[..3].copy_from_slice(&[high, middle, low >> 2]);
    random
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ledger::histories::START;

    #[test]
    fn ids_of_an_import_are_in_the_order_of_its_lines() {
        let id = |n| KeyId::new(START, in_order(n, [0xa5; 10]));
        for n in [0, 1, 63, 64, 16_383, 16_384, 99_999, 262_142] {
            assert!(id(n) < id(n + 1), "{n}");
        }
    }
}
