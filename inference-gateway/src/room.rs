//! A bound on the bytes of prompts that are held in memory at once, whoever sent them and however many there are.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shared::error::{ApiError, Code};

/// Room for all prompts together. Cheap to clone.
#[derive(Clone)]
pub struct Rooms(Arc<Shared>);

struct Shared {
    most: usize,
    taken: AtomicUsize,
}

/// What one request takes of it, given back when it is dropped.
pub struct Room {
    shared: Arc<Shared>,
    taken: usize,
}

impl Rooms {
    /// So many bytes for all together.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, taken: AtomicUsize::new(0) }))
    }

    /// An empty room, for a request that has sent nothing yet.
    pub fn enter(&self) -> Room {
        Room { shared: self.0.clone(), taken: 0 }
    }
}

impl Room {
    /// Takes so many bytes more, unless all is taken: then the client is told to come back.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.shared.most);
        if self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            self.taken += bytes;
            return Ok(());
        }
        metrics::counter!("gateway_prompts_without_room_total").increment(1);
        let message = "There is no room for a prompt of this size at the moment; try again shortly.";
        Err(ApiError::new(Code::Overloaded, message))
    }

    /// Gives back all but so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let given_back = self.taken.saturating_sub(bytes);
        if given_back > 0 {
            self.shared.taken.fetch_sub(given_back, Ordering::Relaxed);
            self.taken -= given_back;
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_never_take_more_than_there_is_and_give_all_of_it_back() {
        let rooms = Rooms::new(10);
        let (mut one, mut other) = (rooms.enter(), rooms.enter());
        assert!(one.grow(6).is_ok() && other.grow(4).is_ok());
        assert_eq!(other.grow(1).unwrap_err().code, Code::Overloaded);
        assert!(other.grow(usize::MAX).is_err());
        one.shrink_to(5);
        one.shrink_to(7);
        assert!(other.grow(1).is_ok() && other.grow(1).is_err());
        drop((one, other));
        assert!(rooms.enter().grow(10).is_ok());
    }
}
