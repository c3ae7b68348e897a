//! Worker threads. Each has its own runtime, so that a request never moves between threads.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A thread with a single-threaded runtime.
pub(crate) struct WorkerThread {
    pub(crate) runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl WorkerThread {
    pub(crate) fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            // A dropped sender also means that the worker must stop.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, stop, thread })
    }

    /// Ends the runtime and all its tasks.
    pub(crate) fn stop(self) {
        // Sending fails only if the thread has already ended.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}
