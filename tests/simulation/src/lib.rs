//! A simulation of the real gateway and the real key-service: one thread, simulated time, and a network and a store
//! that fail as the seed decides. The same seed gives exactly the same run.

#[cfg(test)]
mod account;
#[cfg(test)]
mod chance;
#[cfg(test)]
mod client;
#[cfg(test)]
mod course;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod services;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod world;
