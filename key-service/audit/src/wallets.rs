//! Compares the wallets of groups with payments and refunds.

use std::collections::HashMap;

use domain::{
    audit::Auditor,
    ledger::{Group, Record as LedgerRecord, WalletChange},
};
use key_service_ledger::{
    StoreError,
    names::{self, nouns as layout},
    reading::{no_answer, value},
    stored::Balance,
};
use records::{Answer, Question, Space};
use shared::ids::{DepositId, GroupId};

use crate::{account::deposit_id, bounds::AT_ONCE, reading::Books};

/// For each payment or refund, how it changed a wallet, if it did. A written payment or refund is never modified.
type Changes = HashMap<DepositId, Option<WalletChange>>;

impl Books<'_> {
    /// Compares every group with the payments and refunds that name it. Each page of groups is read at one moment.
    pub(super) async fn prove_wallets(&self, space: &Space, auditor: &mut Auditor) -> Result<(), StoreError> {
        let (mut changes, mut after) = (Changes::new(), None);
        while let Some(ids) = self.ids_behind(space, layout::GROUPS, after).await? {
            after = ids.last().copied();
            let groups: Vec<GroupId> = ids.iter().filter_map(|id| GroupId::from_slice(id)).collect();
            let records = groups.iter().map(|id| names::group(*id).into()).collect();
            let questions = vec![Question::Records(records), Question::whole(names::DEPOSITED)];
            let answers: [Answer; 2] =
                self.read().ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
            let [Answer::Records(records), Answer::Entries(deposited)] = answers else {
                return Err(no_answer());
            };
            let deposited = deposited.iter().map(|entry| deposit_id(entry)).collect::<Result<Vec<_>, _>>()?;
            self.read_changes(space, &deposited, &mut changes).await?;
            let mut paid: HashMap<GroupId, i128> = HashMap::new();
            for WalletChange { group, change, .. } in deposited.iter().filter_map(|id| changes[id]) {
                *paid.entry(group).or_default() += i128::from(change.nanos());
            }
            for (id, record) in groups.into_iter().zip(&records) {
                // A missing record is reported by the check of the indexes.
                let Some(record) = record else { continue };
                let Balance::<Group> { of, .. } = value(record)?;
                auditor.wallet(id, &of, paid.remove(&id).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Reads those of the deposits that are not in `changes` yet, and adds how they changed wallets.
    async fn read_changes(
        &self,
        space: &Space,
        deposited: &[DepositId],
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let unknown: Vec<_> = deposited.iter().copied().filter(|id| !changes.contains_key(id)).collect();
        for ids in unknown.chunks(AT_ONCE) {
            let records = ids.iter().map(|id| names::deposit(*id)).collect();
            let records = self.read().get_all::<LedgerRecord>(space, records).await?;
            changes.extend(ids.iter().zip(records).map(|(id, record)| match record {
                Some(LedgerRecord::Deposited(deposited)) => (*id, deposited.wallet),
                Some(LedgerRecord::None | LedgerRecord::Open(_) | LedgerRecord::Closed(_)) | None => {
                    (*id, None)
                }
            }));
        }
        Ok(())
    }
}
