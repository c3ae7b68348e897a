//! Processes, the network and the store that they use, and model servers.

pub(crate) mod call_times;
pub(crate) mod gateway;
pub(crate) mod key_service;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod store;
pub(crate) mod upstream;
