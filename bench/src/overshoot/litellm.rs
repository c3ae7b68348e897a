//! LiteLLM's proxy under the load, as `bench/rivals/litellm/` installs and configures it: three proxies over one Redis,
//! and a key with `max_budget` for each tenant.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tests::{
    harness::{Form, Http, Redis, free_port},
    upstream::{Keep, Upstream},
};
use tokio::time::sleep;

use super::{
    outcome::{Outcome, outcome},
    setting::{Gateway, KILL_EVERY, REPLICAS, System, caps},
};
use crate::overshoot::drive::drive;

/// Directory with the script and the configuration, below the repository's root.
const FOLDER: &str = "bench/rivals/litellm";
/// Key of the proxies' operator.
const MASTER_KEY: &str = "sk-overshoot-5d0f6c2b9a7e41c8";
/// Maximum time that installing, or a first start, may take.
const STARTS: Duration = Duration::from_mins(4);

/// A process of the system, ended when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) async fn run(with_kills: bool, seed: u64) -> Result<Outcome, String> {
    let folder = Path::new(FOLDER);
    let data = tempfile::TempDir::new().map_err(|e| e.to_string())?;
    let installed =
        script(folder, data.path(), &["install"], &[])?.0.wait().is_ok_and(|status| status.success());
    if !installed {
        return Err(format!("it is not installed: {}", last_words(data.path())));
    }
    let redis = Redis::start(Form::AsInstalled, &data.path().join("redis")).await;
    let upstream = Upstream::keeping(Keep::Counts);
    let budgets: Vec<String> = caps().iter().map(ToString::to_string).collect();
    let env = [
        ("LITELLM_MASTER_KEY", MASTER_KEY.to_owned()),
        ("BUDGETS", budgets.join(",")),
        ("REDIS_HOST", "127.0.0.1".to_owned()),
        ("REDIS_PORT", redis.url().rsplit(':').next().unwrap_or_default().to_owned()),
        ("UPSTREAM_URL", upstream.url()),
    ];
    let ports: Vec<u16> = (0..REPLICAS).map(|_| free_port()).collect();
    let mut replicas = Vec::new();
    for port in &ports {
        replicas.push(script(folder, data.path(), &["serve", &port.to_string()], &env)?);
        answers(*port, data.path()).await?;
    }
    let keys = (0..budgets.len()).map(|tenant| format!("sk-tenant-{tenant}")).collect();
    let addresses = ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
    let system = System { upstream, addresses, keys };
    let began = Instant::now();
    let mut kills = 0;
    let killing = async {
        if !with_kills {
            return std::future::pending::<Result<(), String>>().await;
        }
        loop {
            sleep(KILL_EVERY).await;
            let turn = kills as usize % REPLICAS;
            kills += 1;
            // Assigning the new process drops the old one, which kills it.
            let _ = replicas[turn].0.kill();
            replicas[turn] = script(folder, data.path(), &["serve", &ports[turn].to_string()], &env)?;
            answers(ports[turn], data.path()).await?;
        }
    };
    let answers = tokio::select! {
        answers = drive(&system, seed) => answers,
        failed = killing => return Err(failed.expect_err("kills go on")),
    };
    Ok(outcome(Gateway::Litellm, &system.upstream, kills, answers, began))
}

/// Starts a command of the system's script, with its output in a file.
fn script(folder: &Path, data: &Path, arguments: &[&str], env: &[(&str, String)]) -> Result<Process, String> {
    let path: PathBuf = folder.join("run.sh");
    let log = File::options().create(true).append(true).open(log_of(data)).map_err(|e| e.to_string())?;
    let errors = log.try_clone().map_err(|e| e.to_string())?;
    let mut command = Command::new("sh");
    command.arg(&path).args(arguments).env("DATA", data).envs(env.iter().map(|(name, value)| (name, value)));
    let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
    child.map(Process).map_err(|e| format!("{}: {e}", path.display()))
}

fn log_of(data: &Path) -> PathBuf {
    data.join("log")
}

/// Waits until a replica answers. An error includes the end of the log.
async fn answers(port: u16, data: &Path) -> Result<(), String> {
    let (url, until) = (format!("http://127.0.0.1:{port}/health/liveliness"), Instant::now() + STARTS);
    while Instant::now() < until {
        if Http::new().try_get(&url).await.is_some_and(|answer| answer.status == 200) {
            return Ok(());
        }
        sleep(Duration::from_millis(500)).await;
    }
    Err(format!("it does not start: {}", last_words(data)))
}

fn last_words(data: &Path) -> String {
    let log = std::fs::read_to_string(log_of(data)).unwrap_or_default();
    let last: Vec<&str> = log.lines().rev().take(12).collect();
    last.into_iter().rev().collect::<Vec<_>>().join("\n")
}
