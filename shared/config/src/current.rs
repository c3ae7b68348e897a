//! A value that is replaced whole while others use it, and what is read again at a reload.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::ConfigError;

/// The current value. Callers that already hold it keep their copy when it is replaced.
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

/// Reads settings again. The returned function puts them in use; it runs only if all other settings could be read too.
pub type Reread = Box<dyn Fn() -> Result<Box<dyn FnOnce()>, ConfigError> + Send + Sync>;

pub fn reread<T: 'static>(
    read: impl Fn() -> Result<T, ConfigError> + Send + Sync + 'static,
    replace: impl Fn(T) + Clone + Send + Sync + 'static,
) -> Reread {
    Box::new(move || {
        let (read, replace) = (read()?, replace.clone());
        Ok(Box::new(move || replace(read)))
    })
}
