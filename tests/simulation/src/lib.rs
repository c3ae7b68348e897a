//! Runs the real gateway and the real key-service in a simulation: there is a single thread, time is simulated, and the
//! network and the store fail when the seed says so. The same seed always gives exactly the same run.

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
