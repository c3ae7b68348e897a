//! A simulation of the real gateway and the real key-service: one thread, simulated time, a network and a store that fail by
//! a seed. The same seed gives the same course to the last bit.

#[cfg(test)]
mod account;
#[cfg(test)]
mod client;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod dice;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod judge;
#[cfg(test)]
mod key_service;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod load;
#[cfg(test)]
mod network;
#[cfg(test)]
mod owner;
#[cfg(test)]
mod poll;
#[cfg(test)]
mod process;
#[cfg(test)]
mod run;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod store;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod world;
