//! How every program starts, serves, drains and stops.

mod admin;
pub mod admin_call;
mod basics;
pub mod doctor;
mod idle_memory;
pub mod log_level;
pub mod probe;
mod service_manager;
pub mod starting;

use std::{
    fmt::Display,
    future::{self, pending},
    io::{self, StdoutLock, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitCode, Termination},
    sync::Arc,
    time::Duration,
};

use admin::{Guard, admin_router};
use admin_call::TOKEN_FILE;
use axum::Router;
pub use basics::{Basics, ServiceOptions};
use clap::Parser;
use probe::{Readiness, probe};
use shared::{
    clock::System,
    private_files,
    secret::{self, SecretString},
    served::{Host, ServedHosts},
};
use shared_catalog::Catalog;
use shared_config::{Common, ConfigError, Reread};
use shared_door::{
    limits::Limits,
    serve::{Port, bind, serve},
    tls::validity,
};
use shared_observe::{
    log,
    metrics::{self, Exported, Metrics},
    standard_metrics, traces,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// A program's command line, which includes the settings of every program.
pub trait CommandLine: Parser {
    /// Returns these settings, and where a running process of this program reports readiness.
    fn basics(&self) -> (&Basics, SocketAddr, &'static str);
}

/// Returns the version for `--version`, with the commit in `FAREGATE_COMMIT` if the build set it.
pub fn version() -> &'static str {
    version_of(env!("CARGO_PKG_VERSION"), option_env!("FAREGATE_COMMIT"))
}

fn version_of(package: &'static str, commit: Option<&'static str>) -> &'static str {
    match commit {
        None | Some("") => package,
        // Leaks a few bytes, once or twice per process.
        Some(commit) => Box::leak(format!("{package} ({commit})").into_boxed_str()),
    }
}

/// Main function of every program. Reads the settings, answers `--health` or starts the log, and runs `program`. Writes
/// an error with its causes to standard error, on one line.
pub async fn main<A, T, E>(program: impl AsyncFnOnce(A) -> Result<T, E>) -> ExitCode
where
    A: CommandLine,
    T: Termination,
    E: Display + From<io::Error> + From<ConfigError>,
{
    let (arguments, exposed) = shared_config::parse::<A>();
    let run = async {
        let (basics, address, path) = arguments.basics();
        if basics.health {
            probe(address, path).await?;
            return Ok(ExitCode::SUCCESS);
        }
        basics.start_log()?;
        exposed.warn();
        program(arguments).await.map(Termination::report)
    };
    let outcome: Result<ExitCode, E> = run.await;
    log::flush();
    match outcome {
        Ok(code) => code,
        Err(e) => {
            // If standard error is closed, the exit status alone reports the failure.
            let _ = writeln!(io::stderr(), "error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// A process before it serves.
pub struct Process {
    /// Limits of open files and memory.
    pub limits: Limits,
    /// Cancelled by the stop signal; probes fail from then on.
    pub stopping: CancellationToken,
    /// Cancelled when the services must stop.
    pub shutdown: CancellationToken,
    /// This program's own routes on the admin port.
    pub admin_routes: Router,
    stop: StopSignal,
    drain_pause: Duration,
    metrics: Metrics,
    admin: Port,
    admin_hosts: Vec<Host>,
    data_dir: Option<PathBuf>,
}

impl Process {
    /// Raises the process's limits, starts the return of idle memory and the collection of metrics, and listens for
    /// probes and stop signals.
    pub fn start(
        service: &ServiceOptions,
        data_dir: Option<&Path>,
        exported: &'static Exported,
    ) -> io::Result<Self> {
        let (common, admin) = (&service.common, service.admin(data_dir));
        let stop = StopSignal::listen();
        let limits = service.limits.raise();
        idle_memory::return_regularly();
        let metrics = Metrics::start(exported).map_err(io::Error::other)?;
        tokio::spawn(validity::keep_warning());
        traces::start().and_then(|()| standard_metrics::start()).map_err(io::Error::other)?;
        let listener = bind("FAREGATE_ADMIN_LISTEN", admin.listen)?;
        let (admin_hosts, data_dir) = (common.admin_hosts.clone(), admin.data_dir);
        let admin = Port::new(listener, limits.connections.admin_bounds());
        let [stopping, shutdown] = [(); 2].map(|()| CancellationToken::new());
        let (admin_routes, drain_pause) = (Router::new(), common.drain_pause);
        Ok(Self {
            limits,
            stopping,
            shutdown,
            admin_routes,
            stop,
            drain_pause,
            metrics,
            admin,
            admin_hosts,
            data_dir,
        })
    }

    /// Returns a function that renders the process's metrics.
    pub fn metrics_reader(&self) -> impl Fn() -> String + Send + Sync + use<> {
        self.metrics.reader()
    }

    /// Starts answering probes and metrics requests.
    pub fn serve(self, ready: Readiness) -> io::Result<Serving> {
        let Self { stop, stopping, shutdown, admin_routes, drain_pause, metrics, admin, .. } = self;
        let address = admin.listener.local_addr()?;
        let guard = Guard {
            address: address.ip(),
            hosts: ServedHosts::of_listener(address.ip(), self.admin_hosts),
            token: self.data_dir.as_deref().map(admin_token).transpose()?,
        };
        let ready = until_stopping(ready, stopping.clone());
        let routes = admin_router(metrics, ready, admin_routes, guard);
        let admin = tokio::spawn(serve(admin, routes, shutdown.clone()));
        Ok(Serving { admin_address: address, stop, stopping, shutdown, drain_pause, admin })
    }
}

/// Reads the token for changes from the data directory. The first start creates it.
fn admin_token(data_dir: &Path) -> io::Result<SecretString> {
    let file = data_dir.join(TOKEN_FILE);
    let made = private_files::create_folder(data_dir).and_then(|()| secret::read_or_make(&file, &System));
    made.map_err(|e| {
        io::Error::new(e.kind(), format!("FAREGATE_DATA_DIR: cannot make or read {}: {e}", file.display()))
    })
}

pub struct Serving {
    pub admin_address: SocketAddr,
    /// Receives stop signals, from the start of the process.
    pub stop: StopSignal,
    stopping: CancellationToken,
    shutdown: CancellationToken,
    drain_pause: Duration,
    admin: JoinHandle<()>,
}

impl Serving {
    /// Prints the addresses, serves until a signal and through the drain pause, then lets `drain` end the services.
    /// Ends at once, and fails, if the process itself cancels `shutdown`. A signal during the start also counts. A
    /// second signal ends the pause.
    pub async fn until_signalled(
        mut self,
        announce: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>,
        drain: impl AsyncFnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        announce(&mut io::stdout().lock())?;
        service_manager::tell("READY=1");
        let is_given_up = tokio::select! {
            () = self.stop.arrival() => false,
            () = self.shutdown.cancelled() => true,
        };
        service_manager::tell("STOPPING=1");
        self.stopping.cancel();
        if !self.drain_pause.is_zero() && !is_given_up {
            tracing::info!(
                seconds = self.drain_pause.as_secs(),
                "stopping soon; requests are still accepted"
            );
            // A second signal ends the pause.
            let _ = timeout(self.drain_pause, self.stop.arrival()).await;
        }
        tracing::info!("draining; running requests may finish");
        drain().await?;
        self.shutdown.cancel();
        tokio::join!(traces::flush(), standard_metrics::flush());
        self.admin.await.map_err(io::Error::other)?;
        if is_given_up {
            Err(io::Error::other("the process must not continue; the log says why"))
        } else {
            Ok(())
        }
    }
}

/// Reports not ready as soon as the process is about to stop.
fn until_stopping(ready: Readiness, stopping: CancellationToken) -> Readiness {
    Arc::new(move || {
        if stopping.is_cancelled() {
            Box::pin(future::ready(Err("the process is stopping".to_owned())))
        } else {
            ready()
        }
    })
}

/// Reloads the catalogue and everything in `rereads` at each SIGHUP: all of it or nothing. `replace` takes the new
/// catalogue or refuses it.
pub fn reload_on_hangup(
    common: &Common,
    rereads: impl IntoIterator<Item = Option<Reread>>,
    replace: impl Fn(Catalog) -> Result<(), ConfigError> + Send + Sync + 'static,
) {
    let mut hangup = listen("SIGHUP", SignalKind::hangup());
    let (common, rereads) = (common.clone(), rereads.into_iter().flatten().collect::<Vec<_>>());
    let reload = Arc::new(move || {
        let read = rereads.iter().map(|reread| reread()).collect::<Result<Vec<_>, _>>()?;
        replace(common.catalog()?)?;
        for put_in_use in read {
            put_in_use();
        }
        Ok::<_, ConfigError>(())
    });
    tokio::spawn(async move {
        loop {
            arrival(&mut hangup).await;
            service_manager::tell("RELOADING=1");
            let reload = reload.clone();
            let reloaded = spawn_blocking(move || reload().map_err(|e| e.to_string())).await;
            let reloaded = reloaded.map_err(|e| e.to_string()).flatten();
            metrics::count_reload(reloaded.is_ok());
            match reloaded {
                Ok(()) => tracing::info!("catalogue and certificates were reloaded"),
                Err(error) => tracing::error!(
                    error,
                    "nothing was reloaded; the previous catalogue and certificates stay in use"
                ),
            }
            service_manager::tell("READY=1");
        }
    });
}

/// Ctrl-C and SIGTERM. A process must have one listener for its whole life: signals are lost after the first listener
/// is dropped.
pub struct StopSignal {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl StopSignal {
    pub fn listen() -> Self {
        let terminate = listen("SIGTERM", SignalKind::terminate());
        let interrupt = listen("Ctrl-C", SignalKind::interrupt());
        Self { terminate, interrupt }
    }

    /// Waits for the next signal. An earlier signal that nobody awaited counts.
    pub async fn arrival(&mut self) {
        tokio::select! {
            () = arrival(&mut self.terminate) => {}
            () = arrival(&mut self.interrupt) => {}
        }
    }
}

fn listen(name: &str, kind: SignalKind) -> Option<Signal> {
    signal(kind).inspect_err(|e| tracing::warn!(error = %e, "cannot listen for {name}")).ok()
}

async fn arrival(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Duration};

    use tokio::time::timeout;

    use super::{StopSignal, version_of};

    #[tokio::test]
    async fn a_signal_counts_that_came_while_nothing_awaited_it() {
        let mut stop = StopSignal::listen();
        assert!(timeout(Duration::ZERO, stop.arrival()).await.is_err());
        let process = std::process::id().to_string();
        assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
        timeout(Duration::from_secs(10), stop.arrival()).await.unwrap();
    }

    #[test]
    fn the_version_names_the_commit_that_the_build_was_told() {
        assert_eq!(version_of("1.2.3", Some("0123456789ab")), "1.2.3 (0123456789ab)");
        assert_eq!([version_of("1.2.3", None), version_of("1.2.3", Some(""))], ["1.2.3"; 2]);
    }
}
