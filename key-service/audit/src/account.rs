//! Audits the account: its money, its profile, its entries in the indexes of accounts, and its deposits.

use std::collections::HashSet;

use domain::{
    audit::{Auditor, Figure, Quantity, Stored},
    ledger::{Deposited, LastDeposit, Record as LedgerRecord, WalletChange},
};
use key_service_ledger::{
    StoreError,
    names::{self, nouns as layout},
    reading::{no_answer, value},
    stored::{AccountClaim, AccountLabelsRecord, AccountName, AccountProfile, AccountRecord, HolderRecord},
};
use records::{Answer, Log, Name, Order, Question, Space};
use shared::{
    ids::{AccountId, DepositId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{
    balances::Holds,
    bounds::{ALL, AT_ONCE},
    reading::{Books, damaged},
};

/// The account's records, index entries and last numbers, all read at the same moment.
pub(super) struct AccountMoment {
    /// `None` if the store has lost the record.
    pub(super) record: Option<AccountRecord>,
    profile: Option<AccountProfile>,
    labels: Option<AccountLabelsRecord>,
    due: Vec<Vec<u8>>,
    deposited: Vec<Vec<u8>>,
    has_entries: bool,
    last_event: u64,
}

impl AccountMoment {
    /// Returns the sum of the open holds.
    pub(super) fn held(&self) -> NanoUsd {
        Holds::read(&self.due).all()
    }

    /// Returns whether the store has no record, index entry, journal entry or event of the account.
    fn is_empty(&self) -> bool {
        let Self { record, profile, labels, due, deposited, has_entries, last_event } = self;
        let has_records = record.is_some() || profile.is_some() || labels.is_some();
        !has_records && due.is_empty() && deposited.is_empty() && !has_entries && *last_event == 0
    }
}

impl Books<'_> {
    /// Reads the account's records; `None` if it has none.
    pub(super) async fn account_moment(&self, space: &Space) -> Result<Option<AccountMoment>, StoreError> {
        let last =
            |log: Log| Question::Values { log, from: 0, to: u64::MAX, order: Order::Descending, limit: 1 };
        let questions = vec![
            Question::Records(vec![
                names::account().into(),
                layout::account_profile().into(),
                layout::account_labels().into(),
            ]),
            Question::whole(names::DUE),
            Question::whole(names::DEPOSITED),
            last(names::JOURNAL),
            last(names::EVENTS),
        ];
        let answers: [Answer; 5] =
            self.read().ask(space, questions).await?.try_into().map_err(|_| no_answer())?;
        let [
            Answer::Records(records),
            Answer::Entries(due),
            Answer::Entries(deposited),
            Answer::Values(entry),
            Answer::Values(event),
        ] = answers
        else {
            return Err(no_answer());
        };
        let [account, profile, labels] = &records[..] else { return Err(no_answer()) };
        let moment = AccountMoment {
            record: account.as_ref().map(value).transpose()?,
            profile: profile.as_ref().map(value).transpose()?,
            labels: labels.as_ref().map(value).transpose()?,
            due,
            deposited,
            has_entries: !entry.is_empty(),
            last_event: event.first().map_or(0, |(number, _)| *number),
        };
        Ok((!moment.is_empty()).then_some(moment))
    }

    /// Compares the account's records with the indexes of accounts and with the log of events.
    pub(super) async fn prove_account(
        &self,
        account: AccountId,
        moment: &AccountMoment,
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        match &moment.profile {
            None => auditor.missing(Stored::AccountProfile),
            Some(profile) => {
                if self.account_of_name(&profile.name).await? != Some(account) {
                    auditor.missing(Stored::AccountName);
                }
            }
        }
        // An external id is claimed before the account gets it, so an account that has the id must have the claim.
        if let Some(external_id) = moment.labels.as_ref().and_then(|labels| labels.external_id.as_deref())
            && self.account_of_external_id(external_id).await? != Some(account)
        {
            auditor.missing(Stored::ExternalId);
        }
        if let Some(AccountRecord { events, .. }) = moment.record {
            let (recorded, proven) = (Quantity::Count(events), Quantity::Count(moment.last_event));
            auditor.quantity(Figure::LastEvent, recorded, proven);
        }
        self.prove_holder(account, &moment.due, auditor).await
    }

    /// Checks that an account with open holds is in the index of accounts with holds, so that its holds can expire. An
    /// account enters this index before it gets its first hold, and leaves it only while it has no holds.
    async fn prove_holder(
        &self,
        account: AccountId,
        due: &[Vec<u8>],
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        let of_account: Name = layout::name::<HolderRecord>(layout::HOLDERS, *account.as_bytes()).into();
        let generations = |due: &[Vec<u8>]| -> HashSet<_> {
            due.iter().filter_map(|entry| names::read_due(entry)).map(|(_, generation)| generation).collect()
        };
        if due.is_empty() {
            return Ok(());
        }
        for part in layout::holders(account) {
            if self.read().records_of(&part, vec![of_account.clone()]).await? != [None] {
                return Ok(());
            }
        }
        let space = names::space(account);
        let later =
            self.read().entries(&space, names::DUE, (Vec::new(), None), Order::Ascending, ALL).await?;
        // An account must stay listed while one of its holds stays open.
        if !generations(due).is_disjoint(&generations(&later)) {
            auditor.missing(Stored::Holder);
        }
        Ok(())
    }

    async fn account_of_name(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        let (space, of_name) = layout::account_name(name);
        let owner = self.read().get::<AccountName>(&space, of_name).await?;
        Ok(owner.map(|owner| owner.account))
    }

    async fn account_of_external_id(&self, external_id: &str) -> Result<Option<AccountId>, StoreError> {
        let (space, name) = layout::account_external_id(external_id);
        let claim = self.read().get::<AccountClaim>(&space, name).await?;
        Ok(claim.map(|claim| claim.account))
    }

    /// Reads the amounts of all deposits, and compares each deposit with its entry in the index and with its payment.
    pub(super) async fn prove_deposits(
        &self,
        account: AccountId,
        moment: &AccountMoment,
        auditor: &mut Auditor,
    ) -> Result<Vec<NanoUsd>, StoreError> {
        let space = names::space(account);
        let last = moment.record.and_then(|record| record.money.last_deposit);
        let (mut amounts, mut knows_last) = (Vec::with_capacity(moment.deposited.len()), last.is_none());
        let mut has_raised = false;
        for entries in moment.deposited.chunks(AT_ONCE) {
            let ids = entries.iter().map(|entry| deposit_id(entry)).collect::<Result<Vec<_>, _>>()?;
            let records = ids.iter().map(|id| names::deposit(*id)).collect();
            let records = self.read().get_all::<LedgerRecord>(&space, records).await?;
            for ((entry, id), record) in entries.iter().zip(ids).zip(records) {
                let Some(LedgerRecord::Deposited(deposited)) = record else {
                    auditor.missing(Stored::Deposit(id));
                    continue;
                };
                if !fits(account, id, entry, &deposited) {
                    auditor.missing(Stored::Deposit(id));
                }
                has_raised |= deposited.amount > NanoUsd::ZERO;
                knows_last |= last.is_some_and(|last| is_last(last, entry, id, &deposited));
                amounts.push(deposited.amount);
            }
        }
        if !knows_last || (last.is_none() && has_raised) {
            auditor.missing(Stored::LastDeposit);
        }
        Ok(amounts)
    }
}

/// Returns whether a deposit agrees with its index entry and, if a payment made it, with the payment's id and time. The
/// id of a deposit that a payment made contains no time.
fn fits(account: AccountId, id: DepositId, entry: &[u8], deposited: &Deposited) -> bool {
    let has_id = match &deposited.payment {
        None => id.created_at() != Timestamp::from_millis(0),
        Some(payment) => payment.id.deposit(account) == id && names::deposited(payment.at, id) == entry,
    };
    has_id && adds_up(deposited)
}

/// Returns whether the changes of a deposit are possible: a payment adds its amount, and a refund takes no more than
/// was requested. The credit and the wallet change by the same amount, unless only the wallet changes.
fn adds_up(deposited: &Deposited) -> bool {
    let (change, least) = match &deposited.refund {
        None => (deposited.change(), NanoUsd::from_nanos(1)),
        Some(refund) => (deposited.change(), NanoUsd::from_nanos(refund.amount.nanos().saturating_neg())),
    };
    let is_possible = change >= least && (deposited.refund.is_none() || change <= NanoUsd::ZERO);
    is_possible
        && deposited.wallet.is_none_or(|WalletChange { change, is_alone, .. }| {
            deposited.amount == if is_alone { NanoUsd::ZERO } else { change }
        })
}

fn is_last(LastDeposit { credit, at }: LastDeposit, entry: &[u8], id: DepositId, of: &Deposited) -> bool {
    of.credit == Some(credit) && names::deposited(at, id) == entry
}

/// Returns the deposit's id from an entry of [`names::DEPOSITED`].
pub(super) fn deposit_id(entry: &[u8]) -> Result<DepositId, StoreError> {
    entry.get(8..).and_then(DepositId::from_slice).ok_or_else(|| damaged("the index of deposits"))
}
