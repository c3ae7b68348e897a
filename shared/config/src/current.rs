//! A value that can be replaced as a whole while others use it.

use std::sync::Arc;

use parking_lot::RwLock;

/// The current value. When it is replaced, callers that already have it keep the old value.
pub struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    pub fn get(&self) -> Arc<T> {
        self.0.read().clone()
    }

    pub fn replace(&self, value: T) {
        *self.0.write() = Arc::new(value);
    }
}
