//! Finds the records that commands will read, as far as this is known before they are applied, so that few round trips
//! are needed.

use domain::{
    ledger::{Command, GroupChain, Payer, Record, RecordId},
    usage::{Day, part_of_user},
};
use shared::ids::KeyId;

use crate::{
    batch::commands::Commands,
    kept::Retention,
    names::{self, PayerName},
    view::View,
};

/// Discards a decision that lacks records, and requests these and all others that the calls will read and that have no
/// copies.
pub(crate) fn need_records(view: &mut View, kept: Retention, calls: &[Commands<'_>]) {
    let missing = view.take_missing();
    view.begin();
    for name in &missing {
        view.need(name);
    }
    view.need(&names::turn());
    view.need(&names::account());
    let account = view.peek(&names::account()).copied();
    for Commands { all, now } in calls {
        let remembers = account.is_some_and(|account| account.remembers_expiries(kept.expired, *now));
        for command in *all {
            need_own(view, command, remembers);
            need_payers(view, command, Day::of(*now));
        }
    }
}

/// Requests the key or the wallet, and the record, that a command names.
fn need_own(view: &mut View, command: &Command, remembers_expiries: bool) {
    if let Some(id) = command.key() {
        view.need(&names::key(id));
    }
    if let Some(id) = command.wallet() {
        view.need(&names::group(id));
    }
    match (command, command.record()) {
        // Holds and deposits are decided as if there were no record; if there is one, the commit fails.
        (_, None | Some(RecordId::Deposit(_))) | (Command::Hold(_), Some(RecordId::Generation(_))) => {}
        (_, Some(RecordId::Generation(id))) => {
            view.need(&names::generation(id));
            if remembers_expiries {
                view.need(&names::expired(id));
            }
        }
    }
}

/// Requests the groups that pay for the command and the sums that its bill changes. If the record that names them is
/// itself missing, they are requested in the next attempt.
fn need_payers(view: &mut View, command: &Command, today: Day) {
    let Some(key) = command.key() else { return };
    let is_billed = matches!(command, Command::Capture { .. } | Command::Expire { .. });
    let known = |record: &Record| {
        let payer = payer(record)?;
        Some((payer.groups, part_of_users(record), Some(payer).filter(|_| is_billed).cloned()))
    };
    let found = match command.record() {
        Some(RecordId::Generation(id)) => match view.peek(&names::generation(id)) {
            Some(record) => known(record),
            None => view.peek(&names::expired(id)).and_then(known),
        },
        Some(RecordId::Deposit(_)) | None => None,
    };
    let (groups, user, billed) = found.unwrap_or_else(|| (chain(view, key), None, None));
    let billed = match (command, billed) {
        (_, Some(payer)) => Some(payer),
        (Command::Capture { model, .. }, None) => Some(Payer { key, model: model.clone(), groups }),
        (
            Command::Deposit { .. }
            | Command::Refund { .. }
            | Command::Tick { .. }
            | Command::Check { .. }
            | Command::Hold(_)
            | Command::Extend { .. }
            | Command::Release { .. }
            | Command::Expire { .. },
            None,
        ) => None,
    };
    for group in groups.into_iter().flatten() {
        view.need(&names::group(group));
    }
    let Some(payer) = billed else { return };
    let of_payer = names::of_payer(today, &PayerName::of(&payer));
    if !view.has_copy(&of_payer) {
        // The first bill of a day lists the payer.
        view.need(&names::payers(payer.key));
    }
    view.need(&of_payer);
    view.need(&names::of_model(today, &payer.model));
    for group in payer.groups.into_iter().flatten() {
        view.need(&names::of_group(today, group));
    }
    if let Some(part) = user {
        view.need(&names::of_users(today, part));
    }
}

/// Finds a key's group and parent group among the copies.
fn chain(view: &mut View, key: KeyId) -> GroupChain {
    let group = view.peek(&names::key(key)).and_then(|key| key.of.group);
    let parent = group.and_then(|id| view.peek(&names::group(id))?.of.parent);
    [group, parent]
}

const fn payer(record: &Record) -> Option<&Payer> {
    match record {
        Record::None | Record::Deposited(_) => None,
        Record::Open(hold) => Some(&hold.payer),
        Record::Closed(bill) => Some(&bill.payer),
    }
}

/// Returns which part of the users includes the generation's user.
fn part_of_users(record: &Record) -> Option<u8> {
    let origin = match record {
        Record::None | Record::Deposited(_) => None,
        Record::Open(hold) => hold.origin.as_ref(),
        Record::Closed(bill) => bill.origin.as_ref(),
    };
    origin?.user.as_deref().map(part_of_user)
}
