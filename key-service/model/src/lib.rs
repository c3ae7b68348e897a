//! Models that a machine explores: every order of messages, crashes and conflicts of a small installation, and every
//! course of its lease time. `domain::ledger` and the store's lanes decide; the parts around them are stand-ins.

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod protocol;
