//! Bound on the bytes of all prompts in memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shared::error::{ApiError, Code};

/// Byte budget for all prompts together. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PromptBudget(Arc<Budget>);

struct Budget {
    most: usize,
    taken: AtomicUsize,
}

/// Share of one request in the budget, returned when it is dropped.
pub(crate) struct PromptPermit {
    shared: Arc<Budget>,
    taken: usize,
}

impl PromptBudget {
    /// A budget of this many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Budget { most, taken: AtomicUsize::new(0) }))
    }

    /// A permit for zero bytes.
    pub(crate) fn permit(&self) -> PromptPermit {
        PromptPermit { shared: self.0.clone(), taken: 0 }
    }
}

impl PromptPermit {
    /// Adds bytes to the permit. If the budget is exhausted, the error asks the client to try again later.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.shared.most);
        if self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            self.taken += bytes;
            return Ok(());
        }
        metrics::counter!("gateway_prompts_without_room_total").increment(1);
        let message = "There is no room for a prompt of this size at the moment; try again shortly.";
        Err(ApiError::new(Code::Overloaded, message))
    }

    /// Returns all but this many bytes to the budget.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let given_back = self.taken.saturating_sub(bytes);
        if given_back > 0 {
            self.shared.taken.fetch_sub(given_back, Ordering::Relaxed);
            self.taken -= given_back;
        }
    }
}

impl Drop for PromptPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_budget_and_give_all_of_it_back() {
        let budget = PromptBudget::new(10);
        let (mut one, mut other) = (budget.permit(), budget.permit());
        assert!(one.grow(6).is_ok() && other.grow(4).is_ok());
        assert_eq!(other.grow(1).unwrap_err().code, Code::Overloaded);
        assert!(other.grow(usize::MAX).is_err());
        one.shrink_to(5);
        one.shrink_to(7);
        assert!(other.grow(1).is_ok() && other.grow(1).is_err());
        drop((one, other));
        assert!(budget.permit().grow(10).is_ok());
    }
}
