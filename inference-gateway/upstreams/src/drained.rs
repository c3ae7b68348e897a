//! Addresses of upstreams that an operator has drained. They stay drained when a new catalogue is loaded, until they
//! are restored or the process ends.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The drained addresses, each a host and a port.
#[derive(Default)]
pub(crate) struct DrainedAddresses(Mutex<BTreeSet<String>>);

impl DrainedAddresses {
    pub(crate) fn contains(&self, address: &str) -> bool {
        self.0.lock().contains(address)
    }

    /// Notes that an address was drained or restored.
    pub(crate) fn set(&self, address: &str, drained: bool) {
        let mut addresses = self.0.lock();
        if drained {
            addresses.insert(address.to_owned());
        } else {
            addresses.remove(address);
        }
    }
}
