//! Runtimes of a server, and the handlers of requests on them.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ::http::{Request, StatusCode, Version};
use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

/// A runtime that serves connections, with its handler of requests.
#[derive(Clone)]
pub struct Worker {
    pub runtime: Handle,
    pub handler: Handler,
}

/// Handles requests. Unlike a router, it is cheap to clone, and allocates only once per request.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync>);

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

impl Handler {
    /// Makes a handler that answers with `answer`.
    pub fn new<F>(answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(answer(request))))
    }

    pub fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send + use<> {
        (self.0)(request)
    }
}

impl From<Router> for Handler {
    fn from(routes: Router) -> Self {
        Self::new(move |request| {
            let answer = routes.clone().oneshot(request);
            async move {
                let Ok(response) = answer.await;
                response
            }
        })
    }
}

/// The runtimes of a server.
pub(super) struct Workers {
    workers: Vec<(Worker, AtomicUsize)>,
    next: AtomicUsize,
}

impl Workers {
    pub(super) fn new(workers: Vec<Worker>) -> Arc<Self> {
        let workers = workers.into_iter().map(|worker| (worker, AtomicUsize::new(0))).collect();
        Arc::new(Self { workers, next: AtomicUsize::new(0) })
    }

    /// Assigns a new connection to the runtime that has the fewest.
    pub(super) fn join(self: &Arc<Self>) -> (Handle, Assignment) {
        let connections = |number: &usize| self.workers[*number].1.load(Ordering::Relaxed);
        let number = (0..self.workers.len()).min_by_key(connections).unwrap_or(0);
        let (worker, connections) = &self.workers[number];
        connections.fetch_add(1, Ordering::Relaxed);
        (worker.runtime.clone(), Assignment { workers: self.clone(), number })
    }

    /// Answers a request on the connection's own worker, or on the next worker in turn if the connection carries many
    /// requests at once.
    pub(super) async fn answer(&self, own: usize, request: Request<Body>) -> Response {
        if request.version() != Version::HTTP_2 || self.workers.len() == 1 {
            return self.workers[own].0.handler.answer(request).await;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let (worker, _) = &self.workers[next];
        let answer = AbortOnDropHandle::new(worker.runtime.spawn(worker.handler.answer(request)));
        // Routes catch panics. If the task is gone anyway, its runtime is ending.
        answer.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }
}

/// A connection on a worker, counted until it is dropped.
pub(super) struct Assignment {
    workers: Arc<Workers>,
    pub(super) number: usize,
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.workers.workers[self.number].1.fetch_sub(1, Ordering::Relaxed);
    }
}
