//! Models that a machine explores: every order of messages, crashes and conflicts of a small installation, and every course of
//! its lease time. Decisions are those of `domain::ledger` and of the store's lanes; what surrounds them is a stand-in.

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod protocol;
