//! The threads that a large layer is spread over.

use std::io;

use rayon::{
    ThreadPool, ThreadPoolBuilder,
    iter::{IndexedParallelIterator, ParallelIterator},
    slice::ParallelSliceMut,
};

/// Products of a piece of work that are worth waking other threads for: some 50 µs of one.
const WORTHWHILE: usize = 1 << 20;

/// A few threads, or none but the caller's own.
pub(crate) struct Threads(Option<ThreadPool>);

impl Threads {
    /// No threads but the caller's own.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// So many threads, at least one.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        if count <= 1 {
            return Ok(Self::none());
        }
        let name = |index| format!("local-model-{index}");
        let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(name).build();
        Ok(Self(Some(pool.map_err(io::Error::other)?)))
    }

    /// Lets `work` fill each piece of `results`, of `size` numbers and with its index. Who fills a piece changes nothing in
    /// it. `products` says how much work all of it is.
    pub(crate) fn fill(
        &self,
        results: &mut [f32],
        size: usize,
        products: usize,
        work: impl Fn(usize, &mut [f32]) + Send + Sync,
    ) {
        match &self.0 {
            Some(pool) if products >= WORTHWHILE => pool.install(|| {
                results.par_chunks_mut(size).enumerate().for_each(|(index, piece)| work(index, piece));
            }),
            Some(_) | None => {
                results.chunks_mut(size).enumerate().for_each(|(index, piece)| work(index, piece));
            }
        }
    }
}
