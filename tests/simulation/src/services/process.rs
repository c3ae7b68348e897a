//! A simulated process. Its tasks all end at the same time, and have no effect afterwards.

use std::sync::Arc;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// A process at a place. A restart creates another process at the same place.
pub(crate) struct Process {
    pub(crate) place: String,
    end: CancellationToken,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Process {
    pub(crate) fn new(place: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { place: place.into(), end: CancellationToken::new(), tasks: Mutex::default() })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// Runs a task of the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(tokio::spawn(task).abort_handle());
    }

    /// Ends the process at once.
    pub(crate) fn kill(&self) {
        self.end.cancel();
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// Spawns a server's tasks as tasks of its process.
#[derive(Clone)]
pub(crate) struct TasksOf(pub(crate) Arc<Process>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for TasksOf {
    fn execute(&self, task: F) {
        self.0.spawn(async move { drop(task.await) });
    }
}
