//! A value that is replaced whole while others use it.

use std::sync::Arc;

use parking_lot::RwLock;

/// The current value. Who took it keeps what they took.
pub struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// Takes the current value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().clone()
    }

    /// Replaces the value.
    pub fn replace(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }
}
