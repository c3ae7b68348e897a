//! Faults for audits to find, written directly into records.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "panics are fine as test failures")]

use domain::ledger::Record;
use key_service_ledger::{
    names::{self, RecordName},
    stored::AccountRecord,
    view::{Stored, View},
};
use records::Write;
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
};

use crate::store::{Store, StoreError};

/// A fault for an audit to find.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The key's `used` is one too much.
    Used(KeyId),
    /// The account's credit is one too much.
    Credit,
    /// The only journal entry of this generation is missing.
    LostEntry(GenerationId),
    /// The first generation has an open hold that covers nothing: a copy of the second one's hold.
    PhantomHold(GenerationId, GenerationId),
}

impl Store {
    /// Writes a fault, bypassing the ledger.
    pub async fn doctor(&self, account: AccountId, fault: Fault) {
        let lost = match fault {
            Fault::LostEntry(lost) => {
                let entries = self.journal(account, 0, usize::MAX).await.unwrap().entries;
                assert_eq!(entries.iter().map(|entry| entry.generation).collect::<Vec<_>>(), [lost]);
                entries.into_iter().next()
            }
            Fault::Used(_) | Fault::Credit | Fault::PhantomHold(..) => None,
        };
        let plant = |view: &mut View| {
            match fault {
                Fault::Used(key) => {
                    let key = &names::key(key);
                    change(view, key, |key| add_one(&mut key.of.budget.used))?;
                }
                Fault::Credit => {
                    change(view, &names::account(), |account: &mut AccountRecord| {
                        add_one(&mut account.money.credit);
                    })?;
                }
                Fault::LostEntry(_) => {
                    let entry = lost.as_ref().unwrap();
                    // The counts now show that nothing was written, but the amounts do not.
                    change(view, &names::account(), |account: &mut AccountRecord| account.entries = 0)?;
                    let key = names::key(entry.entry.settlement.payer.key);
                    change(view, &key, |key| key.last_entry = 0)?;
                    view.write(Write::Trim { log: names::JOURNAL, first: entry.number + 1 });
                }
                Fault::PhantomHold(phantom, like) => {
                    let like: Record = view.get(&names::generation(like))?.unwrap_or_default();
                    if let Record::Open(hold) = &like {
                        view.enter(names::DUE, names::due(phantom, hold));
                    }
                    let phantom = names::generation(phantom);
                    view.presume_absent(&phantom);
                    view.put(&phantom, like);
                }
            }
            Ok(())
        };
        self.change(&names::space(account), plant).await.unwrap();
    }
}

/// Changes a record once it has been read.
fn change<T: Stored>(
    view: &mut View,
    name: &RecordName<T>,
    change: impl FnOnce(&mut T),
) -> Result<(), StoreError> {
    if let Some(mut value) = view.get::<T>(name)? {
        change(&mut value);
        view.put(name, value);
    }
    Ok(())
}

fn add_one(amount: &mut NanoUsd) {
    *amount = amount.checked_add(NanoUsd::from_nanos(1)).unwrap();
}
