//! Model checking: explores every order of messages, crashes and conflicts in a small installation, and every way in
//! which its lease time can pass. The real `domain::ledger` and lanes make the decisions; everything else is simulated.

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod protocol;
