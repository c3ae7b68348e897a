//! Model checking of a small installation: explores every order of messages, crashes and conflicts, and every way in
//! which lease time can pass. The real code of `domain::ledger` and of the lanes makes the decisions. Everything else
//! is simulated.

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod protocol;
